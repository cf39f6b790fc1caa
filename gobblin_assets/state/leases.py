"""Leases say which process may work on a lane now: on a dataset, or on one writer's place in it.

The promise: of two runners, at most one can pass a guarded transaction for a lane at a time, because each taking raises
the lane's fence and every guarded transaction names its fence. A lease that ran out stays with its holder until another
process takes the lane over. A process that takes a dataset as a whole holds its lane 0 and has raised the fences of the
others. No lane can be taken until that lease ends. Only the database's clock decides about expiry. The local monotonic
clock only makes a holder stop early, at two thirds of the lease, so that transactions are seldom refused.

Not promised: that a holder which lost its lease does nothing any more. A paused process may wake up and
rename what it had planned; the protocol makes this harmless.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from gobblin_assets.errors import FencedError
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.state import DatasetId, LaneId, RunId

# With a heartbeat in each quarter of the lease, two may fail before work stops at two thirds.
HEARTBEATS_PER_LEASE: Final = 4
LOCAL_LIMIT_FRACTION: Final = 2 / 3
_STOP_WAIT_S: Final = 10.0

RAN_OUT: Final = "its process died: the lease ran out"
"""The error of a run that never reported its end."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One lane held under ``fence``. ``lane`` None: lane 0."""

    dataset_id: DatasetId
    fence: int
    lane: LaneId | None = None

    @property
    def lane_id(self) -> LaneId:
        return self.dataset_id if self.lane is None else self.lane

    def __str__(self) -> str:
        return f"dataset {self.dataset_id}" if self.lane is None else f"lane {self.lane} of dataset {self.dataset_id}"


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of leases: text for people (host and process), and the run of the leases."""

    owner: str
    run_id: RunId
    dagster_run_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaseStatus:
    """A lease as the database sees it now. ``ends_in_s``: unless its holder renews it; None where nobody holds it."""

    lane_id: LaneId
    fence: int
    is_live: bool
    owner: str | None
    run_id: RunId | None
    dagster_run_id: str | None
    ends_in_s: float | None = field(default=None, compare=False)

    def describe_holder(self) -> str:
        """Who holds the lease, and until when, for a person."""
        run = "" if self.run_id is None else f" (run {self.run_id})"
        ends = "" if self.ends_in_s is None else f", whose lease ends in {self.ends_in_s:.0f} s unless it is renewed"
        return f"{self.owner}{run}{ends}"


class LeaseStore(Protocol):
    """Implemented by ``state.postgres``; the fake of the simulated world passes the same contract suite."""

    def take(self, dataset_ids: Sequence[DatasetId], holder: Holder, *, ttl_s: float) -> list[Lease]:
        """Try to take datasets as a whole, in short transactions, without waiting.

        Returns a lease of lane 0 of each whose lanes were all free or had run out; the fences of the other lanes were
        raised. A RUNNING run that let a lease run out and holds no live lease becomes FAILED, with the error
        ``RAN_OUT``. If that run wakes up after all, its own end replaces this.
        """
        ...

    def take_lanes(self, lane_ids: Sequence[LaneId], holder: Holder, *, ttl_s: float) -> list[Lease]:
        """The same for single lanes; a lane of a dataset that somebody holds as a whole is not free."""
        ...

    def renew(self, leases: Iterable[Lease], *, ttl_s: float) -> frozenset[LaneId]:
        """Extend the leases that are still held under their fence, in one statement; return their lanes."""
        ...

    def raise_fence(self, lane_id: LaneId, *, floor: int) -> bool:
        """Raise the fence to at least ``floor`` while nobody holds the lane; False, and no change, if it is held."""
        ...

    def release(self, leases: Iterable[Lease]) -> None:
        """End the leases that are still held. The fence stays: it never goes back."""
        ...

    def end_dead_run(self, run_id: RunId, error: str) -> None:
        """End the leases of a run whose process is known to be dead, raise their fences, and end the run as FAILED.

        What lives on of the process, such as its JVM, publishes under none of these fences. Only for whoever knows, as
        a parent knows of its child: everybody else waits until the leases run out.
        """
        ...

    def get_status(self, lane_id: LaneId) -> LeaseStatus: ...

    def find_holder(self, dataset_id: DatasetId) -> LeaseStatus:
        """The status of a lane of the dataset that is held now; if none is, that of lane 0."""
        ...

    def list_live(self, lane_ids: Sequence[LaneId]) -> frozenset[LaneId]:
        """The lanes among these that are held now, by one statement."""
        ...


class LeaseKeeper:
    """Renews leases from a thread of its own, and says when work must stop. ``also`` is called with each heartbeat.

    Call ``require before each new piece of work. After ``stop`` no lease is renewed any more.
    """

    def __init__(
        self,
        store: LeaseStore,
        clock: Clock,
        *,
        ttl_s: float,
        say: Callable[[str], None],
        also: Callable[[], object] | None = None,
    ) -> None:
        self._also = also
        self._store = store
        self._clock = clock
        self._ttl_s = ttl_s
        self._say = say
        self._lock = threading.Lock()
        self._held: dict[LaneId, Lease] = {}
        self._stop_at: dict[LaneId, float] = {}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, dataset_ids: Sequence[DatasetId], holder: Holder) -> list[Lease]:
        """Take the free datasets as a whole, and keep their leases alive from now on."""
        # Read before the database grants: the local limit must never outlive the real one.
        asked_at = self._clock.monotonic()
        return self._keep(self._store.take(dataset_ids, holder, ttl_s=self._ttl_s), asked_at)

    def take_lanes(self, lane_ids: Sequence[LaneId], holder: Holder) -> list[Lease]:
        """Take the free lanes, and keep their leases alive from now on."""
        asked_at = self._clock.monotonic()
        return self._keep(self._store.take_lanes(lane_ids, holder, ttl_s=self._ttl_s), asked_at)

    def _keep(self, leases: list[Lease], asked_at: float) -> list[Lease]:
        with self._lock:
            for lease in leases:
                self._held[lease.lane_id] = lease
                self._stop_at[lease.lane_id] = asked_at + self._ttl_s * LOCAL_LIMIT_FRACTION
        return leases

    def start(self) -> None:
        """Begin the heartbeats."""
        self._thread = threading.Thread(target=self._beat, name="gobblin-lease-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the heartbeats and release what is still held."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=_STOP_WAIT_S)
        with self._lock:
            leases = list(self._held.values())
            self._held.clear()
        try:
            self._store.release(leases)
        except Exception as error:  # noqa: BLE001  an end is no place to fail
            # The leases run out by themselves; the next runner only waits a little longer.
            self._say(f"leases could not be released and will run out: {error}")

    def release(self, leases: Iterable[Lease]) -> None:
        """Give some leases back before the end of the run."""
        given = list(leases)
        with self._lock:
            for lease in given:
                self._held.pop(lease.lane_id, None)
        self._store.release(given)

    def require(self, lease: Lease) -> None:
        """Return if new work may start under this lease; FencedError otherwise."""
        with self._lock:
            held = self._held.get(lease.lane_id)
            stop_at = self._stop_at.get(lease.lane_id, 0.0)
        if held != lease:
            raise FencedError("the lease of this dataset was lost", fence=lease.fence)
        if self._clock.monotonic() >= stop_at:
            raise FencedError(
                "the lease of this dataset could not be renewed in time",
                hint="The database was out of reach; the next run goes on from the log.",
                fence=lease.fence,
            )

    def is_lost(self, lease: Lease) -> bool:
        """Whether it is known that this lease is not ours any more. One that could not be renewed may still be."""
        with self._lock:
            return self._held.get(lease.lane_id) != lease

    def beat(self) -> None:
        """Renew once; the thread calls this, and so does the simulated world."""
        with self._lock:
            leases = list(self._held.values())
        if not leases:
            return
        asked_at = self._clock.monotonic()
        survivors = self._store.renew(leases, ttl_s=self._ttl_s)
        with self._lock:
            for lease in leases:
                if lease.lane_id in survivors:
                    self._stop_at[lease.lane_id] = asked_at + self._ttl_s * LOCAL_LIMIT_FRACTION
                elif self._held.get(lease.lane_id) == lease:
                    del self._held[lease.lane_id]
                    self._say(f"lost the lease of {lease}: its work stops here")

    def _beat(self) -> None:
        while not self._stopping.wait(self._ttl_s / HEARTBEATS_PER_LEASE):
            try:
                self.beat()
                if self._also is not None:
                    self._also()
            except Exception as error:  # noqa: BLE001  without heartbeats all leases would run out, without a word
                self._say(f"heartbeat failed, will try again: {error}")
