"""``LeaseStore`` in Postgres, by the database's clock."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from sqlalchemy import Connection, Engine, text

from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import RejectedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.state import DatasetId
from gobblin_assets.state.leases import RAN_OUT, Holder, Lease, LeaseStatus

# Leases that others hold are not even locked: their heartbeats would wait for the same locks as this taker.
_LOCK_LEASES = text("""
    SELECT dataset_id, fence, owner, run_id, (expires_at > clock_timestamp()) IS TRUE AS is_live
      FROM gobblin.lease
     WHERE dataset_id = ANY (CAST(:dataset_ids AS bigint[]))
       AND ((expires_at > clock_timestamp()) IS NOT TRUE OR (owner = :owner AND run_id = :run_id))
     ORDER BY dataset_id
       FOR UPDATE
""")

_TAKE = text("""
    UPDATE gobblin.lease
       SET fence = fence + 1, owner = :owner, run_id = :run_id, dagster_run_id = :dagster_run_id,
           taken_at = clock_timestamp(), expires_at = clock_timestamp() + make_interval(secs => :ttl_s)
     WHERE dataset_id = ANY (CAST(:dataset_ids AS bigint[]))
 RETURNING dataset_id, fence
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
    SELECT l.dataset_id FROM gobblin.lease l
      JOIN unnest(CAST(:dataset_ids AS bigint[]), CAST(:fences AS bigint[])) AS held (dataset_id, fence)
           ON l.dataset_id = held.dataset_id AND l.fence = held.fence
     ORDER BY l.dataset_id
       FOR NO KEY UPDATE OF l
"""

_RENEW = text(f"""
    WITH held AS ({_HELD})
    UPDATE gobblin.lease l
       SET expires_at = clock_timestamp() + make_interval(secs => :ttl_s)
      FROM held
     WHERE l.dataset_id = held.dataset_id AND l.owner IS NOT NULL
 RETURNING l.dataset_id
""")

_RELEASE = text(f"""
    WITH held AS ({_HELD})
    UPDATE gobblin.lease l
       SET owner = NULL, expires_at = NULL
      FROM held
     WHERE l.dataset_id = held.dataset_id
""")

_FIND_UNREGISTERED = text("""
    SELECT given FROM unnest(CAST(:dataset_ids AS bigint[])) AS given
     WHERE NOT EXISTS (SELECT FROM gobblin.lease l WHERE l.dataset_id = given)
     ORDER BY given
     LIMIT 1
""")

_TAKEN_AT_ONCE_MAX: Final = 100
"""As many as one step of the log takes together: see ``commit.batches``."""

# Locked as by a taker: a transition under way has read the fence, and reads it again in its last statement.
_RAISE_FENCE = text("""
    UPDATE gobblin.lease SET fence = greatest(fence, :floor)
     WHERE dataset_id = (
           SELECT dataset_id FROM gobblin.lease
            WHERE dataset_id = :dataset_id AND (expires_at > clock_timestamp()) IS NOT TRUE
              FOR UPDATE
       )
""")

_LEASE_STATUS = text("""
    SELECT fence, owner, run_id, dagster_run_id, (expires_at > clock_timestamp()) IS TRUE AS is_live,
           CAST(extract(epoch FROM expires_at - clock_timestamp()) AS double precision) AS ends_in_s
      FROM gobblin.lease
     WHERE dataset_id = :dataset_id
""")

_LIST_LIVE = text("""
    SELECT dataset_id FROM gobblin.lease
     WHERE dataset_id = ANY (CAST(:dataset_ids AS bigint[])) AND expires_at > clock_timestamp()
""")


class PostgresLeaseStore:
    """``LeaseStore`` over the table ``lease``.

    Taking locks the row FOR UPDATE, which conflicts with a guarded transition's FOR KEY SHARE. The heartbeat's
    FOR NO KEY UPDATE does not conflict with FOR KEY SHARE, so a heartbeat never waits for a long transition.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def take(self, dataset_ids: Sequence[DatasetId], holder: Holder, *, ttl_s: float) -> list[Lease]:
        leases: list[Lease] = []
        for start in range(0, len(dataset_ids), _TAKEN_AT_ONCE_MAX):
            some = dataset_ids[start : start + _TAKEN_AT_ONCE_MAX]
            leases += transact(
                self._engine,
                "take leases",
                partial(_take, dataset_ids=some, holder=holder, ttl_s=ttl_s),
                committed=Failpoint.LEASE_TAKEN,
            )
        return leases

    def renew(self, leases: Iterable[Lease], *, ttl_s: float) -> frozenset[DatasetId]:
        arguments = {**_lease_arrays(leases), "ttl_s": ttl_s}
        rows = transact(self._engine, "renew leases", lambda c: c.execute(_RENEW, arguments).scalars().all())
        return frozenset(DatasetId(row) for row in rows)

    def raise_fence(self, dataset_id: DatasetId, *, floor: int) -> bool:
        arguments = {"dataset_id": dataset_id, "floor": floor}
        return transact(self._engine, "raise fence", lambda c: c.execute(_RAISE_FENCE, arguments).rowcount) == 1

    def release(self, leases: Iterable[Lease]) -> None:
        arguments = _lease_arrays(leases)
        if arguments["dataset_ids"]:
            transact(self._engine, "release leases", lambda c: c.execute(_RELEASE, arguments).rowcount)

    def get_status(self, dataset_id: DatasetId) -> LeaseStatus:
        row = transact(
            self._engine,
            "read lease",
            lambda c: c.execute(_LEASE_STATUS, {"dataset_id": dataset_id}).one_or_none(),
        )
        if row is None:
            raise _not_registered(dataset_id)
        ends_in_s = row.ends_in_s if row.is_live else None
        return LeaseStatus(dataset_id, row.fence, row.is_live, row.owner, row.run_id, row.dagster_run_id, ends_in_s)

    def list_live(self, dataset_ids: Sequence[DatasetId]) -> frozenset[DatasetId]:
        arguments = {"dataset_ids": list(dataset_ids)}
        rows = transact(self._engine, "read leases", lambda c: c.execute(_LIST_LIVE, arguments).scalars().all())
        return frozenset(DatasetId(row) for row in rows)


def _take(connection: Connection, dataset_ids: Sequence[DatasetId], holder: Holder, ttl_s: float) -> list[Lease]:
    missing = connection.execute(_FIND_UNREGISTERED, {"dataset_ids": list(dataset_ids)}).scalar()
    if missing is not None:
        raise _not_registered(missing)
    ours = {"owner": holder.owner, "run_id": holder.run_id}
    rows = connection.execute(_LOCK_LEASES, {"dataset_ids": list(dataset_ids), **ours}).all()
    free = [row.dataset_id for row in rows if not row.is_live]
    arguments = {"dataset_ids": free, **ours, "dagster_run_id": holder.dagster_run_id, "ttl_s": ttl_s}
    fences = {row.dataset_id: row.fence for row in connection.execute(_TAKE, arguments)} if free else {}
    left = {row.run_id for row in rows if not row.is_live and row.owner is not None} - {holder.run_id}
    if left:
        connection.execute(_END_DEAD, {"run_ids": list(left), "error": RAN_OUT})
    # The lease is ours already if the acknowledgement of an earlier try was lost.
    fences |= {row.dataset_id: row.fence for row in rows if row.is_live}
    return [Lease(dataset_id, fences[dataset_id]) for dataset_id in dataset_ids if dataset_id in fences]


def _not_registered(dataset_id: int) -> RejectedError:
    return RejectedError(f"dataset {dataset_id} is not registered", field="dataset", hint="Run its job once.")


def _lease_arrays(leases: Iterable[Lease]) -> dict[str, list[int]]:
    held = list(leases)
    return {"dataset_ids": [lease.dataset_id for lease in held], "fences": [lease.fence for lease in held]}
