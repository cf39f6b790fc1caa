"""Leases, dataset states and history in Postgres. Every statement's clock is the database's."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import IntegrityError

from gobblin_assets.db.json_column import to_jsonb
from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.state import (
    DatasetId,
    DatasetState,
    JobState,
    KeyId,
    KeyState,
    RunId,
    WorkingState,
)
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.watermark import parse_watermark
from gobblin_assets.state.datasets import LapsedRun, RunDatasetRecord
from gobblin_assets.state.leases import Holder, Lease, LeaseStatus

_LOCK_LEASE = text("""
    SELECT fence, owner, run_id, (expires_at > clock_timestamp()) IS TRUE AS is_live
      FROM gobblin.lease
     WHERE dataset_id = :dataset_id
       FOR UPDATE
""")

_TAKE = text("""
    UPDATE gobblin.lease
       SET fence = fence + 1, owner = :owner, run_id = :run_id, dagster_run_id = :dagster_run_id,
           taken_at = clock_timestamp(), expires_at = clock_timestamp() + make_interval(secs => :ttl_s)
     WHERE dataset_id = :dataset_id
 RETURNING fence
""")

_RENEW = text("""
    UPDATE gobblin.lease l
       SET expires_at = clock_timestamp() + make_interval(secs => :ttl_s)
      FROM unnest(CAST(:dataset_ids AS bigint[]), CAST(:fences AS bigint[])) AS held (dataset_id, fence)
     WHERE l.dataset_id = held.dataset_id AND l.fence = held.fence AND l.owner IS NOT NULL
 RETURNING l.dataset_id
""")

_RELEASE = text("""
    UPDATE gobblin.lease l
       SET owner = NULL, expires_at = NULL
      FROM unnest(CAST(:dataset_ids AS bigint[]), CAST(:fences AS bigint[])) AS held (dataset_id, fence)
     WHERE l.dataset_id = held.dataset_id AND l.fence = held.fence
""")

# Locked as a taker does: a transition under way has read the fence, and reads it again in its last statement.
_RAISE_FENCE = text("""
    UPDATE gobblin.lease SET fence = greatest(fence, :floor)
     WHERE dataset_id = (
           SELECT dataset_id FROM gobblin.lease
            WHERE dataset_id = :dataset_id AND (expires_at > clock_timestamp()) IS NOT TRUE
              FOR UPDATE
       )
""")

_LEASE_STATUS = text("""
    SELECT fence, owner, run_id, dagster_run_id, (expires_at > clock_timestamp()) IS TRUE AS is_live
      FROM gobblin.lease
     WHERE dataset_id = :dataset_id
""")

_LIST_LIVE = text("""
    SELECT dataset_id FROM gobblin.lease
     WHERE dataset_id = ANY (CAST(:dataset_ids AS bigint[])) AND expires_at > clock_timestamp()
""")


class PostgresLeaseStore:
    """``LeaseStore`` over the table ``lease``.

    Taking locks the row FOR UPDATE, which is what a guarded transition's FOR KEY SHARE collides with; the
    heartbeat's plain UPDATE collides with neither, so that it never waits for a long transition.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def take(self, dataset_ids: Sequence[DatasetId], holder: Holder, *, ttl_s: float) -> list[Lease]:
        leases = []
        for dataset_id in dataset_ids:
            lease = transact(
                self._engine,
                "take lease",
                partial(_take_one, dataset_id=dataset_id, holder=holder, ttl_s=ttl_s),
                committed=Failpoint.LEASE_TAKEN,
            )
            if lease is not None:
                leases.append(lease)
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
            raise RejectedError(f"dataset {dataset_id} is not registered", field="dataset", hint="Run its job once.")
        return LeaseStatus(dataset_id, row.fence, row.is_live, row.owner, row.run_id, row.dagster_run_id)

    def list_live(self, dataset_ids: Sequence[DatasetId]) -> frozenset[DatasetId]:
        arguments = {"dataset_ids": list(dataset_ids)}
        rows = transact(self._engine, "read leases", lambda c: c.execute(_LIST_LIVE, arguments).scalars().all())
        return frozenset(DatasetId(row) for row in rows)


def _take_one(connection: Connection, dataset_id: DatasetId, holder: Holder, ttl_s: float) -> Lease | None:
    found = connection.execute(_LOCK_LEASE, {"dataset_id": dataset_id}).one_or_none()
    if found is None:
        raise RejectedError(f"dataset {dataset_id} is not registered", field="dataset", hint="Run its job once.")
    if found.is_live:
        # Ours already when the acknowledgement of an earlier try was lost.
        mine = found.run_id == holder.run_id and found.owner == holder.owner
        return Lease(dataset_id, found.fence) if mine else None
    arguments = {
        "dataset_id": dataset_id,
        "owner": holder.owner,
        "run_id": holder.run_id,
        "dagster_run_id": holder.dagster_run_id,
        "ttl_s": ttl_s,
    }
    return Lease(dataset_id, connection.execute(_TAKE, arguments).scalar_one())


def _lease_arrays(leases: Iterable[Lease]) -> dict[str, list[int]]:
    held = list(leases)
    return {"dataset_ids": [lease.dataset_id for lease in held], "fences": [lease.fence for lease in held]}


_REGISTER = text("""
    WITH named AS (SELECT DISTINCT unnest(CAST(:urns AS text[])) AS urn),
    made AS (
        INSERT INTO gobblin.dataset (job, urn)
        SELECT :job, urn FROM named ORDER BY urn
            ON CONFLICT (job, urn) DO NOTHING
     RETURNING dataset_id, urn
    )
    SELECT dataset_id, urn FROM made
     UNION
    SELECT d.dataset_id, d.urn FROM gobblin.dataset d JOIN named USING (urn) WHERE d.job = :job
""")

_REGISTER_LEASES = text("""
    INSERT INTO gobblin.lease (dataset_id)
    SELECT unnest(CAST(:dataset_ids AS bigint[]))
        ON CONFLICT (dataset_id) DO NOTHING
""")

_LOAD_DATASETS = text("""
    SELECT d.dataset_id, d.urn, d.version, d.source_columns, d.published_columns, d.source_facts,
           ARRAY(
               SELECT DISTINCT k.partition
                 FROM gobblin.watermark_key k
                 JOIN gobblin.ledger l USING (key_id)
                WHERE k.dataset_id = d.dataset_id AND l.active
           ) AS published
      FROM gobblin.dataset d
     WHERE d.job = :job AND d.urn = ANY (CAST(:urns AS text[]))
""")

_LOAD_KEYS = text("""
    SELECT key_id, dataset_id, name, partition, watermark
      FROM gobblin.watermark_key
     WHERE dataset_id = ANY (CAST(:dataset_ids AS bigint[]))
""")

_LIST_URNS = text("""
    SELECT job, urn FROM gobblin.dataset
     WHERE CAST(:job AS text) IS NULL OR job = :job
     ORDER BY job, urn
""")


class PostgresDatasetStore:
    """``DatasetStore`` over ``dataset`` and ``watermark_key``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def register(self, job: JobName, urns: Sequence[DatasetUrn]) -> Mapping[DatasetUrn, DatasetId]:
        def body(connection: Connection) -> dict[DatasetUrn, DatasetId]:
            arguments = {"job": job, "urns": list(urns)}
            rows = connection.execute(_REGISTER, arguments).all()
            if len(rows) < len(set(urns)):
                # Another process made some between the two halves of the statement; they are visible now.
                rows = connection.execute(_REGISTER, arguments).all()
            connection.execute(_REGISTER_LEASES, {"dataset_ids": [row.dataset_id for row in rows]})
            return {DatasetUrn(row.urn): DatasetId(row.dataset_id) for row in rows}

        return transact(self._engine, "register datasets", body)

    def load(self, job: JobName, urns: Sequence[DatasetUrn]) -> Mapping[DatasetUrn, DatasetState]:
        def body(connection: Connection) -> dict[DatasetUrn, DatasetState]:
            rows = connection.execute(_LOAD_DATASETS, {"job": job, "urns": list(urns)}).all()
            keys: dict[int, dict[tuple[str, str], KeyState]] = {row.dataset_id: {} for row in rows}
            for key in connection.execute(_LOAD_KEYS, {"dataset_ids": list(keys)}):
                watermark = None if key.watermark is None else parse_watermark(key.watermark)
                keys[key.dataset_id][key.name, key.partition] = KeyState(
                    KeyId(key.key_id), key.name, key.partition, watermark
                )
            return {
                DatasetUrn(row.urn): DatasetState(
                    dataset_id=DatasetId(row.dataset_id),
                    job=job,
                    urn=DatasetUrn(row.urn),
                    version=row.version,
                    keys=keys[row.dataset_id],
                    published=frozenset(row.published),
                    source_columns=_columns(row.source_columns),
                    published_columns=_columns(row.published_columns),
                    source_facts=row.source_facts or {},
                )
                for row in rows
            }

        return transact(self._engine, "load dataset states", body)

    def list_urns(self, job: JobName | None = None) -> Sequence[tuple[JobName, DatasetUrn]]:
        rows = transact(self._engine, "list datasets", lambda c: c.execute(_LIST_URNS, {"job": job}).all())
        return [(JobName(row.job), DatasetUrn(row.urn)) for row in rows]


def _columns(pairs: Sequence[tuple[str, str]] | None) -> Mapping[str, str] | None:
    return None if pairs is None else dict(pairs)


_BEGIN_RUN = text("""
    INSERT INTO gobblin.run (run_id, job, state, owner, dagster_run_id)
    VALUES (:run_id, :job, :state, :owner, :dagster_run_id)
        ON CONFLICT (run_id) DO NOTHING
""")

_RECORD_DATASET = text("""
    INSERT INTO gobblin.run_dataset (run_id, dataset_id, partition, outcome, sequence_id, error, figures)
    VALUES (:run_id, :dataset_id, :partition, :outcome, :sequence_id, :error, CAST(:figures AS jsonb))
        ON CONFLICT (run_id, dataset_id, partition) DO UPDATE
       SET outcome = excluded.outcome, sequence_id = excluded.sequence_id, error = excluded.error,
           figures = excluded.figures, ended_at = clock_timestamp()
""")

_END_RUN = text("""
    UPDATE gobblin.run
       SET state = :state, error = :error, figures = CAST(:figures AS jsonb), ended_at = clock_timestamp()
     WHERE run_id = :run_id
""")


# Bounded below, since history only grows.
_LIST_LAPSED = text("""
    SELECT r.run_id, r.dagster_run_id, r.owner,
           EXISTS (SELECT FROM gobblin.lease l WHERE l.run_id = r.run_id AND l.owner IS NOT NULL) AS ran_out
      FROM gobblin.run r
     WHERE r.job = :job AND r.state = 'RUNNING' AND r.dagster_run_id IS NOT NULL
       AND r.started_at > clock_timestamp() - make_interval(days => 30)
       AND NOT EXISTS (
               SELECT FROM gobblin.lease l
                WHERE l.run_id = r.run_id AND l.owner IS NOT NULL AND l.expires_at > clock_timestamp()
           )
     ORDER BY r.started_at, r.run_id
     LIMIT :limit
""")


class PostgresRunStore:
    """``RunStore`` over ``run`` and ``run_dataset``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, run: JobState, *, owner: str) -> None:
        arguments = {
            "run_id": run.run_id,
            "job": run.job,
            "state": run.state.value,
            "owner": owner,
            "dagster_run_id": run.dagster_run_id,
        }
        transact(self._engine, "begin run", lambda c: c.execute(_BEGIN_RUN, arguments).rowcount)

    def record_dataset(self, run_id: RunId, record: RunDatasetRecord) -> None:
        arguments = {
            "run_id": run_id,
            "dataset_id": record.dataset_id,
            "partition": record.partition,
            "outcome": record.outcome.value,
            "sequence_id": record.sequence_id,
            "error": record.error,
            "figures": to_jsonb(record.figures),
        }
        try:
            transact(self._engine, "record dataset", lambda c: c.execute(_RECORD_DATASET, arguments).rowcount)
        except IntegrityError as error:
            raise ConflictError(
                f"the log does not know run {run_id}, or the sequence that it publishes by: it is older than the run",
                hint="Postgres failed over to a standby that lagged, or was restored. The next run finds out what is "
                "missing before it reads anything.",
                run_id=str(run_id),
            ) from error

    def end(self, run_id: RunId, state: WorkingState, *, error: str | None, figures: Mapping[str, object]) -> None:
        arguments = {"run_id": run_id, "state": state.value, "error": error, "figures": to_jsonb(figures)}
        transact(self._engine, "end run", lambda c: c.execute(_END_RUN, arguments).rowcount)

    def list_lapsed(self, job: JobName, *, limit: int) -> Sequence[LapsedRun]:
        arguments = {"job": job, "limit": limit}
        rows = transact(self._engine, "list lapsed runs", lambda c: c.execute(_LIST_LAPSED, arguments).all())
        return [LapsedRun(RunId(row.run_id), row.dagster_run_id, row.owner, row.ran_out) for row in rows]
