"""The logs of executors as users see them, and their drains for upgrades.

Only logs that the service reaches itself: those of executors of the communication "log".
"""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import GobblinError
from gobblin_assets.service.access import AccessRules, User, may_use
from gobblin_assets.service.flow_store import SpecNotFoundError
from gobblin_assets.service.open_writes import OpenWrites
from gobblin_assets.service.ticket_logs import TicketLogs
from gobblin_assets.service.topology import BY_LOG, Topology
from gobblin_assets.state.log_drains import LogDrain

OWN_LOG_NAME: Final = "own-log"
"""The name by which users call the service's own log: no log of a topology can have it."""


@dataclass(frozen=True, slots=True)
class ShownLog:
    """A log. ``executors``: those of it that the user may use. ``away``: why it can't be asked; empty: it can.

    ``drain`` None: it can't be asked. ``pause_s``: how long the last drain took; None: there was none.
    """

    name: str
    executors: tuple[str, ...]
    drain: LogDrain | None
    away: str = ""

    @property
    def since(self) -> dt.datetime | None:
        return None if self.drain is None else self.drain.since

    @property
    def pause_s(self) -> float | None:
        if self.drain is None or self.drain.last_begun_at is None or self.drain.last_ended_at is None:
            return None
        return (self.drain.last_ended_at - self.drain.last_begun_at).total_seconds()


class GuardedLogs:
    """All that users do with logs. ``topology`` and ``rules``: those of now."""

    def __init__(
        self,
        logs: TicketLogs,
        topology: Callable[[], Topology],
        rules: Callable[[], AccessRules],
        writes: OpenWrites,
    ) -> None:
        self._logs = logs
        self._topology = topology
        self._rules = rules
        self._writes = writes

    def may_drain(self, user: User) -> bool:
        return self._rules().may_manage(user)

    def list_shown(self, user: User) -> list[ShownLog]:
        """The logs of executors that the user may use, the service's own one first."""
        return [self._show(name, executors) for name, executors in sorted(self._find(user).items())]

    def drain(self, user: User, shown_name: str) -> ShownLog:
        """Let nobody claim tickets of the log, and end what runs. AccessDeniedError; SpecNotFoundError."""
        self._rules().check_manager(user)
        name, executors = self._get(user, shown_name)
        with self._writes.open():
            self._logs.get_drains(name).begin(user.name)
        return self._show(name, executors)

    def resume(self, user: User, shown_name: str) -> ShownLog:
        """Let executors of the log claim again. Errors as of ``drain``."""
        self._rules().check_manager(user)
        name, executors = self._get(user, shown_name)
        with self._writes.open():
            self._logs.get_drains(name).end()
        return self._show(name, executors)

    def _find(self, user: User) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for _name, spec in sorted(self._topology().executors.items()):
            executor = spec.executor
            if executor.communication == BY_LOG and may_use(executor.groups, user):
                found[executor.log] = (*found.get(executor.log, ()), executor.name)
        return found

    def _get(self, user: User, shown_name: str) -> tuple[str, tuple[str, ...]]:
        name, found = "" if shown_name == OWN_LOG_NAME else shown_name, self._find(user)
        if not shown_name or name not in found:
            raise SpecNotFoundError(
                f"no executor is reached by the log {shown_name[:200]!a}", field="log", hint="Look at the topology."
            )
        return name, found[name]

    def _show(self, name: str, executors: tuple[str, ...]) -> ShownLog:
        shown_name = name or OWN_LOG_NAME
        try:
            return ShownLog(shown_name, executors, self._logs.get_drains(name).read())
        except GobblinError as error:
            return ShownLog(shown_name, executors, None, str(error))
