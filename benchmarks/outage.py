"""After an outage: many datasets, each with an open sequence, and the time of one recovery of all of them."""

import statistics
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from sqlalchemy import Engine, text

from benchmarks.tables import Options, Table, seconds, verdict
from benchmarks.world import World, new_job
from gobblin_assets.commit.attempts import final_name, staging_directory
from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.commit.rename_steps import RenameDirectory
from gobblin_assets.commit.segment import combine_digests, encode_segments
from gobblin_assets.commit.sequence import KeyMove, NewAttempt, NewSequence, Publication, SealOrder, StagedAttempt
from gobblin_assets.db.engine import open_external
from gobblin_assets.destinations.rooted import job_directory
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.files import DataFile
from gobblin_assets.model.path_names import path_of
from gobblin_assets.model.state import AttemptId, DatasetId, RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.maintenance_run import MaintenanceRun
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.datasets import NewRun
from gobblin_assets.state.leases import Holder

SEQUENCES = 100_000
SEQUENCES_QUICK = 3_000
_MAKERS = 4
_TAKING_EVERY_S = 0.5
_PARTS = 10


def measure(world: World, options: Options) -> list[Table]:
    """Measured once, whatever ``options.runs`` is: it takes long, and its parts show how steady the rate is."""
    count = SEQUENCES_QUICK if options.quick else SEQUENCES
    job = JobName(new_job())
    made_s = _make_open_sequences(world, job, count)
    stores = open_stores(world.engine)
    page_s = statistics.median(_timed_page(stores, job) for _ in range(5))
    first_s = _timed_first(stores, job)
    marks: list[float] = []
    lines: list[str] = []
    maintenance = MaintenanceRun(_operations(stores, lines), stores, job)
    waits = _Newcomer(stores)
    begun = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        newcomer = pool.submit(waits.run)

        def seen(_publication: Publication) -> None:
            marks.append(time.monotonic() - begun)

        report = maintenance.recover(seen=seen)
        waits.over = True
        newcomer.result()
    spent_s = time.monotonic() - begun
    assert report.published == count, report
    part = count // _PARTS
    rates = [part / (marks[(i + 1) * part - 1] - (marks[i * part - 1] if i else 0.0)) for i in range(_PARTS)]
    rows = (
        ("all of them", f"{spent_s:.1f} s", f"{count / spent_s:,.0f}/s"),
        ("one of them", seconds(spent_s / count), ""),
        ("the first tenth", f"{part / rates[0]:.1f} s", f"{rates[0]:,.0f}/s"),
        ("the last tenth", f"{part / rates[-1]:.1f} s", f"{rates[-1]:,.0f}/s"),
        ("listing 500 that are due", seconds(page_s), ""),
        ("what the sensor asks at each tick", seconds(first_s), ""),
        ("a new dataset is taken meanwhile, median", seconds(statistics.median(waits.samples)), ""),
        ("a new dataset is taken meanwhile, longest", seconds(max(waits.samples)), ""),
    )
    notes = (
        f"{count:,} datasets of one file each, sealed and not published; made in {made_s:.0f} s.",
        "One recovery process with one thread; every transaction is durable.",
        f"{len(lines):,} lines of progress.",
        verdict("Slowest tenth, one sequence", 1 / min(rates), 0.05),
        verdict("A new dataset waits", max(waits.samples), 1.0),
    )
    return [Table(f"Recovery of {count:,} open sequences", ("", "time", "rate"), rows, notes)]


class _Newcomer:
    """Takes and releases the lease of its own dataset while others are recovered, as a new run would."""

    def __init__(self, stores: Stores) -> None:
        job, urn = JobName(new_job()), DatasetUrn("new work")
        self._stores = stores
        self._dataset_id = stores.datasets.register(job, [urn])[urn]
        self._holder = Holder("newcomer", RunId(uuid.uuid4()))
        stores.runs.begin(NewRun(self._holder.run_id, job, "bench"))
        self.samples: list[float] = []
        self.over = False

    def run(self) -> None:
        while not self.over:
            begun = time.monotonic()
            leases = self._stores.leases.take([self._dataset_id], self._holder, ttl_s=60.0)
            self._stores.leases.release(leases)
            self.samples.append(time.monotonic() - begun)
            time.sleep(_TAKING_EVERY_S)


def _operations(stores: Stores, lines: list[str]) -> LogOperations:
    clock = SystemClock()
    return LogOperations(
        store=stores.commits,
        leases=stores.leases,
        open_file_system=open_file_system,
        interrupt=lambda _attempt: None,
        clock=clock,
        holder=Holder("recovery", RunId(clock.new_id())),
        say=lines.append,
    )


def _timed_page(stores: Stores, job: JobName) -> float:
    begun = time.monotonic()
    stores.commits.list_recoverable(jobs=[job], limit=500)
    return time.monotonic() - begun


def _timed_first(stores: Stores, job: JobName) -> float:
    begun = time.monotonic()
    stores.commits.list_recoverable(jobs=[job], limit=1)
    return time.monotonic() - begun


def _make_open_sequences(world: World, job: JobName, count: int) -> float:
    """Made by the log's own transactions, but without a sync for each of them."""
    begun = time.monotonic()
    _set_durable(world.engine, durable=False)
    engine = open_external(world.engine.url.render_as_string(hide_password=False))
    run_id = RunId(uuid.uuid4())
    stores = open_stores(engine)
    stores.runs.begin(NewRun(run_id, job, "benchmark"))
    urns = [DatasetUrn(f"table {number:06d}") for number in range(count)]
    ids = stores.datasets.register(job, urns)
    with ThreadPoolExecutor(_MAKERS) as pool:
        for part in _batches(urns):
            list(pool.map(lambda urn: _make_one(stores, world, job, run_id, urn, ids[urn]), part))
    engine.dispose()
    _set_durable(world.engine, durable=True)
    return time.monotonic() - begun


def _set_durable(engine: Engine, *, durable: bool) -> None:
    """Set durability for later connections; then gather statistics, as autovacuum would within a minute."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        database = connection.execute(text("SELECT quote_ident(current_database())")).scalar_one()
        change = "RESET synchronous_commit" if durable else "SET synchronous_commit = off"
        connection.execute(text(f"ALTER DATABASE {database} {change}"))
        connection.execute(text("ANALYZE"))


def _batches(urns: list[DatasetUrn]) -> Iterator[list[DatasetUrn]]:
    rest = iter(urns)
    while part := list(islice(rest, 1_000)):
        yield part


def _make_one(
    stores: Stores, world: World, job: JobName, run_id: RunId, urn: DatasetUrn, dataset_id: DatasetId
) -> None:
    (lease,) = stores.leases.take([dataset_id], Holder("benchmark", run_id), ttl_s=60.0)
    sequence_id, attempt_id = SequenceId(uuid.uuid4()), AttemptId(uuid.uuid4())
    root = str(world.destination)
    staging = staging_directory(job_directory(root, job), attempt_id)
    stores.commits.begin(
        NewSequence(sequence_id, dataset_id, run_id, "", Mode.APPEND, replaces=False, fence=lease.fence, root_uri=root)
    )
    stores.commits.register_attempt(NewAttempt(attempt_id, sequence_id, dataset_id, lease.fence, 0, 1, staging))
    leaf = Path(staging, "data")
    leaf.mkdir(parents=True)
    (leaf / "part-0.parquet").write_bytes(b"PAR1")
    fs, _root = open_file_system(root)
    (found,) = fs.list_files(str(leaf))
    target = f"{path_of(root, job, urn, Role.DATA)}/{final_name(sequence_id, 0)}"
    step = RenameDirectory(str(leaf), target, (DataFile("part-0.parquet", found.identity, 1),))
    segments = tuple(encode_segments([step], role=Role.DATA, partition=""))
    stores.commits.stage(StagedAttempt(attempt_id, sequence_id, lease.fence, segments, (uuid.uuid4(),)))
    stores.commits.seal(
        SealOrder(
            sequence_id=sequence_id,
            dataset_id=dataset_id,
            partition="",
            fence=lease.fence,
            base_version=0,
            winners=(attempt_id,),
            digest=combine_digests(segment.digest for segment in segments),
            segment_count=len(segments),
            row_count=1,
            moves=(KeyMove("rows", "", None, None),),
            complete=True,
        )
    )
    stores.leases.release([lease])
