"""``SimLeaseStore(db)``: the port ``LeaseStore`` over a ``SimDatabase``, whose clock alone decides about leases."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.state import DatasetId, LaneId, RunId, WorkingState
from gobblin_assets.state.leases import RAN_OUT, Holder, Lease, LeaseStatus
from tests.simulation.database import Guard, SimDatabase
from tests.simulation.log_guards import is_live
from tests.simulation.rows import LeaseRow


class SimLeaseStore:
    def __init__(self, db: SimDatabase) -> None:
        self._db = db

    def take(self, dataset_ids: Sequence[DatasetId], holder: Holder, *, ttl_s: float) -> list[Lease]:
        with self._db.transaction() as db:
            found = [_take_whole(db, dataset_id, holder, ttl_s) for dataset_id in dataset_ids]
        return [lease for lease in found if lease is not None]

    def take_lanes(self, lane_ids: Sequence[LaneId], holder: Holder, *, ttl_s: float) -> list[Lease]:
        with self._db.transaction() as db:
            found = [_take_lane(db, lane_id, holder, ttl_s) for lane_id in lane_ids]
        return [lease for lease in found if lease is not None]

    def renew(self, leases: Iterable[Lease], *, ttl_s: float) -> frozenset[LaneId]:
        with self._db.transaction() as db:
            rows = _held(db, leases, Guard.RENEW_CHECKS_FENCE)
            held = [row for row in rows if row.owner is not None]
            for row in held:
                db.leases.put(row.lane_id, replace(row, expires_at=db.now_s + ttl_s))
        return frozenset(row.lane_id for row in held)

    def raise_fence(self, lane_id: LaneId, *, floor: int) -> bool:
        with self._db.transaction() as db:
            row = db.leases.get(lane_id)
            if row is None or (is_live(db, row) and db.holds(Guard.RAISE_LEAVES_HELD_ALONE)):
                return False
            db.leases.put(lane_id, replace(row, fence=max(row.fence, floor)))
        return True

    def release(self, leases: Iterable[Lease]) -> None:
        with self._db.transaction() as db:
            for row in _held(db, leases, Guard.RELEASE_CHECKS_FENCE):
                db.leases.put(row.lane_id, replace(row, owner=None, expires_at=None, is_whole=False))

    def end_dead_run(self, run_id: RunId, error: str) -> None:
        with self._db.transaction() as db:
            for row in [row for row in db.leases.values() if row.run_id == run_id and row.owner is not None]:
                free = replace(row, fence=row.fence + 1, owner=None, expires_at=None, is_whole=False)
                db.leases.put(row.lane_id, free)
            run = db.runs.get(run_id)
            if run is not None and run.state is WorkingState.RUNNING:
                db.runs.put(run_id, replace(run, state=WorkingState.FAILED, error=error, ended_at=db.now_s))

    def get_status(self, lane_id: LaneId) -> LeaseStatus:
        return self._status_of(_get_lease(self._db, lane_id))

    def find_holder(self, dataset_id: DatasetId) -> LeaseStatus:
        _get_lease(self._db, dataset_id)
        rows = _leases_of(self._db, dataset_id)
        return self._status_of(next((row for row in rows if is_live(self._db, row)), rows[0]))

    def list_live(self, lane_ids: Sequence[LaneId]) -> frozenset[LaneId]:
        with self._db.transaction() as db:
            rows = [db.leases[number] for number in lane_ids if number in db.leases]
            return frozenset(row.lane_id for row in rows if is_live(db, row))

    def _status_of(self, row: LeaseRow) -> LeaseStatus:
        live = is_live(self._db, row)
        ends_in_s = row.expires_at - self._db.now_s if live and row.expires_at is not None else None
        return LeaseStatus(row.lane_id, row.fence, live, row.owner, row.run_id, row.dagster_run_id, ends_in_s)


def _take_whole(db: SimDatabase, dataset_id: DatasetId, holder: Holder, ttl_s: float) -> Lease | None:
    first = _get_lease(db, dataset_id)
    if is_live(db, first):
        if _is_own(first, holder, is_whole=True) and db.holds(Guard.TAKE_KNOWS_ITS_OWN):
            return Lease(dataset_id, first.fence)
        if db.holds(Guard.TAKE_REFUSES_LIVE_LEASE):
            return None
    others = [row for row in _leases_of(db, dataset_id) if row.lane_id != dataset_id]
    if any(is_live(db, row) for row in others) and db.holds(Guard.TAKE_WHOLE_WAITS_FOR_LANES):
        return None
    for row in others:
        fence = row.fence + 1 if db.holds(Guard.TAKE_WHOLE_RAISES_ALL_FENCES) else row.fence
        db.leases.put(row.lane_id, replace(row, fence=fence, owner=None, expires_at=None, is_whole=False))
    taken = _take(db, first, holder, ttl_s, is_whole=True)
    for row in (first, *others):
        _end_dead(db, row, holder)
    return Lease(dataset_id, taken.fence)


def _take_lane(db: SimDatabase, lane_id: LaneId, holder: Holder, ttl_s: float) -> Lease | None:
    row = _get_lease(db, lane_id)
    dataset_id = db.lanes[lane_id].dataset_id
    whole = db.leases[dataset_id]
    if whole.is_whole and is_live(db, whole) and db.holds(Guard.TAKE_LANE_CHECKS_WHOLE):
        return None
    if whole.is_whole and not is_live(db, whole):
        db.leases.put(dataset_id, replace(whole, fence=whole.fence + 1, owner=None, expires_at=None, is_whole=False))
        _end_dead(db, whole, holder)
        row = _get_lease(db, lane_id)
    lane = None if lane_id == dataset_id else lane_id
    if is_live(db, row):
        if _is_own(row, holder, is_whole=False) and db.holds(Guard.TAKE_KNOWS_ITS_OWN):
            return Lease(dataset_id, row.fence, lane)
        if db.holds(Guard.TAKE_REFUSES_LIVE_LEASE):
            return None
    taken = _take(db, row, holder, ttl_s, is_whole=False)
    _end_dead(db, row, holder)
    return Lease(dataset_id, taken.fence, lane)


def _take(db: SimDatabase, row: LeaseRow, holder: Holder, ttl_s: float, *, is_whole: bool) -> LeaseRow:
    taken = LeaseRow(
        lane_id=row.lane_id,
        # The first fence is always raised: a fence of 0 means that no process ever took the lane.
        fence=row.fence + 1 if db.holds(Guard.TAKE_RAISES_FENCE) else max(row.fence, 1),
        owner=holder.owner,
        run_id=holder.run_id,
        dagster_run_id=holder.dagster_run_id,
        expires_at=db.now_s + ttl_s,
        is_whole=is_whole,
    )
    db.leases.put(row.lane_id, taken)
    return taken


def _is_own(row: LeaseRow, holder: Holder, *, is_whole: bool) -> bool:
    return (row.run_id, row.owner, row.is_whole) == (holder.run_id, holder.owner, is_whole)


def _end_dead(db: SimDatabase, before: LeaseRow, holder: Holder) -> None:
    """End the run that let this lease run out."""
    run_id: RunId | None = before.run_id
    if before.owner is None or run_id is None or run_id == holder.run_id:
        return
    run = db.runs.get(run_id)
    held = [lease for lease in db.leases.values() if lease.run_id == run_id]
    if run is not None and run.state is WorkingState.RUNNING and not any(is_live(db, lease) for lease in held):
        db.runs.put(run_id, replace(run, state=WorkingState.FAILED, error=RAN_OUT, ended_at=db.now_s))


def _leases_of(db: SimDatabase, dataset_id: DatasetId) -> list[LeaseRow]:
    """By the numbers of the lanes."""
    lanes = [lane for lane in db.lanes.values() if lane.dataset_id == dataset_id]
    return [db.leases[lane.lane_id] for lane in sorted(lanes, key=lambda lane: lane.number)]


def _get_lease(db: SimDatabase, lane_id: LaneId) -> LeaseRow:
    row = db.leases.get(lane_id)
    if row is None:
        raise RejectedError(f"dataset {lane_id} is not registered", field="dataset", hint="Run its job once.")
    return row


def _held(db: SimDatabase, leases: Iterable[Lease], guard: Guard) -> list[LeaseRow]:
    rows = [(lease, db.leases[lease.lane_id]) for lease in leases if lease.lane_id in db.leases]
    return [row for lease, row in rows if row.fence == lease.fence or not db.holds(guard)]
