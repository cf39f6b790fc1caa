"""``LeaseStore`` in Postgres, by the database's clock."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, Row, TextClause, text

from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import RejectedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.state import DatasetId, LaneId, RunId
from gobblin_assets.state.leases import RAN_OUT, Holder, Lease, LeaseStatus

_Id = TypeVar("_Id", bound=LaneId)
_Take = Callable[..., list[Lease]]

# All lanes of the datasets: who takes a dataset as a whole must not meet a taker of one of its lanes. Leases that
# others hold are not even locked: their heartbeats would wait for the same locks as this taker.
_LOCK_WHOLE = text("""
    SELECT l.lane_id, n.dataset_id, l.fence, l.owner, l.run_id, l.is_whole,
           (l.expires_at > clock_timestamp()) IS TRUE AS is_live
      FROM gobblin.lane n JOIN gobblin.lease l USING (lane_id)
     WHERE n.dataset_id = ANY (CAST(:dataset_ids AS bigint[]))
       AND ((l.expires_at > clock_timestamp()) IS NOT TRUE OR (l.owner = :owner AND l.run_id = :run_id))
     ORDER BY l.lane_id
       FOR UPDATE OF l
""")

# By a statement of its own, which sees what was committed while the locks were waited for.
_COUNT_LANES = text("""
    SELECT dataset_id, count(*) AS lanes FROM gobblin.lane
     WHERE dataset_id = ANY (CAST(:dataset_ids AS bigint[])) GROUP BY dataset_id
""")

_TAKE_WHOLE = text("""
    UPDATE gobblin.lease l
       SET fence = l.fence + 1, is_whole = n.number = 0,
           owner = CASE n.number WHEN 0 THEN :owner END,
           run_id = CASE n.number WHEN 0 THEN CAST(:run_id AS uuid) ELSE l.run_id END,
           dagster_run_id = CASE n.number WHEN 0 THEN :dagster_run_id ELSE l.dagster_run_id END,
           taken_at = CASE n.number WHEN 0 THEN clock_timestamp() ELSE l.taken_at END,
           expires_at = CASE n.number WHEN 0 THEN clock_timestamp() + make_interval(secs => :ttl_s) END
      FROM gobblin.lane n
     WHERE l.lane_id = n.lane_id AND n.dataset_id = ANY (CAST(:dataset_ids AS bigint[]))
 RETURNING l.lane_id, l.fence
""")

# Lane 0 first, and shared, so that takers of different lanes do not wait for each other: a taker of the whole dataset
# has locked it, or waits for it. A lane 0 that is asked for itself is locked below, before the others, at once: two
# takers that share it could not both go on to lock it.
_SHARE_WHOLE = text("""
    SELECT lane_id FROM gobblin.lease
     WHERE lane_id IN (SELECT dataset_id FROM gobblin.lane WHERE lane_id = ANY (CAST(:lane_ids AS bigint[])))
       AND lane_id <> ALL (CAST(:lane_ids AS bigint[]))
     ORDER BY lane_id
       FOR KEY SHARE
""")

_LOCK_LANES = text("""
    SELECT l.lane_id, n.dataset_id, l.fence, l.owner, l.run_id,
           (l.expires_at > clock_timestamp()) IS TRUE AS is_live
      FROM gobblin.lane n JOIN gobblin.lease l USING (lane_id)
     WHERE n.lane_id = ANY (CAST(:lane_ids AS bigint[]))
       AND ((l.expires_at > clock_timestamp()) IS NOT TRUE
            OR (l.owner = :owner AND l.run_id = :run_id AND NOT l.is_whole))
     ORDER BY l.lane_id
       FOR UPDATE OF l
""")

# Who has let the whole dataset run out must learn it from lane 0's fence, as from any lane's that is taken.
_LOCK_LAPSED = text("""
    SELECT lane_id, owner, run_id, false AS is_live FROM gobblin.lease
     WHERE lane_id IN (SELECT dataset_id FROM gobblin.lane WHERE lane_id = ANY (CAST(:lane_ids AS bigint[])))
       AND is_whole AND (expires_at > clock_timestamp()) IS NOT TRUE
     ORDER BY lane_id
       FOR UPDATE
""")

_END_LAPSED = text("""
    UPDATE gobblin.lease SET fence = fence + 1, is_whole = false, owner = NULL, expires_at = NULL
     WHERE lane_id = ANY (CAST(:lane_ids AS bigint[]))
""")

# By a statement of its own, after the locks: a statement that waits for a taker of the whole still sees lane 0 as it
# was before.
_LIST_WHOLE = text("""
    SELECT w.lane_id FROM gobblin.lease w
     WHERE w.lane_id = ANY (CAST(:dataset_ids AS bigint[])) AND w.is_whole
""")

_TAKE_LANES = text("""
    UPDATE gobblin.lease
       SET fence = fence + 1, owner = :owner, run_id = :run_id, dagster_run_id = :dagster_run_id, is_whole = false,
           taken_at = clock_timestamp(), expires_at = clock_timestamp() + make_interval(secs => :ttl_s)
     WHERE lane_id = ANY (CAST(:lane_ids AS bigint[]))
 RETURNING lane_id, fence
""")

# In one order: two takers may find leases of the same runs.
_END_DEAD = text("""
    WITH dead AS (
        SELECT r.run_id FROM gobblin.run r
         WHERE r.run_id = ANY (CAST(:run_ids AS uuid[])) AND r.state = 'RUNNING'
           AND NOT EXISTS (
                   SELECT FROM gobblin.lease l WHERE l.run_id = r.run_id AND l.expires_at > clock_timestamp()
               )
         ORDER BY r.run_id
           FOR NO KEY UPDATE OF r
    )
    UPDATE gobblin.run r
       SET state = 'FAILED', error = :error, ended_at = clock_timestamp()
      FROM dead
     WHERE r.run_id = dead.run_id
""")

# In the order in which takers lock: otherwise a heartbeat and a taker of many leases would wait for each other.
_HELD: Final = """
    SELECT l.lane_id FROM gobblin.lease l
      JOIN unnest(CAST(:lane_ids AS bigint[]), CAST(:fences AS bigint[])) AS held (lane_id, fence)
           ON l.lane_id = held.lane_id AND l.fence = held.fence
     ORDER BY l.lane_id
       FOR NO KEY UPDATE OF l
"""

_RENEW = text(f"""
    WITH held AS ({_HELD})
    UPDATE gobblin.lease l
       SET expires_at = clock_timestamp() + make_interval(secs => :ttl_s)
      FROM held
     WHERE l.lane_id = held.lane_id AND l.owner IS NOT NULL
 RETURNING l.lane_id
""")

_RELEASE = text(f"""
    WITH held AS ({_HELD})
    UPDATE gobblin.lease l
       SET owner = NULL, expires_at = NULL, is_whole = false
      FROM held
     WHERE l.lane_id = held.lane_id
""")

_FIND_UNREGISTERED = text("""
    SELECT given FROM unnest(CAST(:lane_ids AS bigint[])) AS given
     WHERE NOT EXISTS (SELECT FROM gobblin.lease l WHERE l.lane_id = given)
     ORDER BY given
     LIMIT 1
""")

_TAKEN_AT_ONCE_MAX: Final = 100
"""As many as one step of the log takes together: see ``commit.batches``."""

# Locked as by a taker: a transition under way has read the fence, and reads it again in its last statement.
_RAISE_FENCE = text("""
    UPDATE gobblin.lease SET fence = greatest(fence, :floor)
     WHERE lane_id = (
           SELECT lane_id FROM gobblin.lease
            WHERE lane_id = :lane_id AND (expires_at > clock_timestamp()) IS NOT TRUE
              FOR UPDATE
       )
""")

# Locked as by a taker: a transition of the dead process that is under way ends first.
_END_LEASES_OF = text("""
    WITH held AS (
        SELECT lane_id FROM gobblin.lease WHERE run_id = :run_id AND owner IS NOT NULL ORDER BY lane_id FOR UPDATE
    )
    UPDATE gobblin.lease l SET fence = l.fence + 1, owner = NULL, expires_at = NULL, is_whole = false
      FROM held WHERE l.lane_id = held.lane_id
""")

_STATUS_COLUMNS: Final = """
    lane_id, fence, owner, run_id, dagster_run_id, (expires_at > clock_timestamp()) IS TRUE AS is_live,
    CAST(extract(epoch FROM expires_at - clock_timestamp()) AS double precision) AS ends_in_s
"""

_LEASE_STATUS = text(f"SELECT {_STATUS_COLUMNS} FROM gobblin.lease WHERE lane_id = :lane_id")

_FIND_HOLDER = text(f"""
    SELECT {_STATUS_COLUMNS} FROM gobblin.lane n JOIN gobblin.lease l USING (lane_id)
     WHERE n.dataset_id = :lane_id
     ORDER BY (expires_at > clock_timestamp()) IS TRUE DESC, n.number
     LIMIT 1
""")

_LIST_LIVE = text("""
    SELECT lane_id FROM gobblin.lease
     WHERE lane_id = ANY (CAST(:lane_ids AS bigint[])) AND expires_at > clock_timestamp()
""")


class PostgresLeaseStore:
    """``LeaseStore`` over the table ``lease``.

    Taking locks the row FOR UPDATE, which conflicts with a guarded transition's FOR KEY SHARE. The heartbeat's
    FOR NO KEY UPDATE does not conflict with FOR KEY SHARE, so a heartbeat never waits for a long transition.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def take(self, dataset_ids: Sequence[DatasetId], holder: Holder, *, ttl_s: float) -> list[Lease]:
        return self._take_all(_take_whole, dataset_ids, holder, ttl_s)

    def take_lanes(self, lane_ids: Sequence[LaneId], holder: Holder, *, ttl_s: float) -> list[Lease]:
        return self._take_all(_take_lanes, lane_ids, holder, ttl_s)

    def _take_all(self, take: _Take, ids: Sequence[_Id], holder: Holder, ttl_s: float) -> list[Lease]:
        leases: list[Lease] = []
        for start in range(0, len(ids), _TAKEN_AT_ONCE_MAX):
            some = ids[start : start + _TAKEN_AT_ONCE_MAX]
            leases += transact(
                self._engine,
                "take leases",
                partial(take, some=some, holder=holder, ttl_s=ttl_s),
                committed=Failpoint.LEASE_TAKEN,
            )
        return leases

    def renew(self, leases: Iterable[Lease], *, ttl_s: float) -> frozenset[LaneId]:
        arguments = {**_lease_arrays(leases), "ttl_s": ttl_s}
        rows = transact(self._engine, "renew leases", lambda c: c.execute(_RENEW, arguments).scalars().all())
        return frozenset(LaneId(row) for row in rows)

    def raise_fence(self, lane_id: LaneId, *, floor: int) -> bool:
        arguments = {"lane_id": lane_id, "floor": floor}
        return transact(self._engine, "raise fence", lambda c: c.execute(_RAISE_FENCE, arguments).rowcount) == 1

    def release(self, leases: Iterable[Lease]) -> None:
        arguments = _lease_arrays(leases)
        if arguments["lane_ids"]:
            transact(self._engine, "release leases", lambda c: c.execute(_RELEASE, arguments).rowcount)

    def end_dead_run(self, run_id: RunId, error: str) -> None:
        def body(connection: Connection) -> None:
            connection.execute(_END_LEASES_OF, {"run_id": run_id})
            connection.execute(_END_DEAD, {"run_ids": [run_id], "error": error})

        transact(self._engine, "end a dead run", body, committed=Failpoint.DEAD_RUN_ENDED)

    def get_status(self, lane_id: LaneId) -> LeaseStatus:
        return self._find_status(_LEASE_STATUS, lane_id)

    def find_holder(self, dataset_id: DatasetId) -> LeaseStatus:
        return self._find_status(_FIND_HOLDER, dataset_id)

    def _find_status(self, statement: TextClause, lane_id: LaneId) -> LeaseStatus:
        arguments = {"lane_id": lane_id}
        row = transact(self._engine, "read lease", lambda c: c.execute(statement, arguments).one_or_none())
        if row is None:
            raise _not_registered(lane_id)
        ends_in_s = row.ends_in_s if row.is_live else None
        return LeaseStatus(
            LaneId(row.lane_id), row.fence, row.is_live, row.owner, row.run_id, row.dagster_run_id, ends_in_s
        )

    def list_live(self, lane_ids: Sequence[LaneId]) -> frozenset[LaneId]:
        arguments = {"lane_ids": list(lane_ids)}
        rows = transact(self._engine, "read leases", lambda c: c.execute(_LIST_LIVE, arguments).scalars().all())
        return frozenset(LaneId(row) for row in rows)


def _take_whole(connection: Connection, some: Sequence[DatasetId], holder: Holder, ttl_s: float) -> list[Lease]:
    _require_registered(connection, some)
    asked, ours = {"dataset_ids": list(some)}, {"owner": holder.owner, "run_id": holder.run_id}
    rows = connection.execute(_LOCK_WHOLE, {**asked, **ours}).all()
    counts = {row.dataset_id: row.lanes for row in connection.execute(_COUNT_LANES, asked)}
    # The lease is ours already if the acknowledgement of an earlier try was lost.
    ready = {row.dataset_id: row.fence for row in rows if row.is_live and row.is_whole}
    locked = Counter(row.dataset_id for row in rows if not row.is_live)
    free = [dataset_id for dataset_id, count in locked.items() if count == counts[dataset_id]]
    arguments = {"dataset_ids": free, **ours, "dagster_run_id": holder.dagster_run_id, "ttl_s": ttl_s}
    ready |= {row.lane_id: row.fence for row in connection.execute(_TAKE_WHOLE, arguments)} if free else {}
    _end_dead(connection, [row for row in rows if row.dataset_id in free], holder)
    return [Lease(dataset_id, ready[dataset_id]) for dataset_id in some if dataset_id in ready]


def _take_lanes(connection: Connection, some: Sequence[LaneId], holder: Holder, ttl_s: float) -> list[Lease]:
    _require_registered(connection, some)
    asked, ours = {"lane_ids": list(some)}, {"owner": holder.owner, "run_id": holder.run_id}
    lapsed = connection.execute(_LOCK_LAPSED, asked).all()
    if lapsed:
        connection.execute(_END_LAPSED, {"lane_ids": [row.lane_id for row in lapsed]})
        _end_dead(connection, lapsed, holder)
    connection.execute(_SHARE_WHOLE, asked)
    locked = connection.execute(_LOCK_LANES, {**asked, **ours}).all()
    whole = set(connection.execute(_LIST_WHOLE, {"dataset_ids": [row.dataset_id for row in locked]}).scalars())
    rows = {row.lane_id: row for row in locked if row.dataset_id not in whole}
    free = [lane_id for lane_id, row in rows.items() if not row.is_live]
    arguments = {"lane_ids": free, **ours, "dagster_run_id": holder.dagster_run_id, "ttl_s": ttl_s}
    fences = {lane_id: row.fence for lane_id, row in rows.items()}
    fences |= {row.lane_id: row.fence for row in connection.execute(_TAKE_LANES, arguments)} if free else {}
    _end_dead(connection, [rows[lane_id] for lane_id in free], holder)
    return [_lease_of(rows[lane_id], fences[lane_id]) for lane_id in some if lane_id in rows]


def _end_dead(connection: Connection, rows: Iterable[Row[Any]], holder: Holder) -> None:
    """End the runs that let these leases run out."""
    left = {row.run_id for row in rows if not row.is_live and row.owner is not None} - {holder.run_id}
    if left:
        connection.execute(_END_DEAD, {"run_ids": list(left), "error": RAN_OUT})


def _lease_of(row: Row[Any], fence: int) -> Lease:
    dataset_id, lane_id = DatasetId(row.dataset_id), LaneId(row.lane_id)
    return Lease(dataset_id, fence, None if lane_id == dataset_id else lane_id)


def _require_registered(connection: Connection, lane_ids: Sequence[LaneId]) -> None:
    missing = connection.execute(_FIND_UNREGISTERED, {"lane_ids": list(lane_ids)}).scalar()
    if missing is not None:
        raise _not_registered(missing)


def _not_registered(lane_id: int) -> RejectedError:
    return RejectedError(f"dataset {lane_id} is not registered", field="dataset", hint="Run its job once.")


def _lease_arrays(leases: Iterable[Lease]) -> dict[str, list[int]]:
    held = list(leases)
    return {"lane_ids": [lease.lane_id for lease in held], "fences": [lease.fence for lease in held]}
