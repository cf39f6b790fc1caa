"""The health of executors, by their heartbeats.

Whoever asks gets what the last look found, as old as it is: an executor that can't be heard for SILENT_AFTER_S is
UNHEALTHY, whether it is dead or the way to it is down.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.model.executor_heartbeat import SILENT_AFTER_S, ExecutorPhase, HeardHeartbeat
from gobblin_assets.model.job_ticket import LogId
from gobblin_assets.service.away_logs import AwayLogs
from gobblin_assets.service.ticket_logs import TicketLogs
from gobblin_assets.service.topology import ExecutorSpec, Topology

_WAITING_PER_SLOT: Final = 2

_log = logging.getLogger(__name__)


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

    ``capabilities``, ``connections``, ``file_systems``: what each process has, since any of them may get a ticket;
    None: one of them does not say. Of an executor that is silent: what the latest one had.
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
    capabilities: frozenset[str] | None = None
    connections: frozenset[str] | None = None
    file_systems: frozenset[str] | None = None

    @property
    def inbox_max(self) -> int | None:
        """So many tickets may wait at it: those that it begins next. None: nobody knows, and there is no bound."""
        if self.state is HealthState.UNKNOWN:
            return None
        return self.slots * max(_WAITING_PER_SLOT, self.pack_max) if self.state is HealthState.HEALTHY else 0


@dataclass(frozen=True, slots=True)
class UnheardWay:
    """A way over which no heartbeats are heard. ``since_s``: so long, in seconds."""

    since_s: float
    error: GobblinError


@dataclass(frozen=True, slots=True)
class _Heard:
    """What a look found of an executor. ``log_id``: of the log that it is meant to work with; None: not known."""

    beats: tuple[HeardHeartbeat, ...]
    log_id: LogId | None
    read_at_s: float


class ExecutorHealths:
    """The health of the executors of a topology. Any thread may ask; one thread looks. ``topology``: that of now."""

    def __init__(
        self,
        topology: Callable[[], Topology],
        logs: TicketLogs,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topology = topology
        self._logs = logs
        self._monotonic = monotonic
        self._away = AwayLogs(logs)
        self._lock = threading.Lock()
        self._heard: dict[str, _Heard] = {}
        self._unheard: dict[str, tuple[float, GobblinError]] = {}
        self._told: frozenset[str] = frozenset()

    def look(self) -> None:
        """Read all heartbeats. A way that is down leaves what was heard before."""
        self._away.ask()
        away = self._away.names
        executors: dict[str, list[ExecutorSpec]] = defaultdict(list)
        for spec in self._topology().executors.values():
            executors[spec.executor.way].append(spec.executor)
        found: dict[str, _Heard] = {}
        for way, some in executors.items():
            if way in away:
                continue
            try:
                found.update(self._read(way, some))
                self._note(way, None)
            except GobblinError as error:
                self._tell(way, error)
                self._note(way, error)
                if not isinstance(error, RejectedError):
                    self._away.add(way)
        names = {each.name for some in executors.values() for each in some}
        with self._lock:
            self._heard = {name: each for name, each in {**self._heard, **found}.items() if name in names}
            self._unheard = {way: each for way, each in self._unheard.items() if way in executors}
        self._tell_refused(found)

    def get(self, executor: str) -> ExecutorHealth:
        """Of an executor that is not in the topology: UNKNOWN."""
        with self._lock:
            heard = self._heard.get(executor)
        if heard is None:
            return ExecutorHealth(executor, HealthState.UNKNOWN, reason=_NEVER_HEARD)
        return judge_health(executor, heard.beats, heard.log_id, self._monotonic() - heard.read_at_s)

    def list_unheard(self) -> Mapping[str, UnheardWay]:
        """The ways that are down, as far as this node knows, by their names."""
        now_s = self._monotonic()
        with self._lock:
            return {way: UnheardWay(now_s - since_s, error) for way, (since_s, error) in self._unheard.items()}

    def _note(self, way: str, error: GobblinError | None) -> None:
        with self._lock:
            since_s, _error = self._unheard.pop(way, (self._monotonic(), None))
            if error is not None:
                self._unheard[way] = since_s, error

    def _read(self, way: str, executors: Iterable[ExecutorSpec]) -> Mapping[str, _Heard]:
        beats: dict[str, list[HeardHeartbeat]] = defaultdict(list)
        read_at_s = self._monotonic()
        for each in self._logs.get_store(way).list_heartbeats():
            beats[each.beat.executor].append(each)
        log_id = self._logs.get_log_id(way) if beats else None
        names = [each.name for each in executors]
        return {name: _Heard(tuple(beats[name]), log_id, read_at_s) for name in names if name in beats}

    def _tell(self, way: str, error: GobblinError) -> None:
        if (said := f"heartbeats of the way {way!r} are not heard: {error}") not in self._told:
            self._told |= {said}
            _log.warning("%s", said)

    def _tell_refused(self, found: Mapping[str, _Heard]) -> None:
        """Once each: what a heartbeat is refused for does not mend itself."""
        for name, heard in found.items():
            for each in heard.beats:
                if heard.log_id not in (None, each.beat.log_id):
                    said = (
                        f"a heartbeat of {each.beat.owner} for the executor {name}: {_refuse_log(each, heard.log_id)}"
                    )
                    if said not in self._told:
                        self._told |= {said}
                        _log.warning("%s", said)


_NEVER_HEARD: Final = "it was never heard"


def judge_health(
    executor: str, beats: Sequence[HeardHeartbeat], log_id: LogId | None, older_s: float = 0.0
) -> ExecutorHealth:
    """The health by the heartbeats of the executor's processes, which are ``older_s`` older than they say.

    ``log_id``: of the log that the topology gives the executor; heartbeats of another one count for nothing.
    """
    own = sorted((each for each in beats if log_id in (None, each.beat.log_id)), key=lambda each: each.heard_ago_s)
    if not own:
        reason = _refuse_log(beats[0], log_id) if beats else _NEVER_HEARD
        state = HealthState.UNHEALTHY if beats else HealthState.UNKNOWN
        return ExecutorHealth(executor, state, reason=reason)
    live = [
        each
        for each in own
        if each.beat.phase is not ExecutorPhase.ENDED and each.heard_ago_s + older_s <= SILENT_AFTER_S
    ]
    working = [each for each in live if each.beat.phase is ExecutorPhase.WORKING]
    last, counted = own[0], working or live or own[:1]
    ago_s = last.heard_ago_s + older_s
    if working:
        state, reason = HealthState.HEALTHY, ""
    elif live:
        state, reason = HealthState.DRAINING, "it drains: it takes no further tickets"
    else:
        is_ended = last.beat.phase is ExecutorPhase.ENDED
        state, reason = HealthState.UNHEALTHY, f"it {'ended' if is_ended else 'was heard last'} {ago_s:.0f} s ago"
    return ExecutorHealth(
        executor=executor,
        state=state,
        heard_ago_s=ago_s,
        slots=sum(each.beat.slots for each in working),
        workers_max=_sum_workers([each.beat.workers_max for each in counted]),
        pack_max=min(each.beat.pack_max for each in counted),
        inbox=last.waiting,
        working=last.working,
        release=", ".join(sorted({each.beat.release for each in counted})),
        log_id=last.beat.log_id,
        reason=reason,
        capabilities=_share([each.beat.capabilities for each in counted]),
        connections=_share([each.beat.connections for each in counted]),
        file_systems=_share([each.beat.file_systems for each in counted]),
    )


def _sum_workers(counts: Sequence[int | None]) -> int | None:
    known = [each for each in counts if each is not None]
    return sum(known) if len(known) == len(counts) else None


def _share(names: Sequence[frozenset[str] | None]) -> frozenset[str] | None:
    known = [each for each in names if each is not None]
    return frozenset.intersection(*known) if len(known) == len(names) else None


def _refuse_log(heard: HeardHeartbeat, log_id: LogId | None) -> str:
    return (
        f"its heartbeats are of the log {heard.beat.log_id}, and the topology gives it the log {log_id}: "
        "correct the executor's log in the topology, or GOBBLIN_DATABASE_URL of the executor"
    )
