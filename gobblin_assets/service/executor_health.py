"""The health of executors, by their heartbeats.

Whoever asks gets what the last look found, as old as it is: an executor that can't be heard for SILENT_AFTER_S is
UNHEALTHY, whether it is dead or the way to it is down. A way that hangs leaves the executors of others as they are.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final, TypeVar

from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.model.executor_heartbeat import SILENT_AFTER_S, ExecutorPhase, HeardHeartbeat
from gobblin_assets.model.job_ticket import LogId
from gobblin_assets.service.away_logs import AwayLogs
from gobblin_assets.service.ticket_logs import TicketLogs
from gobblin_assets.service.topology import ExecutorSpec, Topology
from gobblin_assets.service.way_calls import WayCalls

LOOK_WAIT_S_MAX: Final = 2.0
"""So long a look waits for all ways together."""

GIVEN_UNHEARD_MAX: Final = 50
"""Jobs that an executor is given ahead while nobody knows what it can begin."""

_WAITING_PER_SLOT: Final = 2

_log = logging.getLogger(__name__)


class HealthState(StrEnum):
    """UNKNOWN: it was never heard, and tickets wait for it.

    UNHEALTHY: it was heard once and is silent, its heartbeats are refused, or they can't be read.
    """

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

    ``is_read``: whether this process has asked for its heartbeats. Before, it may be silent, and gets no tickets.
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
    is_read: bool = True

    @property
    def inbox_max(self) -> int | None:
        """So many tickets may wait at it: those that it begins next. None: nobody knows, and there is no bound."""
        if self.state is HealthState.UNKNOWN:
            return None if self.is_read else 0
        return self.slots * max(_WAITING_PER_SLOT, self.pack_max) if self.state is HealthState.HEALTHY else 0

    @property
    def given_max(self) -> int:
        """So many jobs that it has not begun are compiled for it: a full inbox, and what fills it again at once."""
        inbox_max = self.inbox_max if self.state is HealthState.HEALTHY else None
        return GIVEN_UNHEARD_MAX if inbox_max is None else 2 * inbox_max


@dataclass(frozen=True, slots=True)
class UnheardWay:
    """A way over which no heartbeats are heard. ``since_s``: so long, in seconds. ``hint`` may be empty."""

    since_s: float
    said: str
    hint: str


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
        self._calls = WayCalls()
        self._lock = threading.Lock()
        self._heard: dict[str, _Heard] = {}
        # By executor: the way that its heartbeats were read over, and since when they are waited for.
        self._read_over: dict[str, str] = {}
        self._awaited_since_s: dict[str, float] = {}
        self._unheard: dict[str, tuple[float, Exception]] = {}
        self._told: frozenset[str] = frozenset()

    def look(self) -> None:
        """Read all heartbeats. A way that is down leaves what was heard before."""
        self._away.ask()
        away = self._away.names
        executors: dict[str, list[ExecutorSpec]] = defaultdict(list)
        for spec in self._topology().executors.values():
            executors[spec.executor.way].append(spec.executor)
        names = {each.name for some in executors.values() for each in some}
        with self._lock:
            self._heard = _keep(self._heard, names)
            self._read_over = _keep(self._read_over, names)
            self._awaited_since_s = _keep(self._awaited_since_s, names)
            self._unheard = {way: each for way, each in self._unheard.items() if way in executors}
        reads = {
            way: self._calls.submit(way, partial(self._read, way, some))
            for way, some in executors.items()
            if way not in away
        }
        until_s = self._monotonic() + LOOK_WAIT_S_MAX
        for way, read in reads.items():
            try:
                self._tell_refused(self._calls.wait_for(way, read, max(0.0, until_s - self._monotonic())))
                self._note(way, None)
            except Exception as error:  # noqa: BLE001  what a driver says of one log is not the fault of others
                self._tell(way, error)
                self._note(way, error)
                if not isinstance(error, RejectedError):
                    self._away.add(way)

    def get(self, executor: str) -> ExecutorHealth:
        """Of an executor that is not in the topology: UNKNOWN."""
        spec = self._topology().executors.get(executor)
        with self._lock:
            heard = self._heard.get(executor)
            is_read = heard is not None or spec is None or self._read_over.get(executor) == spec.executor.way
            unread_s = 0.0 if is_read else self._find_wait_s(executor)
        if heard is None:
            state, reason = HealthState.UNKNOWN, _NEVER_HEARD if is_read else "its heartbeats were not read yet"
            if unread_s > SILENT_AFTER_S:
                state, reason = HealthState.UNHEALTHY, f"its heartbeats could not be read for {unread_s:.0f} s"
            return ExecutorHealth(executor, state, reason=reason, is_read=is_read)
        return judge_health(executor, heard.beats, heard.log_id, self._monotonic() - heard.read_at_s)

    def _find_wait_s(self, executor: str) -> float:
        """How long its heartbeats have been waited for."""
        now_s = self._monotonic()
        return now_s - self._awaited_since_s.setdefault(executor, now_s)

    def list_unheard(self) -> Mapping[str, UnheardWay]:
        """The ways that are down, as far as this node knows, by their names."""
        now_s = self._monotonic()
        with self._lock:
            return {
                way: UnheardWay(now_s - since_s, *_describe(error)) for way, (since_s, error) in self._unheard.items()
            }

    def _note(self, way: str, error: Exception | None) -> None:
        with self._lock:
            since_s, _error = self._unheard.pop(way, (self._monotonic(), None))
            if error is not None:
                self._unheard[way] = since_s, error

    def _read(self, way: str, executors: Iterable[ExecutorSpec]) -> Mapping[str, _Heard]:
        """What was heard over the way. It counts from now on, whatever becomes of others."""
        beats: dict[str, list[HeardHeartbeat]] = defaultdict(list)
        read_at_s = self._monotonic()
        for each in self._logs.get_store(way).list_heartbeats():
            beats[each.beat.executor].append(each)
        log_id = self._logs.get_log_id(way) if beats else None
        names = [each.name for each in executors]
        found = {name: _Heard(tuple(beats[name]), log_id, read_at_s) for name in names if name in beats}
        with self._lock:
            self._heard |= found
            self._read_over |= dict.fromkeys(names, way)
        return found

    def _tell(self, way: str, error: Exception) -> None:
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


_V = TypeVar("_V")


def _keep(of_all: Mapping[str, _V], names: Collection[str]) -> dict[str, _V]:
    return {name: each for name, each in of_all.items() if name in names}


def _describe(error: Exception) -> tuple[str, str]:
    """What is said of it, and what to do. The text of another error than ours may hold a secret."""
    return (error.message, error.hint) if isinstance(error, GobblinError) else (type(error).__name__, "")


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
    # A process without slots only answers questions. It hides nothing of those that take tickets.
    own = [each for each in own if each.beat.slots or each.beat.workers_max] or own
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
