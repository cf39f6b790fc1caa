"""A thousand small topics in one run: how long a warm pass takes, and what the commit costs each of them.

The commit's part is measured in runs without Spark: the same job, with the product's own planning, and an extractor
that writes a tiny file for each topic. The commit's part is all time of such a run but planning, with that file's time.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.kafka_world import (
    count_rows,
    describe_topics,
    make_topics,
    open_broker,
    open_kafka_session,
    require_rows,
    run_topics,
    send,
)
from benchmarks.tables import Options, Samples, Table, timed, verdict
from benchmarks.world import World, new_job
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.files import DataFile
from gobblin_assets.model.urn import Role
from gobblin_assets.model.work_unit import sum_rows
from gobblin_assets.run.job_kind import Output, Staged, UnitPlan, WorkOrder
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.run_values import RunReport
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.source_port import PlanSession, Source, SourceRequest

TOPICS = 1_000
TOPICS_QUICK = 100
PARTITIONS = 4
RECORDS_EACH = 10
PASS_S_MAX = 60.0
COMMIT_MS_MAX = 5.0

_BROKER = {"segment.index.bytes": "4096", "log.index.size.max.bytes": "4096"}
_CALLS_SHOWN = 16


def measure(world: World, options: Options) -> list[Table]:
    topics = [f"small-{number:04d}" for number in range(TOPICS_QUICK if options.quick else TOPICS)]
    with open_broker(world, settings=_BROKER) as broker:
        make_topics(broker.bootstrap, topics, PARTITIONS)
        spark = open_kafka_session(world.home)
        try:
            place = _Place(world, spark, broker.bootstrap, topics)
            return [_measure_passes(place, options), _measure_commits(place, options)]
        finally:
            spark.stop()


@dataclass(frozen=True, slots=True)
class _Place:
    world: World
    spark: SparkSession
    bootstrap: str
    topics: Sequence[str]

    def add_records(self) -> None:
        """Add ``RECORDS_EACH`` records to each partition of each topic."""
        send(
            self.bootstrap,
            (
                (topic, partition, f"{topic} {partition} {number}".encode())
                for number in range(RECORDS_EACH)
                for topic in self.topics
                for partition in range(PARTITIONS)
            ),
        )

    def run(self, job: str, *, parallelism: int = 2, **ports: Any) -> RunReport:
        described = describe_topics(
            self.world.destination, job, [{"topic": topic} for topic in self.topics], parallelism=parallelism
        )
        report = run_topics(self.world, self.spark, self.bootstrap, described, **ports)
        require_rows(count_rows(report), len(self.topics) * PARTITIONS * RECORDS_EACH, "a pass over small topics")
        return report


def _measure_passes(place: _Place, options: Options) -> Table:
    samples, parts = Samples(), Samples()
    job = new_job()
    place.add_records()
    first_s = timed(lambda: place.run(job))
    for _run in range(options.runs):
        place.add_records()
        spent = _Spent()
        begun = time.monotonic()
        place.run(job, wrap_source=lambda source, spent=spent: TimedSource(source, spent))
        samples.add("one pass", time.monotonic() - begun)
        parts.add("of it, asking the brokers", spent.seconds.get("ask the brokers", 0.0))
        parts.add("of it, planning", spent.seconds.get("plan", 0.0))
    count = len(place.topics)
    return Table(
        f"{count:,} topics of {PARTITIONS} partitions, {RECORDS_EACH} new records in each partition",
        ("", "median", "min", "max"),
        (samples.row("one pass"), *(parts.row(name) for name in parts.by_name)),
        (
            f"In a warm session; the previous pass, which saw the topics for the first time, took {first_s:.1f} s.",
            f"A topic: {samples.median('one pass') / count * 1e3:.1f} ms.",
            verdict("One pass", samples.median("one pass"), PASS_S_MAX),
        ),
    )


def _measure_commits(place: _Place, options: Options) -> Table:
    count = len(place.topics)
    whole, calls = Samples(), Samples()
    job = new_job()
    first = TinyFiles(place.world)
    # This run publishes what is in the topics, so that each measured run has the same to commit.
    _run_bare(place, job, first, _Spent(), require=False)
    for _run in range(options.runs):
        place.add_records()
        spent, extractor = _Spent(), TinyFiles(place.world)
        begun, busy = time.monotonic(), time.process_time()
        _run_bare(place, job, extractor, spent)
        run_s, busy_s = time.monotonic() - begun, time.process_time() - busy
        planning_s = spent.seconds.pop("ask the brokers") + spent.seconds.pop("plan")
        whole.add("a topic", (run_s - planning_s) / count * 1e3)
        whole.add("of it, the tiny file", extractor.spent_s / count * 1e3)
        whole.add("of it and of planning, the driver's processor time", busy_s / count * 1e3)
        whole.add("planning, beside it", planning_s / count * 1e3)
        calls.add_all({name: value / count * 1e3 for name, value in spent.seconds.items()})
    shown = sorted(calls.by_name, key=calls.median, reverse=True)[:_CALLS_SHOWN]
    return Table(
        f"What the commit costs each of {count:,} small topics",
        ("", "median", "min", "max"),
        tuple(
            _milliseconds(name, values)
            for name, values in [
                *whole.by_name.items(),
                *((f"calls of {name}", calls.by_name[name]) for name in shown),
            ]
        ),
        (
            "Runs without Spark, one task at a time, with an extractor that writes a tiny file for each topic.",
            "A topic: the whole run except planning. Calls of the log and the file system: only the costliest.",
            "Publishing runs in parallel with the next topic's task, so calls may add up to more than the whole.",
            verdict("The commit of a topic", whole.median("a topic"), COMMIT_MS_MAX, "ms"),
        ),
    )


def _run_bare(place: _Place, job: str, extractor: "TinyFiles", spent: "_Spent", *, require: bool = True) -> None:
    described = describe_topics(
        place.world.destination, job, [{"topic": topic} for topic in place.topics], parallelism=1
    )
    report = run_topics(
        place.world,
        place.spark,
        place.bootstrap,
        described,
        stores=time_stores(open_stores(place.world.engine), spent),
        wrap=lambda fs: cast("FileSystem", Timed(fs, "fs", spent)),
        wrap_source=lambda source: TimedSource(source, spent),
        open_extractor=lambda: extractor,
    )
    if require:
        require_rows(count_rows(report), len(place.topics) * PARTITIONS * RECORDS_EACH, "a run without Spark")


def _milliseconds(name: str, values: Sequence[float]) -> tuple[str, ...]:
    ordered = sorted(values)
    median = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    return (name, *(f"{value:.3f} ms" for value in (median, ordered[0], ordered[-1])))


@dataclass
class _Spent:
    """Seconds by name, added to from many threads."""

    seconds: dict[str, float] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        begun = time.monotonic()
        try:
            yield
        finally:
            with self.lock:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - begun


class Timed:
    """Any port, with the time of each of its calls. If a call gives an iterator, the time of each piece counts too."""

    def __init__(self, port: object, name: str, spent: _Spent) -> None:
        self._port = port
        self._name = name
        self._spent = spent

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        return self._time(f"{self._name}.{name}", found) if callable(found) else found

    def _time(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed_call(*arguments: Any, **named: Any) -> Any:
            with self._spent.on(name):
                answer = call(*arguments, **named)
            return self._pieces(name, answer) if isinstance(answer, Iterator) else answer

        return timed_call

    def _pieces(self, name: str, answer: Iterator[Any]) -> Iterator[Any]:
        while True:
            with self._spent.on(name):
                try:
                    piece = next(answer)
                except StopIteration:
                    return
            yield piece


def time_stores(stores: Stores, spent: _Spent) -> Stores:
    return replace(
        stores,
        leases=cast("Any", Timed(stores.leases, "leases", spent)),
        datasets=cast("Any", Timed(stores.datasets, "datasets", spent)),
        runs=cast("Any", Timed(stores.runs, "runs", spent)),
        commits=cast("Any", Timed(stores.commits, "log", spent)),
    )


class TimedSource:
    """A source with the time of its planning."""

    def __init__(self, source: Source, spent: _Spent) -> None:
        self._source = source
        self._spent = spent

    @contextmanager
    def open_plan(
        self, spark: Callable[[], SparkSession], say: Callable[[str], None], requests: Sequence[SourceRequest] = ()
    ) -> Iterator[PlanSession]:
        opening = self._source.open_plan(spark, say, requests)
        with self._spent.on("ask the brokers"):
            session = opening.__enter__()
        try:
            yield cast("PlanSession", _TimedSession(session, self._spent))
        finally:
            opening.__exit__(None, None, None)

    def discover(self, spark: Callable[[], SparkSession]) -> Sequence[str]:
        return self._source.discover(spark)


class _TimedSession:
    def __init__(self, session: PlanSession, spent: _Spent) -> None:
        self._session = session
        self._spent = spent

    def plan(self, request: SourceRequest) -> UnitPlan:
        with self._spent.on("plan"):
            return self._session.plan(request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


class TinyFiles:
    """An extractor that reads nothing: it writes a file with as many rows as its WorkUnits have offsets."""

    def __init__(self, world: World) -> None:
        self._fs, _root = open_file_system(str(world.destination))
        self.spent_s = 0.0

    def describe_interruption(self, tag: str, plans: Sequence[UnitPlan]) -> Mapping[str, object] | None:  # noqa: ARG002  the port's
        return None

    def cancel(self, tag: str) -> None:
        pass

    def do_together(self, orders: Sequence[WorkOrder]) -> Sequence[Staged]:
        return [self.do(order) for order in orders]

    def do(self, order: WorkOrder) -> Staged:
        begun = time.monotonic()
        rows = sum_rows(order.units)
        leaf = Path(order.directory, "files")
        leaf.mkdir(parents=True)
        file = leaf / "part-0.parquet"
        pq.write_table(pa.table({"value": [b"row"] * rows}), file)
        identity = self._fs.find_identity(str(file))
        if identity is None:
            raise RuntimeError(f"{file} is gone")
        written = Output(Role.DATA, str(leaf), "", (DataFile(file.name, identity, rows),))
        self.spent_s += time.monotonic() - begun
        return Staged((written,), rows_read=rows, columns={"value": "binary"})
