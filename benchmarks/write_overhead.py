"""What the commit costs: the same Spark read and write, with the commit and without it."""

import os
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.tables import Laps, Options, Samples, Table, in_turns, seconds, timed, verdict
from benchmarks.world import COLUMNS, TABLE, World, new_job, run_events
from gobblin_assets import failpoints
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.rows.observation import observe_positions
from gobblin_assets.rows.parquet_writer import write_parquet
from gobblin_assets.spark.session import open_session
from gobblin_assets.spark.spark_settings import SparkSettings

PARTITIONS = 4
FETCH_SIZE_ROWS = 10_000
SHARE_MAX = 0.03
FIXED_S_MAX = 0.5

BARE, BARE_OBSERVED, BARE_SYNCED = "bare", "bare, with observe", "bare, files synced"
OURS_UNSYNCED, OURS = "with the commit, without syncing", "with the commit"

_ENDS = {
    Failpoint.LEASE_TAKEN: "start: probe, register, leases",
    Failpoint.SEQUENCE_BEGUN: "recover, open the source, plan",
    Failpoint.ATTEMPT_REGISTERED: "register the attempt",
    Failpoint.ATTEMPT_WRITTEN: "Spark's read and write, footers",
    Failpoint.ATTEMPT_DURABLE: "sync files and directories",
    Failpoint.STAGE_COMMITTED: "T1, stage",
    Failpoint.SEAL_COMMITTED: "T2, seal",
    Failpoint.VERIFIED_BEFORE_FINISH: "execute, sync, verify",
    Failpoint.FINISH_COMMITTED: "T3, finish",
    Failpoint.CLEANUP_REMOVED: "events, cleanup",
}


class Unsynced(PosixFileSystem):
    """Leaves durability to the operating system: a crash of the machine may lose files."""

    def make_durable(self, files: Iterable[str]) -> None:
        for _path in files:
            pass

    def sync_directories(self, directories: Iterable[str]) -> None:
        pass


def measure(world: World, options: Options) -> list[Table]:
    rows = 40_000 if options.quick else 4_000_000
    world.make_events(rows)
    settings = SparkSettings(world.home / "spark", master="local[2]", conf={"spark.driver.memory": "2g"},
                             capabilities=("postgres",))  # fmt: skip
    spark = open_session(settings)
    try:
        return _measure(world, options, spark, rows)
    finally:
        spark.stop()


def _measure(world: World, options: Options, spark: SparkSession, rows: int) -> list[Table]:
    samples, phases = Samples(), Samples()
    ways: dict[str, Callable[[], object]] = {
        BARE: lambda: _write_bare(world, spark, rows),
        BARE_OBSERVED: lambda: _write_bare(world, spark, rows, observed=True),
        BARE_SYNCED: lambda: _sync_tree(_write_bare(world, spark, rows)),
        OURS_UNSYNCED: lambda: _write_ours(world, spark, rows, lambda _fs: Unsynced(umask=0o022)),
        OURS: lambda: _write_ours(world, spark, rows, lambda fs: fs),
    }
    for way in ways.values():
        way()  # the first of each compiles
    names = list(ways)
    for name in in_turns(names, options.runs):
        laps = Laps()
        with failpoints.install(lambda point, laps=laps: laps.lap(_ENDS[point]) if point in _ENDS else None):
            samples.add(name, timed(ways[name]))
        if name == OURS:
            laps.lap("end of the run")
            phases.add_all(laps.spent)
    base, synced = samples.median(BARE), samples.median(BARE_SYNCED)
    observe_s = samples.median(BARE_OBSERVED) - base
    allowed = 1 + SHARE_MAX
    table = Table(
        f"The same read and write of {rows:,} rows, with and without the commit",
        ("way", "median", "min", "max", "over the bare one"),
        tuple(samples.row(name, f"{samples.median(name) - base:+.3f} s") for name in names),
        (
            f"One JDBC read of a local Postgres in {PARTITIONS} partitions, fetch size {FETCH_SIZE_ROWS:,}.",
            "Into zstd Parquet by the same writer and options, in a new directory each time.",
            "The bare read has no plan, no shared snapshot and no counting; ours has all parts of a run.",
            f"`observe` takes {seconds(observe_s)} (highest position, rows counted).",
            f"Syncing the files of a bare write takes {seconds(synced - base)}.",
            verdict("With the commit and syncing, against the bare write synced",
                    samples.median(OURS), synced * allowed + FIXED_S_MAX),
            verdict("The same less what `observe` takes, which has its own line",
                    samples.median(OURS) - observe_s, synced * allowed + FIXED_S_MAX),
            verdict("With the commit and syncing, against the bare write not synced",
                    samples.median(OURS), base * allowed + FIXED_S_MAX),
            verdict("With the commit, neither synced", samples.median(OURS_UNSYNCED), base * allowed + FIXED_S_MAX),
        ),
    )  # fmt: skip
    detail = Table("Where a run with the commit spends its time", ("phase", "median", "min", "max"),
                   tuple(phases.row(name) for name in phases.by_name))  # fmt: skip
    return [table, detail]


def _write_bare(world: World, spark: SparkSession, rows: int, *, observed: bool = False) -> Path:
    """Read and write without the product; returns the directory."""
    bounds = [rows * part // PARTITIONS for part in range(PARTITIONS + 1)]
    frame: DataFrame = spark.read.jdbc(
        world.connection.url,
        f"(SELECT {', '.join(COLUMNS)} FROM {TABLE}) source",
        predicates=[f"id >= {bounds[part]} AND id < {bounds[part + 1]}" for part in range(PARTITIONS)],
        properties={**world.connection.spark_properties(), "fetchsize": str(FETCH_SIZE_ROWS)},
    )
    if observed:
        frame, positions = observe_positions(frame, ("id",))
    directory = world.destination / "bare" / uuid.uuid4().hex
    write_parquet(frame, f"file://{directory}")
    if observed:
        positions.get()
    return directory


def _write_ours(world: World, spark: SparkSession, rows: int, wrap: Callable[[FileSystem], FileSystem]) -> None:
    split = {"work_unit_rows": rows // PARTITIONS, "max_partitions": PARTITIONS, "max_multi_work_units": 1,
             "fetch_size_rows": FETCH_SIZE_ROWS}  # fmt: skip
    report = run_events(world, spark, new_job(), split=split, wrap=wrap)
    publication = report.datasets[0].publication
    if publication is None or publication.row_count != rows:
        raise RuntimeError(f"expected {rows} rows, published {publication}")


def _sync_tree(directory: Path) -> None:
    """Sync the files and directories of a bare write, so that they survive a crash."""
    for path in (*sorted(directory.iterdir()), directory, directory.parent):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
