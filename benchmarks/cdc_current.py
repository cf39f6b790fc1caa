"""The rows of a table whose rows were changed again and again: by its whole change log, and by a base generation."""

import sys
from typing import Final

from pyspark.sql import SparkSession

from benchmarks.cdc_world import LogSource, count_rows, open_log_source
from benchmarks.sink_world import WAIT_S_MAX, JobProcess, SinkJob, bound_at_least, work_until
from benchmarks.tables import Options, Samples, Table, in_turns, timed
from benchmarks.world import World
from gobblin_assets.rows.current_reader import read_current
from gobblin_assets.spark.session import open_session
from gobblin_assets.spark.spark_settings import SparkSettings

ROWS, ROWS_QUICK = 200_000, 50_000
ROUNDS, ROUNDS_QUICK = 20, 10
SPEED_MIN = 4.0

WHOLE, BASE, BEHIND = "the whole log", "a base", "a base, and 1 % of the changes behind it"
WRITTEN: Final = "sink compact"
_TABLE: Final = "orders"
_CUT: Final = {"roll": {"age_s": 1}}
_PER_TRANSACTION: Final = 1_000


def measure(world: World, options: Options) -> list[Table]:
    rows, rounds = (ROWS_QUICK, ROUNDS_QUICK) if options.quick else (ROWS, ROUNDS)
    session = open_session(SparkSettings(world.home / "spark", master="local[2]", conf={"spark.driver.memory": "2g"}))
    spent = Samples()
    with open_log_source(world) as source:
        source.make_tables()
        source.fill(_TABLE, 1, rows)
        job = source.make_job([_TABLE], {}, sink=_CUT)
        work_until(job, lambda: count_rows(job) >= rows, "the copy")
        changes = rows * rounds
        for _round in range(rounds):
            _change(source, rows)
        work_until(job, lambda: count_rows(job) >= rows + changes, "the changes")
        _read(session, job, WHOLE, rows, options, spent)
        spent.add(WRITTEN, timed(lambda: _write_base(job)))
        _read(session, job, BASE, rows, options, spent)
        _change(source, changes // 100)
        more = changes + changes // 100 // _PER_TRANSACTION * _PER_TRANSACTION
        work_until(job, lambda: _count_log(job) >= rows + more, "1 % more changes")
        _read(session, job, BEHIND, rows, options, spent)
    session.stop()
    return [_describe(rows, changes, spent, is_small=options.quick)]


def _change(source: LogSource, rows: int) -> None:
    for first in range(1, rows - _PER_TRANSACTION + 2, _PER_TRANSACTION):
        last = first + _PER_TRANSACTION - 1
        source.do(f"UPDATE {_TABLE} SET amount = amount + 1 WHERE id BETWEEN {first} AND {last}")


def _count_log(job: SinkJob) -> int:
    """Rows of the change log alone."""
    return int(
        job.scalar(
            "SELECT coalesce(sum(s.row_count), 0) FROM gobblin.commit_sequence s JOIN gobblin.dataset d"
            " USING (dataset_id) WHERE d.job = :job AND d.urn = :urn AND s.state = 'DONE'",
            urn=f"public.{_TABLE}",
        )
    )


def _read(session: SparkSession, job: SinkJob, name: str, rows: int, options: Options, spent: Samples) -> None:
    def read() -> None:
        current = read_current(session, f"public.{_TABLE}", job=job.name, database=job.world.engine)
        if current.count() != rows:
            raise RuntimeError(f"{name}: not {rows:,} rows")
        current.write.format("noop").mode("overwrite").save()

    # The first one compiles.
    read()
    for each in in_turns([name], options.runs):
        sys.stderr.write(f"  {each} …\n")
        spent.add(each, timed(read))


def _write_base(job: SinkJob) -> None:
    arguments = ("sink", "compact", str(job.file), "--changes-min", "1", "--master", "local[2]")
    with JobProcess(job, *arguments) as command:
        if command.process.wait(WAIT_S_MAX):
            raise RuntimeError(f"no base was written: {command.said[-2000:]}")


def _describe(rows: int, changes: int, spent: Samples, *, is_small: bool) -> Table:
    lines = tuple(
        spent.row(name, f"{spent.median(WHOLE) / spent.median(name):.1f}") for name in (WHOLE, BASE, BEHIND, WRITTEN)
    )
    found = spent.median(WHOLE) / spent.median(BEHIND)
    return Table(
        f"{rows:,} rows of Postgres, by a log of {rows + changes:,} changes",
        ("way", "wall, median", "min", "max", "times as fast"),
        lines,
        (
            "A table of 6 columns; each row was updated as often as every other, in transactions of 1,000 rows.",
            "`read_current`, its look at the log, a count and a read of all columns, in a warm session.",
            f"`{WRITTEN}` once, with the start of its process and of Spark.",
            # Of a small log, most of the time is that of any query.
            *([] if is_small else [bound_at_least("base and 1 %, times as fast", found, SPEED_MIN)]),
        ),
    )
