"""``LaneStore`` in Postgres."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, Row, text

from gobblin_assets.commit.lanes import DatasetLanes, LaneState
from gobblin_assets.commit.postgres.guards import hold_fences
from gobblin_assets.db.statement_texts import IS_OPEN
from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import RejectedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.state import DatasetId, LaneId
from gobblin_assets.model.watermark import parse_watermark
from gobblin_assets.state.leases import Lease

_LANES = text("""
    SELECT n.lane_id, n.dataset_id, n.number, n.version, d.lane_count, l.owner,
           (l.expires_at > clock_timestamp()) IS TRUE AS is_live
      FROM gobblin.lane n JOIN gobblin.dataset d USING (dataset_id) JOIN gobblin.lease l USING (lane_id)
     WHERE n.dataset_id = ANY (CAST(:dataset_ids AS bigint[]))
     ORDER BY n.dataset_id, n.number
""")

_VNODES = text("""
    SELECT lane_id, name, watermark FROM gobblin.watermark_key
     WHERE dataset_id = ANY (CAST(:dataset_ids AS bigint[])) AND partition = ''
     ORDER BY key_id
""")

_SET_COUNT = text("UPDATE gobblin.dataset SET lane_count = :count WHERE dataset_id = :dataset_id")

# The dataset's row is locked: two processes never make the same lane.
_MAKE_LANES = text("""
    INSERT INTO gobblin.lane (lane_id, dataset_id, number)
    SELECT nextval(pg_get_serial_sequence('gobblin.dataset', 'dataset_id')), :dataset_id, number
      FROM generate_series(1, :count - 1) AS number
     WHERE NOT EXISTS (SELECT FROM gobblin.lane n WHERE n.dataset_id = :dataset_id AND n.number = number.number)
     ORDER BY number
""")

# A fence that a lost history of the dataset used is never used again.
_MAKE_LEASES = text("""
    INSERT INTO gobblin.lease (lane_id, fence)
    SELECT n.lane_id, (SELECT max(l.fence) FROM gobblin.lane o JOIN gobblin.lease l USING (lane_id)
                        WHERE o.dataset_id = :dataset_id)
      FROM gobblin.lane n
     WHERE n.dataset_id = :dataset_id
        ON CONFLICT (lane_id) DO NOTHING
""")

_PLACE = text("""
    INSERT INTO gobblin.watermark_key (dataset_id, name, partition, lane_id)
    SELECT :dataset_id, name, '', :lane_id FROM unnest(CAST(:vnodes AS text[])) AS name
     ORDER BY name
        ON CONFLICT (dataset_id, name, partition) DO NOTHING
""")

_LIST_PLACED = text("""
    SELECT name FROM gobblin.watermark_key
     WHERE lane_id = :lane_id AND partition = '' AND name = ANY (CAST(:vnodes AS text[]))
""")

_FIND_LANE = text("SELECT lane_id FROM gobblin.lane WHERE dataset_id = :dataset_id AND number = :number")

_LOCK_VNODES = text("""
    SELECT key_id FROM gobblin.watermark_key
     WHERE dataset_id = :dataset_id AND partition = '' AND name = ANY (CAST(:vnodes AS text[]))
     ORDER BY key_id
       FOR UPDATE
""")

# The lane's lease is held, and its vnodes are locked: no sequence of the lane is sealed over them meanwhile.
_MOVE = text(f"""
    UPDATE gobblin.watermark_key k SET lane_id = :target
     WHERE k.dataset_id = :dataset_id AND k.partition = '' AND k.name = ANY (CAST(:vnodes AS text[]))
       AND k.lane_id = :lane_id
       AND NOT EXISTS (SELECT FROM gobblin.planned_move m JOIN gobblin.commit_sequence s USING (sequence_id)
                        WHERE m.key_id = k.key_id AND s.lane_id = :lane_id AND s.state {IS_OPEN})
""")


class PostgresLaneStore:
    """``LaneStore`` over one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def load(self, *dataset_ids: DatasetId) -> Mapping[DatasetId, DatasetLanes]:
        return transact(self._engine, "load lanes", lambda c: _load(c, dataset_ids))

    def spread(self, dataset_id: DatasetId, count: int) -> None:
        transact(self._engine, "spread lanes", lambda c: _spread(c, dataset_id, count))

    def place(self, lease: Lease, vnodes: Sequence[str]) -> frozenset[str]:
        return transact(self._engine, "place vnodes", lambda c: _place(c, lease, vnodes))

    def move(self, lease: Lease, number: int, vnodes: Sequence[str]) -> frozenset[str]:
        return transact(
            self._engine,
            "move vnodes",
            lambda c: _move(c, lease, number, vnodes),
            committed=Failpoint.VNODES_MOVED,
        )


def _load(connection: Connection, dataset_ids: Sequence[DatasetId]) -> dict[DatasetId, DatasetLanes]:
    asked = {"dataset_ids": list(dataset_ids)}
    vnodes: dict[int, dict[str, Any]] = defaultdict(dict)
    for row in connection.execute(_VNODES, asked):
        vnodes[row.lane_id][row.name] = None if row.watermark is None else parse_watermark(row.watermark)
    rows: dict[DatasetId, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(_LANES, asked):
        rows[DatasetId(row.dataset_id)].append(row)
    return {
        dataset_id: DatasetLanes(
            dataset_id,
            found[0].lane_count,
            tuple(
                LaneState(
                    LaneId(row.lane_id), row.number, row.version, row.is_live, row.owner, vnodes.get(row.lane_id, {})
                )
                for row in found
            ),
        )
        for dataset_id, found in rows.items()
    }


def _spread(connection: Connection, dataset_id: DatasetId, count: int) -> None:
    asked = {"dataset_id": dataset_id, "count": count}
    if connection.execute(_SET_COUNT, asked).rowcount != 1:
        raise RejectedError(f"dataset {dataset_id} is not registered", field="dataset", hint="Run its sink once.")
    connection.execute(_MAKE_LANES, asked)
    connection.execute(_MAKE_LEASES, asked)


def _place(connection: Connection, lease: Lease, vnodes: Sequence[str]) -> frozenset[str]:
    hold_fences(connection, [(lease.lane_id, lease.fence)])
    asked = {"dataset_id": lease.dataset_id, "lane_id": lease.lane_id, "vnodes": list(vnodes)}
    connection.execute(_PLACE, asked)
    return frozenset(connection.execute(_LIST_PLACED, asked).scalars())


def _move(connection: Connection, lease: Lease, number: int, vnodes: Sequence[str]) -> frozenset[str]:
    hold_fences(connection, [(lease.lane_id, lease.fence)])
    asked = {"dataset_id": lease.dataset_id, "lane_id": lease.lane_id, "number": number, "vnodes": list(vnodes)}
    target = connection.execute(_FIND_LANE, asked).scalar_one_or_none()
    if target is None:
        raise RejectedError(f"dataset {lease.dataset_id} has no lane {number}", field="lane", hint="Scale it first.")
    connection.execute(_LOCK_VNODES, asked)
    connection.execute(_MOVE, {**asked, "target": target})
    return frozenset(connection.execute(_LIST_PLACED, {**asked, "lane_id": target}).scalars())
