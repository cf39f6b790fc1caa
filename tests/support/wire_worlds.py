"""Ways to an executor, from both of their ends: one world for each kind of communication."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Engine

from gobblin_assets.service.postgres.logs import PostgresTicketLogs
from gobblin_assets.service.ticket_logs import TicketWire
from gobblin_assets.state.postgres.heartbeats import PostgresHeartbeatStore
from gobblin_assets.state.postgres.tickets import PostgresTicketStore

NAME: Final = "local"


@dataclass(frozen=True, slots=True)
class WireWorld:
    """The way to the executor NAME. ``wire``: the service's end; ``tickets`` and ``heartbeats``: of the executor's log.

    ``pass_on`` returns when nothing is under way any more, in either direction.
    """

    kind: str
    wire: TicketWire
    tickets: PostgresTicketStore
    heartbeats: PostgresHeartbeatStore
    pass_on: Callable[[], None]


@contextmanager
def _open_log(engine: Engine) -> Iterator[WireWorld]:
    logs = PostgresTicketLogs(engine, {})
    tickets, heartbeats = PostgresTicketStore(engine), PostgresHeartbeatStore(engine)
    yield WireWorld("log", logs.get_store(""), tickets, heartbeats, lambda: None)


WORLDS: Final[Mapping[str, Callable[[Engine], AbstractContextManager[WireWorld]]]] = {"log": _open_log}
"""By communication. Each takes an engine on an empty log, which is the executor's."""
