"""Records that a worker of a sink copies in a second of its processor, from a topic that is full.

Bytes are compared with the loop that is written by hand, JSON with a run that Spark carries out. Every way has a
process of its own; Spark's stays, so that it is warm.
"""

import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.kafka_world import (
    DDL,
    PARTITIONS,
    Topic,
    count_rows,
    describe_topics,
    make_order_topic,
    open_broker,
    open_kafka_session,
    require_rows,
    run_topics,
    to_json,
)
from benchmarks.process_times import tree_s
from benchmarks.sink_world import bound_at_least, end_of, make_job, postgres_s, start_child, work_until
from benchmarks.tables import Options, Samples, Table, in_turns, seconds
from benchmarks.world import World, new_job, reopen_world

RECORDS, RECORDS_QUICK = 2_000_000, 200_000
BYTES_SHARE_MIN, JSON_SHARE_MIN = 0.9, 1.5

BYTES, BY_HAND = "bytes: a sink's worker", "bytes: the loop by hand"
JSON, SPARK = "JSON: a sink's worker", "JSON: a run by Spark, warm"

_KEEP = ["partition", "offset"]
_VALUES: Mapping[str, Mapping[str, Any]] = {
    BYTES: {"value": {"format": "bytes"}, "keep": _KEEP},
    JSON: {"value": {"format": "json", "schema": DDL}},
}
# So that the end of the topic is published soon; the bound of bytes is the default one.
_SINK = {"lanes": PARTITIONS, "roll": {"age_s": 2}}


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of the way's own processes, of Postgres, and of the clock."""

    cpu_s: float
    log_s: float
    wall_s: float


@dataclass(frozen=True, slots=True)
class _Place:
    world: World
    bootstrap: str
    topic: Topic
    spark: ProcessPoolExecutor


def measure(world: World, options: Options) -> list[Table]:
    with open_broker(world) as broker, _open_spark(world) as spark:
        records = RECORDS_QUICK if options.quick else RECORDS
        place = _Place(world, broker.bootstrap, make_order_topic(broker.bootstrap, "orders", records, to_json), spark)
        ways: dict[str, Callable[[], Spent]] = {
            BYTES: lambda: _by_worker(place, _VALUES[BYTES]),
            BY_HAND: lambda: _by_hand(place),
            JSON: lambda: _by_worker(place, _VALUES[JSON]),
            SPARK: lambda: _by_spark(place),
        }
        ways[SPARK]()  # compiles
        processor, log, wall = Samples(), Samples(), Samples()
        for name in in_turns(list(ways), options.runs):
            sys.stderr.write(f"  {name} …\n")
            spent = ways[name]()
            processor.add(name, spent.cpu_s)
            log.add(name, spent.log_s)
            wall.add(name, spent.wall_s)
    return [_describe(place.topic, processor, log, wall)]


@contextmanager
def _open_spark(world: World) -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_prepare_spark,
                             initargs=(str(world.home),)) as pool:  # fmt: skip
        yield pool
        pool.submit(_stop_spark).result()


def _by_worker(place: _Place, kafka: Mapping[str, Any]) -> Spent:
    job = make_job(place.world, place.bootstrap, place.topic.name, kafka, sink=_SINK)
    before_s = postgres_s(place.world.server)
    cpu_s, wall_s = work_until(job, lambda: job.count_published() >= place.topic.records, "the end of the topic")
    spent = Spent(cpu_s, postgres_s(place.world.server) - before_s, wall_s)
    _require_written(place)
    return spent


def _by_hand(place: _Place) -> Spent:
    directory = place.world.destination / uuid.uuid4().hex
    order = {"bootstrap": place.bootstrap, "topic": place.topic.name, "directory": str(directory)}
    with start_child(place.world, {}, order) as child:
        cpu_s, wall_s = end_of(child)
    _require_written(place)
    return Spent(cpu_s, 0.0, wall_s)


def _by_spark(place: _Place) -> Spent:
    pid = place.spark.submit(os.getpid).result()
    used_s, log_s, begun_s = tree_s(pid), postgres_s(place.world.server), time.monotonic()
    rows = place.spark.submit(_run_by_spark, place.bootstrap, place.topic.name).result()
    spent = Spent(tree_s(pid) - used_s, postgres_s(place.world.server) - log_s, time.monotonic() - begun_s)
    require_rows(rows, place.topic.records, SPARK)
    _require_written(place)
    return spent


def _require_written(place: _Place) -> None:
    """Count the rows at the destination, and remove them."""
    rows = 0
    for child in place.world.written():
        rows += sum(int(pq.read_metadata(file).num_rows) for file in child.rglob("*.parquet"))
        shutil.rmtree(child)
    require_rows(rows, place.topic.records, "the copy")


class _Session:
    """Spark's, in the process that keeps it."""

    world: World
    spark: SparkSession


def _prepare_spark(home: str) -> None:
    _Session.world = reopen_world(Path(home))
    _Session.spark = open_kafka_session(Path(home) / "by-spark")


def _run_by_spark(bootstrap: str, topic: str) -> int:
    dataset = {"topic": topic, "kafka": dict(_VALUES[JSON])}
    described = describe_topics(_Session.world.destination, new_job(), [dataset])
    return count_rows(run_topics(_Session.world, _Session.spark, bootstrap, described))


def _stop_spark() -> None:
    _Session.spark.stop()
    _Session.world.engine.dispose()


def _describe(topic: Topic, processor: Samples, log: Samples, wall: Samples) -> Table:
    rates = {name: topic.records / processor.median(name) for name in processor.by_name}
    rows = [
        (*processor.row(name), f"{rate:,.0f}", seconds(log.median(name)), seconds(wall.median(name)))
        for name, rate in rates.items()
    ]
    return Table(
        f"{topic.records:,} records of a topic in a second of the processor",
        ("way", "CPU, median", "min", "max", "records in a CPU second", "CPU of Postgres", "wall"),
        tuple(rows),
        (
            (
                f"A full topic of {PARTITIONS} partitions, values of {topic.value_bytes / topic.records:.0f} bytes; "
                "all write Parquet with zstd."
            ),
            "CPU: of the process and its children, without the start of the process and its imports.",
            f"A worker has {PARTITIONS} lanes and cuts each two seconds; its wall includes the wait for the last cut.",
            "The loop by hand writes one file, syncs nothing, and publishes nothing.",
            bound_at_least("bytes, of the loop's rate", rates[BYTES] / rates[BY_HAND], BYTES_SHARE_MIN),
            bound_at_least("JSON, of Spark's rate", rates[JSON] / rates[SPARK], JSON_SHARE_MIN),
        ),
    )
