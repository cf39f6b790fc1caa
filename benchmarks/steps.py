"""Many steps in one sequence: T1 and T2 with steps in memory, then execution and T3 with files on disk."""

import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import text

from benchmarks.memory import peak_mb, reset_peak, resident_mb
from benchmarks.tables import Laps, Options, Samples, Table, timed, verdict
from benchmarks.world import World, new_job
from gobblin_assets import failpoints
from gobblin_assets.commit.driver import Driver
from gobblin_assets.commit.rename_steps import RenameDirectory, RenameFile
from gobblin_assets.commit.segment import combine_digests, encode_segments
from gobblin_assets.commit.sequence import KeyMove, NewAttempt, NewSequence, SealOrder, StagedAttempt
from gobblin_assets.commit.steps import CommitStep, StepBatch
from gobblin_assets.destinations.named_tree import NamedTree
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.jobs.copy.copied_files import CopiedFiles
from gobblin_assets.jobs.copy.copy_plan import CopyPlan
from gobblin_assets.jobs.copy.copyable import Attributes, CopyItem, PlannedFile
from gobblin_assets.jobs.copy.transfer.preserve import NOTHING_PRESERVED
from gobblin_assets.jobs.copy.transfer.transfer_port import FileResult
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.files import DataFile, FileIdentity
from gobblin_assets.model.state import AttemptId, DatasetId, RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.destination import DestinationRequest, Target
from gobblin_assets.run.job_kind import Output
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.state.datasets import NewRun
from gobblin_assets.state.leases import Holder, Lease

FILES_PER_DIRECTORY = 1_000
LOG_S_MAX = 2.5
LOG_MB_MAX = 30.0
REPLACED_MB_MAX = 50.0
_LEASE_TTL_S = 3_600.0
_MB = 1_000_000
_EPOCH_NS = 1_760_000_000_000_000_000
_DAYS_NS = 5 * 86_400_000_000_000


@dataclass(frozen=True, slots=True)
class Begun:
    """A sequence that was begun, with the attempt that its steps belong to."""

    sequence_id: SequenceId
    attempt_id: AttemptId
    dataset_id: DatasetId
    lease: Lease


def measure(world: World, options: Options) -> list[Table]:
    counts = (1_000, 10_000) if options.quick else (100_000, 1_000_000)
    return [
        _measure_log(world, options, counts),
        _measure_replacements(world, options, counts),
        _measure_execution(world, options, counts[0]),
    ]


def _measure_log(world: World, options: Options, counts: Sequence[int]) -> Table:
    seals = _Seals()
    for _run in range(options.runs):
        for count in counts:
            seals.measure(world, count, _imagined_steps(world, count))
    samples, sizes, peaks = seals.samples, seals.sizes, seals.peaks
    largest = f"{counts[-1]:,}"
    notes = [
        *(
            f"{count:,} steps take {sizes.median(f'{count:,}'):.1f} MB in Postgres, all indexes included."
            for count in counts
        ),
        *(f"{count:,} steps: the process grew by {peaks.median(f'{count:,}'):.0f} MB at most." for count in counts),
        f"{largest} steps: {seals.processor.median(largest):.1f} s of this process's processor time.",
        verdict(f"{largest} steps, T1 + T2", samples.median(f"{largest} steps: T1 + T2"), LOG_S_MAX),
        verdict(f"{largest} steps, Postgres", sizes.median(largest), LOG_MB_MAX, "MB"),
        f"Renames of single files with names like Spark's, {FILES_PER_DIRECTORY:,} to a directory; in memory only.",
    ]
    return Table("Steps: staging and sealing", ("phase", "median", "min", "max"),
                 tuple(samples.row(name) for name in samples.by_name), tuple(notes))  # fmt: skip


def _measure_replacements(world: World, options: Options, counts: Sequence[int]) -> Table:
    """From what a copy's transfer has reported; the plan of the copy is there before, and is not counted."""
    seals = _Seals()
    urn = DatasetUrn("photos")
    tree = _open_tree(world, urn)
    for _run in range(options.runs):
        for count in counts:
            output = Output(Role.DATA, tree.stage(AttemptId(uuid.uuid4())), "", (), _imagine_copy(count))
            target = Target(urn, "", SequenceId(uuid.uuid4()), 0)
            seals.measure(world, count, tree.steps_for([output], target))
            del output
    largest = f"{counts[-1]:,}"
    notes = [
        *(
            f"{count:,} replacements take {seals.sizes.median(f'{count:,}'):.1f} MB in Postgres, all indexes included."
            for count in counts
        ),
        f"{largest} replacements: {seals.processor.median(largest):.1f} s of this process's processor time.",
        verdict(f"{largest} replacements, T1 + T2", seals.samples.median(f"{largest} steps: T1 + T2"), LOG_S_MAX),
        verdict(f"{largest} replacements, growth", seals.peaks.median(largest), REPLACED_MB_MAX, "MB"),
        verdict(f"{largest} replacements, Postgres", seals.sizes.median(largest), REPLACED_MB_MAX, "MB"),
        f"Files that a copy replaces, {FILES_PER_DIRECTORY:,} to a directory; their times have nanoseconds.",
        "Encoding begins with what the transfer reported. Nothing is copied.",
    ]
    return Table("Steps: staging and sealing replacements", ("phase", "median", "min", "max"),
                 tuple(seals.samples.row(name) for name in seals.samples.by_name), tuple(notes))  # fmt: skip


@dataclass(slots=True)
class _Seals:
    """Of T1 and T2, by the number of steps: seconds, those of the processor, megabytes in Postgres, and those by which
    the process grew.
    """

    samples: Samples = field(default_factory=Samples)
    processor: Samples = field(default_factory=Samples)
    sizes: Samples = field(default_factory=Samples)
    peaks: Samples = field(default_factory=Samples)

    def measure(self, world: World, count: int, steps: Iterable[StepBatch]) -> None:
        before = _log_bytes(world)
        reset_peak()
        resident = resident_mb()
        begun = _begin(world)
        used_s = time.process_time()
        laps = Laps()
        _stage_and_seal(world, begun, steps, laps)
        laps.spent["T1 + T2"] = sum(laps.spent.values())
        self.processor.add(f"{count:,}", time.process_time() - used_s)
        self.samples.add_all({f"{count:,} steps: {name}": spent for name, spent in laps.spent.items()})
        self.sizes.add(f"{count:,}", (_log_bytes(world) - before) / _MB)
        self.peaks.add(f"{count:,}", peak_mb() - resident)


def _measure_execution(world: World, options: Options, count: int) -> Table:
    samples, peaks = Samples(), Samples()
    root = world.destination
    fs, _root = open_file_system(str(root))
    # The second way publishes again what the first published, so that files are made and synced once a run.
    ways: tuple[tuple[str, Path, Callable[[FileSystem, Path, Path], list[CommitStep]]], ...] = (
        ("directories", root / "staged", _rename_directories),
        ("single files", root / "by directory", _rename_files),
    )
    for _run in range(options.runs):
        _make_files(root / "staged", count)
        files = [stat.path for stat in fs.list_files(str(root / "staged"))]
        samples.add("syncing the staged files", timed(lambda files=files: fs.make_durable(files)))
        for (way, source, make), target in zip(ways, (root / "by directory", root / "by file"), strict=True):
            begun = _begin(world)
            _stage_and_seal(world, begun, make(fs, source, target), Laps())
            reset_peak()
            resident = resident_mb()
            samples.add_all({f"{way}: {name}": spent for name, spent in _publish(world, begun).items()})
            peaks.add(way, peak_mb() - resident)
        for name in ("staged", "by directory", "by file"):
            shutil.rmtree(root / name)
    notes = (
        f"{count:,} small files on disk in directories of {FILES_PER_DIRECTORY:,}: directories first, then files.",
        "A million files on disk were not measured.",
        "Listing verifies the files before and after; it includes reading the segments from the log.",
        *(
            f"{way}: the driver grew by {peaks.median(way):.0f} MB at most while it executed the steps."
            for way, _, _ in ways
        ),
    )
    return Table("Steps: carrying out and finishing", ("phase", "median", "min", "max"),
                 tuple(samples.row(name) for name in samples.by_name), notes)  # fmt: skip


def _begin(world: World) -> Begun:
    stores = open_stores(world.engine)
    job, urn = JobName(new_job()), DatasetUrn("steps")
    dataset_id = stores.datasets.register(job, [urn])[urn]
    run_id = RunId(uuid.uuid4())
    stores.runs.begin(NewRun(run_id, job, "benchmark"))
    (lease,) = stores.leases.take([dataset_id], Holder("benchmark", run_id), ttl_s=_LEASE_TTL_S)
    begun = Begun(SequenceId(uuid.uuid4()), AttemptId(uuid.uuid4()), dataset_id, lease)
    root = str(world.destination)
    stores.commits.begin(
        NewSequence(
            begun.sequence_id, dataset_id, run_id, "", Mode.APPEND, replaces=False, fence=lease.fence, root_uri=root
        )
    )
    stores.commits.register_attempt(
        NewAttempt(
            begun.attempt_id, begun.sequence_id, dataset_id, lease.fence, 0, 1, f"{root}/staged/{begun.attempt_id}"
        )
    )
    return begun


def _stage_and_seal(world: World, begun: Begun, steps: Iterable[StepBatch], laps: Laps) -> None:
    store = open_stores(world.engine).commits
    segments = tuple(encode_segments(steps, role=Role.DATA, partition=""))
    laps.lap("encoding")
    ids = tuple(uuid.uuid4() for _segment in segments)
    store.stage(StagedAttempt(begun.attempt_id, begun.sequence_id, begun.lease.fence, segments, ids))
    laps.lap("T1, stage")
    store.seal(
        SealOrder(
            sequence_id=begun.sequence_id,
            dataset_id=begun.dataset_id,
            partition="",
            fence=begun.lease.fence,
            base_version=0,
            winners=(begun.attempt_id,),
            digest=combine_digests(segment.digest for segment in segments),
            segment_count=len(segments),
            row_count=sum(segment.row_count for segment in segments),
            moves=(KeyMove("steps", "", None, None),),
            complete=True,
        )
    )
    laps.lap("T2, seal")


def _publish(world: World, begun: Begun) -> dict[str, float]:
    laps = Laps()
    previous: list[Failpoint] = [Failpoint.SEALED_BEFORE_EXECUTE]

    def hook(point: Failpoint) -> None:
        match point:
            case Failpoint.STEP_BEFORE if previous[0] is not Failpoint.STEP_AFTER:
                laps.lap("listing")
            case Failpoint.EXECUTED_BEFORE_SYNC:
                laps.lap("executing")
            case Failpoint.SYNCED_BEFORE_VERIFY:
                laps.lap("syncing directories")
            case Failpoint.VERIFIED_BEFORE_FINISH:
                laps.lap("listing")
            case Failpoint.FINISH_COMMITTED:
                laps.lap("T3, finish")
            case _:
                pass
        previous[0] = point

    driver = Driver(open_stores(world.engine).commits, open_file_system, lambda _lease: None)
    with failpoints.install(hook):
        driver.publish(begun.sequence_id, begun.lease)
    laps.spent["all of it"] = sum(laps.spent.values())
    return laps.spent


def _imagined_steps(world: World, count: int) -> list[CommitStep]:
    """Steps like those of a write: names that differ in a number, and different sizes, inodes and times."""
    root, tag = world.destination, uuid.uuid4()
    return [
        RenameFile(
            f"{root}/.staging/{tag}/{number // FILES_PER_DIRECTORY}/part-{number:05d}-{tag}.c000.zstd.parquet",
            f"{root}/steps/{number // FILES_PER_DIRECTORY}/{tag}-{number:05d}.zstd.parquet",
            FileIdentity(30_000 + number * 7919 % 60_000, 5_000_000 + number, _EPOCH_NS + number * 1_234_567),
            1_000 + number * 104_729 % 5_000,
        )
        for number in range(count)
    ]  # fmt: skip


def _open_tree(world: World, urn: DatasetUrn) -> NamedTree:
    root = str(world.destination / "mirror")
    fs, path = open_file_system(root)
    fs.make_directories(path)
    stores = open_stores(world.engine)
    tree = NamedTree(
        DestinationRequest(JobName(new_job()), root, fs, path, stores, open_file_system, uuid.uuid4),
        keep_s=_LEASE_TTL_S,
        places={urn: str(urn)},
    )
    tree.bind()
    return tree


def _imagine_copy(count: int) -> CopiedFiles:
    """A plan of which each file replaces an older one of another size and time, and what its writers reported."""
    numbers = range(1, count + 1)
    paths = [f"{number // FILES_PER_DIRECTORY:05d}/{number * 2_654_435_761 % 2**32:08x}.jpg" for number in numbers]
    entries = (
        TreeEntry(path, EntryKind.FILE, FileIdentity(_size_of(number), 9_000_000 + number, _time_of(number)))
        for number, path in zip(numbers, paths, strict=True)
    )
    desired = Attributes(mode=0o644)
    items = tuple(
        CopyItem(number, path, (PlannedFile.of(path, entry, desired),))
        for number, path, entry in zip(numbers, paths, entries, strict=True)
    )
    replaced = {
        number: FileIdentity(_size_of(number + 1), 2_000_000 + number, _time_of(number + count)) for number in numbers
    }
    plan = CopyPlan("/source", NOTHING_PRESERVED, items, replaced)
    copied = CopiedFiles(plan)
    for item in items:
        writer = f"w{item.number * 4 // (count + 1):03d}"
        identity = FileIdentity(_size_of(item.number), 5_000_000 + item.number, _time_of(item.number))
        copied.add(FileResult(item.number, item.path, f"{writer}/{item.number}", identity=identity))
    return copied


def _size_of(number: int) -> int:
    return 30_000 + number * 7919 % 60_000


def _time_of(number: int) -> int:
    return _EPOCH_NS + number * 6_364_136_223_846_793_005 % _DAYS_NS


def _rename_directories(fs: FileSystem, source: Path, target: Path) -> list[CommitStep]:
    return [
        RenameDirectory(
            str(directory),
            str(target / directory.name),
            tuple(DataFile(stat.path.rpartition("/")[2], stat.identity, 1) for stat in fs.list_files(str(directory))),
        )
        for directory in sorted(source.iterdir())
    ]


def _rename_files(fs: FileSystem, source: Path, target: Path) -> list[CommitStep]:
    return [
        RenameFile(stat.path, f"{target}{stat.path.removeprefix(str(source))}", stat.identity, 1)
        for stat in fs.list_files(str(source))
    ]


def _make_files(root: Path, count: int) -> None:
    for start in range(0, count, FILES_PER_DIRECTORY):
        directory = root / f"{start // FILES_PER_DIRECTORY:05d}"
        directory.mkdir(parents=True)
        for number in range(start, min(count, start + FILES_PER_DIRECTORY)):
            (directory / f"part-{number:07d}.zstd.parquet").write_bytes(b"PAR1")


def _log_bytes(world: World) -> int:
    """Segments with all that Postgres keeps for them; other tables hold a few rows for each sequence."""
    with world.engine.connect() as connection:
        return int(connection.execute(text("SELECT pg_total_relation_size('gobblin.segment')")).scalar_one())
