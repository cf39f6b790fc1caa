"""The kinds of ways to executors, by communication."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Engine

from gobblin_assets.extensions import Extensions
from gobblin_assets.service.ticket_logs import TicketWire
from gobblin_assets.service.topology import BY_LOG, ExecutorSpec


@dataclass(frozen=True, slots=True)
class WayTo:
    """A way that is to be opened. ``own``: the service's database; what arrives by messages is kept there.

    ``executor``: whose way it is; None: the way is that of a log, and has the log's name.
    """

    name: str
    executor: ExecutorSpec | None
    own: Engine
    environment: Mapping[str, str]


OpenWire = Callable[[WayTo], TicketWire]
"""Opens a wire. Nothing is connected to: a way that is down raises at its first call. RejectedError: it has no address.
"""

WIRE_KINDS: Final = Extensions[OpenWire](
    group="gobblin_assets.spec_executors",
    noun="communication",
    option="communication",
    accepts=callable,
    built_in={BY_LOG: "gobblin_assets.service.spec_executors.database:open_database_wire"},
)
