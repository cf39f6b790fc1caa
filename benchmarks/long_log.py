"""A long log, as a stream makes it: how long folding takes, what folding leaves, and how long a read's planning takes.

Publications are written into the tables as T1 to T3 leave them, a thousand by one statement. The product's own code
does everything after that: the fold of cleanup, the search for published files, the reader up to where Spark begins.
"""

import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import text

from benchmarks.memory import peak_mb, reset_peak, resident_mb
from benchmarks.tables import Options, Samples, Table, seconds, timed, verdict
from benchmarks.world import World, new_job
from gobblin_assets.commit.attempts import final_name, staging_directory
from gobblin_assets.commit.cleanup import SEQUENCES_PER_FOLD_MAX, Cleanup
from gobblin_assets.commit.folding import FoldBounds
from gobblin_assets.commit.segment import encode_segments
from gobblin_assets.db.statement_texts import to_jsonb
from gobblin_assets.destinations.files.rename_steps import RenameDirectory
from gobblin_assets.destinations.files.rooted import job_directory
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.files import DataFile, FileIdentity
from gobblin_assets.model.path_names import path_of
from gobblin_assets.model.state import AttemptId, RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.rows.dataset_reader import locate_files
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.datasets import NewRun
from gobblin_assets.state.leases import Holder, Lease

PUBLICATIONS: Final = 200_000
PUBLICATIONS_QUICK: Final = 5_000
PLAN_S_MAX: Final = 2.0
LOG_MB_MAX: Final = 100.0

_URN: Final = DatasetUrn("clicks")
_AT_ONCE: Final = 1_000
_MADE_BETWEEN_CLEANUPS: Final = 2_000
_MB: Final = 1_000_000
_FILE: Final = b"x"
_SCHEMA: Final = (
    '{"type": "struct", "fields": ['
    + ", ".join(
        f'{{"name": "column_{number}", "type": "string", "nullable": true, "metadata": {{}}}}' for number in range(10)
    )
    + "]}"
)

_GIVEN: Final = """
    unnest(CAST(:sequence_ids AS uuid[]), CAST(:attempt_ids AS uuid[]), CAST(:payloads AS bytea[]),
           CAST(:digests AS bytea[]), CAST(:lows AS bytea[]), CAST(:highs AS bytea[]), CAST(:low_texts AS text[]),
           CAST(:high_texts AS text[]), CAST(:staging AS text[])) WITH ORDINALITY
        AS given (sequence_id, attempt_id, payload, digest, low, high, low_text, high_text, staging, n)
"""

_PUBLISH: Final = (
    text(f"""
        INSERT INTO gobblin.commit_sequence
               (sequence_id, dataset_id, lane_id, run_id, partition, mode, replaces, fence, state, base_version,
                result_version, digest, segment_count, step_count, file_count, row_count, file_bytes, complete, details,
                prepared_at, done_at, announced_at)
        SELECT sequence_id, :dataset_id, :lane_id, :run_id, '', 'append', false, :fence, 'DONE', :of_lane + n - 1,
               :first + n, digest, 1, 1, 1, 100, 1, true, CAST(:details AS jsonb), now(), now(), now() FROM {_GIVEN}
    """),
    text(f"""
        INSERT INTO gobblin.attempt
               (attempt_id, sequence_id, dataset_id, lane_id, fence, multi_work_unit, try_number, state, staging_path,
                row_count, file_count, file_bytes, ended_at, cleaned_at)
        SELECT attempt_id, sequence_id, :dataset_id, :lane_id, :fence, 0, 1, 'STAGED', staging, 100, 1, 1, now(), now()
          FROM {_GIVEN}
    """),
    text(f"""
        INSERT INTO gobblin.work_unit
               (work_unit_id, sequence_id, multi_work_unit, key_name, number, low, expected_high, actual_high, state)
        SELECT gen_random_uuid(), sequence_id, 0, 'clicks', 0, CAST(low_text AS jsonb), CAST(high_text AS jsonb),
               CAST(high_text AS jsonb), 'COMMITTED' FROM {_GIVEN}
    """),
    text(f"""
        INSERT INTO gobblin.segment
               (segment_id, sequence_id, attempt_id, dataset_id, number, role, partition, payload, digest, step_count,
                file_count, row_count, file_bytes, file_schema, sealed)
        SELECT gen_random_uuid(), sequence_id, attempt_id, :dataset_id, 0, 'data', '', payload, digest, 1, 1, 100, 1,
               CAST(:schema AS jsonb), true FROM {_GIVEN}
    """),
    text(f"""
        INSERT INTO gobblin.planned_move (sequence_id, key_id, old_watermark, old_bytes, new_watermark, new_bytes)
        SELECT sequence_id, :key_id, CAST(low_text AS jsonb), low, CAST(high_text AS jsonb), high FROM {_GIVEN}
    """),
    text(f"""
        INSERT INTO gobblin.planned_interval (sequence_id, key_id, low, low_bytes, high, high_bytes)
        SELECT sequence_id, :key_id, CAST(low_text AS jsonb), low, CAST(high_text AS jsonb), high FROM {_GIVEN}
    """),
    text(f"""
        INSERT INTO gobblin.ledger (key_id, sequence_id, is_generation, low, high, low_bytes, high_bytes)
        SELECT :key_id, sequence_id, false, CAST(low_text AS jsonb), CAST(high_text AS jsonb), low, high FROM {_GIVEN}
    """),
    text("""
        UPDATE gobblin.dataset SET version = :first + cardinality(CAST(:staging AS text[]))
         WHERE dataset_id = :dataset_id
    """),
    text("""
        UPDATE gobblin.lane SET version = :of_lane + cardinality(CAST(:staging AS text[])) WHERE lane_id = :lane_id
    """),
)

_MAKE_KEY = text("""
    INSERT INTO gobblin.watermark_key (dataset_id, lane_id, name, partition)
    VALUES (:dataset_id, :lane_id, :name, '') RETURNING key_id
""")

_LOG_BYTES = text("""
    SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
     WHERE relnamespace = 'gobblin'::regnamespace AND relkind = 'r'
""")


def measure(world: World, options: Options) -> list[Table]:
    """Make and fold the log once, because that takes long; plan a read ``options.runs`` times, at least three times."""
    count = PUBLICATIONS_QUICK if options.quick else PUBLICATIONS
    made = LongLog(world)
    folds = Samples()
    size = made.grow(count, folds)
    plans, found = Samples(), Samples()
    for _run in range(max(3, options.runs)):
        reset_peak()
        resident = resident_mb()
        plans.add("all of it", timed(lambda: made.plan(plans)))
        found.add("grown", peak_mb() - resident)
    rows = (
        *(plans.row(name) for name in plans.by_name),
        folds.row("a fold of 200 publications"),
        (
            "one publication, folded",
            seconds(folds.median("a fold of 200 publications") / SEQUENCES_PER_FOLD_MAX),
            "",
            "",
        ),
    )
    notes = (
        f"{count:,} publications of one file each, of one partition and one key; all but the newest are folded.",
        f"A publication takes {size.unfolded_bytes:,.0f} bytes in the log before it is folded, including indexes.",
        f"The log was {size.largest_mb:.1f} MB at most: {_MADE_BETWEEN_CLEANUPS:,} publications between cleanups.",
        "Planning ends where Spark begins: files are listed, their lengths are checked on disk, files are grouped.",
        f"The process grew by {found.median('grown'):.0f} MB at most during planning.",
        verdict(f"A read of {count:,} publications is planned", plans.median("all of it"), PLAN_S_MAX),
        verdict("The log, after VACUUM", size.left_mb, LOG_MB_MAX, "MB"),
    )
    return [Table(f"A log of {count:,} publications, folded", ("", "median", "min", "max"), rows, notes)]


@dataclass(frozen=True, slots=True)
class LogSize:
    """``unfolded_bytes``: of one publication. ``left_mb``: after all is folded and vacuumed."""

    unfolded_bytes: float
    largest_mb: float
    left_mb: float


@dataclass(slots=True)
class _Lane:
    lease: Lease
    key_id: int
    count: int = 0


class LongLog:
    """One dataset and its publications, by lanes in turns, of one key each; each has a file of one byte on disk."""

    def __init__(self, world: World, *, lanes: int = 1) -> None:
        self._world, self.job = world, JobName(new_job())
        self.urn = _URN
        self.stores: Stores = open_stores(world.engine)
        self.root = str(world.destination)
        self.count = 0
        self.dataset_id = self.stores.datasets.register(self.job, [_URN])[_URN]
        self._run_id = RunId(uuid.uuid4())
        self.stores.runs.begin(NewRun(self._run_id, self.job, "benchmark"))
        self.stores.lanes.spread(self.dataset_id, lanes)
        ids = [lane.lane_id for lane in self.stores.lanes.load(self.dataset_id)[self.dataset_id].lanes]
        leases = self.stores.leases.take_lanes(ids, Holder("benchmark", self._run_id), ttl_s=36_000.0)
        with world.engine.begin() as connection:
            self._lanes = [
                _Lane(
                    lease,
                    connection.execute(
                        _MAKE_KEY,
                        {"dataset_id": self.dataset_id, "lane_id": lease.lane_id, "name": f"clicks-{number}"},
                    ).scalar_one(),
                )
                for number, lease in enumerate(leases)
            ]

    @property
    def leases(self) -> list[Lease]:
        return [lane.lease for lane in self._lanes]

    def grow(self, count: int, folds: Samples) -> LogSize:
        """Publish so many, and clean up as often as runs would; ``folds`` gets the seconds of full folds."""
        before = log_bytes(self._world)
        self.publish(_AT_ONCE)
        unfolded, largest = log_bytes(self._world) - before, 0
        while self.count < count:
            self.publish(min(_MADE_BETWEEN_CLEANUPS, count - self.count))
            largest = max(largest, log_bytes(self._world) - before)
            self.clean(folds)
            # Autovacuum would do this a minute later.
            vacuum(self._world)
        return LogSize(unfolded / _AT_ONCE, largest / _MB, (log_bytes(self._world) - before) / _MB)

    def publish(self, count: int) -> None:
        left = count
        while left:
            lane = self._lanes[self.count // _AT_ONCE % len(self._lanes)]
            arguments = self._make(lane, min(_AT_ONCE, left))
            with self._world.engine.begin() as connection:
                for statement in _PUBLISH:
                    connection.execute(statement, arguments)
            made = len(arguments["staging"])
            self.count += made
            lane.count += made
            left -= made

    def _make(self, lane: _Lane, count: int) -> dict[str, Any]:
        sequences = [SequenceId(uuid.uuid4()) for _publication in range(count)]
        attempts = [AttemptId(uuid.uuid4()) for _publication in range(count)]
        staging = [staging_directory(job_directory(self.root, self.job), attempt) for attempt in attempts]
        segments = [
            encode_segments([self._step(*each)], role=Role.DATA, partition="")[0]
            for each in zip(sequences, staging, strict=True)
        ]
        positions = [long_watermark(lane.count + number) for number in range(count + 1)]
        return {
            "dataset_id": self.dataset_id,
            "lane_id": lane.lease.lane_id,
            "run_id": self._run_id,
            "fence": lane.lease.fence,
            "key_id": lane.key_id,
            "first": self.count,
            "of_lane": lane.count,
            "details": f'{{"root_uri": "{self.root}", "rows_read": 100, "duration_s": 1.5, "notes": []}}',
            "schema": _SCHEMA,
            "sequence_ids": sequences,
            "attempt_ids": attempts,
            "staging": staging,
            "payloads": [segment.payload for segment in segments],
            "digests": [segment.digest for segment in segments],
            "lows": [position.encode() for position in positions[:-1]],
            "highs": [position.encode() for position in positions[1:]],
            "low_texts": [to_jsonb(position.to_json()) for position in positions[:-1]],
            "high_texts": [to_jsonb(position.to_json()) for position in positions[1:]],
        }

    def _step(self, sequence_id: SequenceId, staging: str) -> RenameDirectory:
        target = Path(path_of(self.root, self.job, _URN, Role.DATA), final_name(sequence_id, 0))
        name = f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
        target.mkdir(parents=True)
        (target / name).write_bytes(_FILE)
        stat = (target / name).stat()
        identity = FileIdentity(stat.st_size, stat.st_ino, stat.st_mtime_ns)
        return RenameDirectory(f"{staging}/files", str(target), (DataFile(name, identity, 100),))

    def clean(self, folds: Samples) -> None:
        """Clean up as runs do, until nothing is left to fold."""
        timed_store = _TimedFolds(self.stores.commits, folds)
        cleanup = Cleanup(timed_store, open_file_system, lambda _attempt: None, lambda _lease: None)
        bounds = FoldBounds(age_s=0.0)
        for lease in self.leases:
            while cleanup.clean(lease, root_uri=self.root, retire_grace_s=0.0, fold=bounds).folded:
                pass

    def plan(self, plans: Samples) -> None:
        begun = time.monotonic()
        view = self.stores.published.find(self.job, _URN, role=Role.DATA)
        assert view is not None
        plans.add("the log is asked", time.monotonic() - begun)
        begun = time.monotonic()
        groups = locate_files(view.segments, self.job, _URN, Role.DATA)
        plans.add("files are listed and looked at", time.monotonic() - begun)
        assert sum(len(uris) for uris in groups.values()) == self.count


class _TimedFolds:
    """The log's store, which times its full folds."""

    def __init__(self, store: Any, folds: Samples) -> None:
        self._store = store
        self._folds = folds

    def fold(self, *given: Any, **options: Any) -> int:
        begun = time.monotonic()
        folded = int(self._store.fold(*given, **options))
        if folded == SEQUENCES_PER_FOLD_MAX:
            self._folds.add("a fold of 200 publications", time.monotonic() - begun)
        return folded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def log_bytes(world: World) -> int:
    with world.engine.connect() as connection:
        return int(connection.execute(_LOG_BYTES).scalar_one())


def vacuum(world: World) -> None:
    with world.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM"))
