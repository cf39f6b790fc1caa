"""The health of executors, by their heartbeats."""

from dataclasses import dataclass
from enum import StrEnum

from gobblin_assets.model.job_ticket import LogId


class HealthState(StrEnum):
    """UNKNOWN: it was never heard, and tickets wait for it. UNHEALTHY: it was heard once, and is silent, or refused."""

    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    DRAINING = "DRAINING"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class ExecutorHealth:
    """The health of the executor of a name, over all of its processes that were heard in time.

    ``heard_ago_s``: since the latest heartbeat; None: there was none. ``slots`` and ``workers_max``: the sums of its
    processes; ``workers_max`` None: workers are tickets like others. ``inbox``: tickets that wait for a slot;
    ``working``: those in slots. ``reason``: why it is not HEALTHY, as a sentence; empty: it is.

    ``connections`` and ``file_systems``: by name, what at least one process has; None: one of them does not say.
    """

    executor: str
    state: HealthState
    heard_ago_s: float | None = None
    slots: int = 0
    workers_max: int | None = None
    pack_max: int = 1
    inbox: int = 0
    working: int = 0
    release: str = ""
    log_id: LogId | None = None
    reason: str = ""
    technology: str = ""
    capabilities: frozenset[str] | None = None
    connections: frozenset[str] | None = None
    file_systems: frozenset[str] | None = None

    @property
    def inbox_max(self) -> int | None:
        """So many tickets may wait at it: those that it begins next. None: nobody knows, and there is no bound."""
        if self.state is HealthState.UNKNOWN:
            return None
        return self.slots * max(2, self.pack_max) if self.state is HealthState.HEALTHY else 0
