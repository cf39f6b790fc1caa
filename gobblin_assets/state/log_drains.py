"""Drains of a log, as a port: while a log drains, nobody claims its tickets, and whoever works ends.

So nobody works while the log is upgraded. Executors that run ask the log itself; a claim is refused by the database,
whatever the executor's release knows.
"""

import datetime as dt
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LogDrain:
    """How a log drains. ``since``: None while it does not; then ``asked_by`` is empty. Times are by the log's clock.

    ``working``: attempts whose claims live. ``last_begun_at`` and ``last_ended_at``: of the last drain that is over.
    """

    since: dt.datetime | None
    asked_by: str
    working: int
    last_begun_at: dt.datetime | None
    last_ended_at: dt.datetime | None


class LogDrainStore(Protocol):
    """Implemented by ``state.postgres``. Each method is one transaction."""

    def is_draining(self) -> bool:
        """Whether nobody may work now."""
        ...

    def begin(self, asked_by: str) -> None:
        """Let nobody claim from now on. When it returns, no claim is under way. Nothing, if the log drains."""
        ...

    def end(self) -> None:
        """Let everybody claim again. Nothing, if the log does not drain."""
        ...

    def read(self) -> LogDrain:
        """How the log drains now, and how long the last drain took."""
        ...
