"""The product beside its alternatives, each with the same records of the same topic.

Each writes the value's bytes, the partition and the offset as Parquet, if it can.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks import kafka_connect, kafka_dlt_environment
from benchmarks.kafka_world import (
    PARTITIONS,
    RECORDS,
    RECORDS_QUICK,
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
from benchmarks.tables import Options, Samples, Table, in_turns, seconds, verdict
from benchmarks.world import World, new_job, reopen_world

CHILD_S_MAX = 900.0

WARM = "the product, in a warm session"
FRESH = "the product, from a fresh process"
BY_HAND = "confluent-kafka and pyarrow by hand, one process"
CONNECT = "Kafka Connect's file sink, lines of text"
DLT_ROWS = "dlt, with rows as its template has them"
DLT_TABLES = "dlt, with Arrow tables"

_Way = Callable[[Path], tuple[float, float]]
"""Copies the topic into a directory; returns the seconds since the start of its process, and of the copying itself."""


@dataclass(frozen=True, slots=True)
class Place:
    world: World
    spark: SparkSession
    bootstrap: str
    topic: Topic


def measure(world: World, options: Options) -> list[Table]:
    records = RECORDS_QUICK if options.quick else RECORDS
    with open_broker(world) as broker:
        topic = make_order_topic(broker.bootstrap, "orders", records, to_json)
        spark = open_kafka_session(world.home)
        try:
            return [_measure(Place(world, spark, broker.bootstrap, topic), options)]
        finally:
            spark.stop()


def _measure(place: Place, options: Options) -> Table:
    ways, missing = _plan_ways(place)
    _in_warm_session(place, place.world.home / "unused")  # compiles
    whole, copying = Samples(), Samples()
    names = list(ways)
    for name in in_turns(names, options.runs):
        directory = place.world.home / "copies" / uuid.uuid4().hex
        directory.parent.mkdir(exist_ok=True)
        sys.stderr.write(f"  {name} …\n")
        whole_s, copying_s = ways[name](directory)
        whole.add(name, whole_s)
        copying.add(name, copying_s)
        shutil.rmtree(directory, ignore_errors=True)
    rows = [
        (
            name,
            *copying.row(name)[1:],
            f"{place.topic.records / copying.median(name):,.0f}",
            "—" if name == WARM else seconds(whole.median(name)),
            f"{copying.median(name) / copying.median(WARM):.2f}",
        )
        for name in names
    ]
    ours = copying.median(WARM)
    notes = (
        f"A topic of {PARTITIONS} partitions, values of {place.topic.value_bytes / place.topic.records:.0f} bytes.",
        "The copying itself excludes starting processes and imports; for Connect it begins at the file's first line.",
        "The product also syncs its files and publishes them by its log, so a kill neither doubles nor loses rows.",
        "Connect's file sink writes values as lines of text in one task, without compression and without offsets.",
        "dlt's Kafka source is a template from a repository; here a consumer of a few equivalent lines replaces it.",
        "This measure makes a fresh environment for dlt; dlt's own defaults decide what happens to files.",
        *missing,
        *(verdict(f"The product, against {name}", ours, copying.median(name)) for name in names[2:]),
    )
    return Table(
        f"{place.topic.records:,} records of a topic, by the product and by others",
        ("way", "the copying itself", "min", "max", "records/s", "with its process", "of the product's time"),
        tuple(rows),
        notes,
    )


def _plan_ways(place: Place) -> tuple[dict[str, _Way], list[str]]:
    """The ways that work here, and why the others don't."""
    bootstrap, topic = place.bootstrap, place.topic
    ways: dict[str, _Way] = {
        WARM: lambda directory: _in_warm_session(place, directory),
        FRESH: lambda _directory: _in_fresh_process(place),
        BY_HAND: lambda directory: _by_script(
            topic, [sys.executable, "-m", "benchmarks.kafka_consumer", bootstrap, topic.name, str(directory)], directory
        ),
    }
    missing = []
    try:
        kafka_connect.resolve()
        ways[CONNECT] = lambda directory: _by_connect(place, directory)
    except Exception as error:  # noqa: BLE001  every reason is reported
        missing.append(f"Kafka Connect is not measured: {str(error).splitlines()[0]}")
    try:
        python = kafka_dlt_environment.make(place.world.home / "dlt")
        for name, way in ((DLT_ROWS, "dicts"), (DLT_TABLES, "arrow")):
            command = [str(python), str(kafka_dlt_environment.SCRIPT), bootstrap, topic.name]
            ways[name] = lambda directory, command=command, way=way: _by_script(
                topic, [*command, str(directory), way], directory
            )
    except RuntimeError as error:
        missing.append(f"dlt is not measured: {error}")
    return ways, missing


def _in_warm_session(place: Place, _directory: Path) -> tuple[float, float]:
    begun = time.monotonic()
    run_once(place.world, place.spark, place.bootstrap, place.topic.name, place.topic.records)
    spent = time.monotonic() - begun
    _clear(place.world)
    return spent, spent


def run_once(world: World, spark: SparkSession, bootstrap: str, topic: str, records: int) -> None:
    dataset = {
        "topic": topic,
        "kafka": {"value": {"format": "bytes"}, "keep": ["partition", "offset"]},
    }
    report = run_topics(world, spark, bootstrap, describe_topics(world.destination, new_job(), [dataset]))
    require_rows(count_rows(report), records, "the product")


def _in_fresh_process(place: Place) -> tuple[float, float]:
    order = {
        "home": str(place.world.home),
        "bootstrap": place.bootstrap,
        "topic": place.topic.name,
        "records": place.topic.records,
    }
    begun = time.monotonic()
    said = _run([sys.executable, "-m", "benchmarks.kafka_alternatives"], json.dumps(order))
    whole_s = time.monotonic() - begun
    _clear(place.world)
    return whole_s, float(said[-1])


def _by_connect(place: Place, directory: Path) -> tuple[float, float]:
    copied = kafka_connect.copy(place.bootstrap, place.topic, directory)
    return copied.whole_s, copied.copying_s


def _by_script(topic: Topic, command: Sequence[str], directory: Path) -> tuple[float, float]:
    begun = time.monotonic()
    records, spent_s = _run(command)[-1].split()
    whole_s = time.monotonic() - begun
    require_rows(int(records), topic.records, command[0])
    # dlt keeps another copy in the folder of its pipeline, and its own tables beside the data.
    lake = directory / kafka_dlt_environment.LAKE
    found = (lake if lake.exists() else directory).rglob("*.parquet")
    written = (file for file in found if "_dlt" not in str(file.relative_to(directory)))
    require_rows(sum(int(pq.read_metadata(file).num_rows) for file in written), topic.records, command[0])
    return whole_s, float(spent_s)


def _run(command: Sequence[str], order: str = "") -> list[str]:
    done = subprocess.run(
        command,
        input=order,
        capture_output=True,
        text=True,
        timeout=CHILD_S_MAX,
        check=False,
        env={**os.environ, **kafka_dlt_environment.VARIABLES},
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[:3]} failed: {done.stderr[-2000:]}")
    return done.stdout.splitlines()


def _clear(world: World) -> None:
    for child in world.written():
        shutil.rmtree(child)


def _main() -> None:
    order = json.loads(sys.stdin.read())
    world = reopen_world(Path(order["home"]))
    # A folder of its own, so that two JVMs do not share one.
    spark = open_kafka_session(world.home / "fresh")
    begun = time.monotonic()
    run_once(world, spark, order["bootstrap"], order["topic"], int(order["records"]))
    spent_s = time.monotonic() - begun
    spark.stop()
    world.engine.dispose()
    print(spent_s)


if __name__ == "__main__":
    _main()
