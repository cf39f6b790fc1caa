"""``SimLaneStore(db)``: the port ``LaneStore`` over a ``SimDatabase``."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gobblin_assets.commit.lanes import DatasetLanes, LaneState
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.state import DatasetId, KeyId, LaneId
from gobblin_assets.state.leases import Lease
from tests.simulation.database import ConstraintError, Guard, SimDatabase
from tests.simulation.log_guards import is_live, require_fence
from tests.simulation.rows import KeyRow, LaneRow, LeaseRow


class SimLaneStore:
    def __init__(self, db: SimDatabase) -> None:
        self._db = db

    def load(self, *dataset_ids: DatasetId) -> Mapping[DatasetId, DatasetLanes]:
        db = self._db
        return {
            dataset_id: DatasetLanes(
                dataset_id,
                db.datasets[dataset_id].lane_count,
                tuple(self._state_of(row) for row in _lanes_of(db, dataset_id)),
            )
            for dataset_id in dataset_ids
            if dataset_id in db.datasets
        }

    def _state_of(self, row: LaneRow) -> LaneState:
        db, lease = self._db, self._db.leases[row.lane_id]
        vnodes = {key.name: key.watermark for key in _vnodes_of(db, row.dataset_id) if key.lane_id == row.lane_id}
        return LaneState(row.lane_id, row.number, row.version, is_live(db, lease), lease.owner, vnodes)

    def spread(self, dataset_id: DatasetId, count: int) -> None:
        with self._db.transaction() as db:
            if dataset_id not in db.datasets:
                raise RejectedError(
                    f"dataset {dataset_id} is not registered", field="dataset", hint="Run its sink once."
                )
            if count < 1:
                raise ConstraintError("a dataset has lane 0")
            db.datasets.put(dataset_id, replace(db.datasets[dataset_id], lane_count=count))
            present = _lanes_of(db, dataset_id)
            fence = max(db.leases[row.lane_id].fence for row in present)
            for number in range(len(present), count):
                lane_id = next_lane_id(db)
                db.lanes.put(lane_id, LaneRow(lane_id, dataset_id, number, tidied_at=db.now_s))
                db.leases.put(lane_id, LeaseRow(lane_id, fence))

    def place(self, lease: Lease, vnodes: Sequence[str]) -> frozenset[str]:
        with self._db.transaction() as db:
            require_fence(db, lease.lane_id, lease.fence, Guard.PLACE_CHECKS_FENCE)
            placed = {key.name for key in _vnodes_of(db, lease.dataset_id)}
            for name in sorted(set(vnodes) - placed):
                key_id = KeyId(len(db.keys) + 1)
                db.keys.put(key_id, KeyRow(key_id, lease.dataset_id, name, "", lease.lane_id))
            return _list_placed(db, lease.dataset_id, lease.lane_id, vnodes)

    def move(self, lease: Lease, number: int, vnodes: Sequence[str]) -> frozenset[str]:
        with self._db.transaction() as db:
            require_fence(db, lease.lane_id, lease.fence, Guard.MOVE_CHECKS_FENCE)
            lanes = {row.number: row.lane_id for row in _lanes_of(db, lease.dataset_id)}
            if number not in lanes:
                what = f"dataset {lease.dataset_id} has no lane {number}"
                raise RejectedError(what, field="lane", hint="Scale it first.")
            for key in _vnodes_of(db, lease.dataset_id):
                is_free = not _is_moved_by_open(db, key) or not db.holds(Guard.MOVE_WAITS_FOR_OPEN)
                if key.name in vnodes and key.lane_id == lease.lane_id and is_free:
                    db.keys.put(key.key_id, replace(key, lane_id=lanes[number]))
            return _list_placed(db, lease.dataset_id, lanes[number], vnodes)


def next_lane_id(db: SimDatabase) -> LaneId:
    """Ids of lanes and of datasets are of one series, since a dataset's id is also that of its lane 0."""
    return LaneId(max(db.lanes, default=0) + 1)


def _lanes_of(db: SimDatabase, dataset_id: DatasetId) -> list[LaneRow]:
    return sorted((row for row in db.lanes.values() if row.dataset_id == dataset_id), key=lambda row: row.number)


def _vnodes_of(db: SimDatabase, dataset_id: DatasetId) -> list[KeyRow]:
    return [key for key in db.keys.values() if key.dataset_id == dataset_id and key.partition == ""]


def _list_placed(db: SimDatabase, dataset_id: DatasetId, lane_id: LaneId, vnodes: Sequence[str]) -> frozenset[str]:
    keys = _vnodes_of(db, dataset_id)
    return frozenset(key.name for key in keys if key.lane_id == lane_id and key.name in vnodes)


def _is_moved_by_open(db: SimDatabase, key: KeyRow) -> bool:
    moves = (db.sequences[move.sequence_id] for move in db.moves.values() if move.key_id == key.key_id)
    return any(sequence.lane_id == key.lane_id and sequence.state.is_open for sequence in moves)
