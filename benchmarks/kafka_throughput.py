"""How fast a topic becomes Parquet: by the product, and by Spark's own Kafka read and write of the same offsets."""

import json
import os
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.avro.functions import from_avro

from benchmarks.kafka_world import (
    AVRO,
    DDL,
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
    to_avro,
    to_json,
)
from benchmarks.tables import Laps, Options, Samples, Table, in_turns, seconds, timed, verdict_at_least
from benchmarks.world import World, new_job
from demo.kafka.registry_server import serve_registry
from gobblin_assets import failpoints
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.rows.parquet_writer import write_parquet

SHARE_MIN = 0.95
FRAME_BYTES = 5

LETTER = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value")

A_TASK_EACH = {"task_rows_min": 1}

_ENDS = {
    Failpoint.LEASE_TAKEN: "start: probe, register, leases",
    Failpoint.SEQUENCE_BEGUN: "recover, ask the brokers, plan",
    Failpoint.ATTEMPT_REGISTERED: "register the attempt",
    Failpoint.ATTEMPT_WRITTEN: "Spark's read and write, footers",
    Failpoint.ATTEMPT_DURABLE: "sync files and directories",
    Failpoint.FINISH_COMMITTED: "stage, seal, execute, finish",
    Failpoint.CLEANUP_REMOVED: "events, cleanup",
}


@dataclass(frozen=True, slots=True)
class Decoded:
    """``columns`` selects from ``content``, which is decoded once; ``is_bad`` says whether decoding failed."""

    content: Column
    columns: tuple[str, ...]
    is_bad: Column


@dataclass(frozen=True, slots=True)
class Format:
    """``select`` reads the values without the product; ``value`` is the option of a job.

    ``decode`` gives the same values and whether decoding failed, so that bad records can be set aside. None: no record
    can be bad.
    """

    name: str
    topic: Topic
    select: Callable[[DataFrame], DataFrame]
    value: Mapping[str, Any]
    decode: Callable[[], Decoded] | None = None

    @property
    def bare(self) -> str:
        return f"{self.name}: bare"

    @property
    def careful(self) -> str:
        return f"{self.name}: bare, bad records set aside"

    @property
    def ours(self) -> str:
        return f"{self.name}: the product"


@dataclass(frozen=True, slots=True)
class Place:
    """What every write needs."""

    world: World
    spark: SparkSession
    bootstrap: str
    registry_url: str


def measure(world: World, options: Options) -> list[Table]:
    records = RECORDS_QUICK if options.quick else RECORDS
    with serve_registry() as registry, open_broker(world) as broker:
        schema_id = registry.register("avro_orders-value", AVRO)
        json_topic = make_order_topic(broker.bootstrap, "json_orders", records, to_json)
        avro_topic = make_order_topic(broker.bootstrap, "avro_orders", records, to_avro(schema_id))
        spark = open_kafka_session(world.home)
        try:
            place = Place(world, spark, broker.bootstrap, registry.url)
            return _measure(place, options, plan_formats(json_topic, avro_topic))
        finally:
            spark.stop()


def plan_formats(json_topic: Topic, avro_topic: Topic) -> list[Format]:
    return [
        Format("bytes", json_topic, lambda raw: raw.select("value"), {"format": "bytes"}),
        Format("text", json_topic, lambda raw: raw.select(_text()), {"format": "string"}, _decode_text),
        Format(
            "JSON", json_topic, lambda raw: raw.select(f.from_json(_text(), DDL).alias("order")).select("order.*"),
            {"format": "json", "schema": DDL}, _decode_json,
        ),
        Format("Avro", avro_topic, lambda raw: raw.select(_order().alias("order")).select("order.*"),
               {"format": "avro"}, _decode_avro),
    ]  # fmt: skip


def _text() -> Column:
    return f.col("value").cast("string").alias("value")


def _order(**options: str) -> Column:
    record = f.expr(f"substring(value, {FRAME_BYTES + 1}, length(value) - {FRAME_BYTES})")
    return from_avro(record, json.dumps(AVRO), options)


def _decode_text() -> Decoded:
    return Decoded(_text(), ("content as value",), ~f.is_valid_utf8("content"))


def _decode_json() -> Decoded:
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "corrupt"}
    fields = tuple(f"content.{field.name}" for field in t.StructType.fromDDL(DDL))
    return Decoded(
        f.from_json(_text(), f"{DDL}, corrupt string", options), fields, f.col("content.corrupt").isNotNull()
    )


def _decode_avro() -> Decoded:
    # An unreadable record becomes NULLs, and every good order has a number.
    fields = tuple(f"content.{field['name']}" for field in AVRO["fields"])
    return Decoded(_order(mode="PERMISSIVE"), fields, f.col(fields[0]).isNull())


def _measure(place: Place, options: Options, formats: list[Format]) -> list[Table]:
    samples, phases = Samples(), Samples()
    plain = formats[0]
    several = f"{plain.ours}, a task for each partition"
    ways: dict[str, tuple[Format, Callable[[], object]]] = {}
    for each in formats:
        ways[each.bare] = (each, lambda each=each: write_bare(place, each))
        if each.decode is not None:
            ways[each.careful] = (each, lambda each=each: write_carefully(place, each))
        ways[each.ours] = (each, lambda each=each: write_ours(place, each, {}))
    ways[several] = (plain, lambda: write_ours(place, plain, A_TASK_EACH))
    for each, way in ways.values():
        way()  # the first of each compiles
        require_rows(_clear(place.world), each.topic.records, each.name)
    names = list(ways)
    for name in in_turns(names, options.runs):
        laps = Laps()
        with failpoints.install(lambda point, laps=laps: laps.lap(_ENDS[point]) if point in _ENDS else None):
            samples.add(name, timed(ways[name][1]))
        if name == plain.ours:
            laps.lap("end of the run")
            phases.add_all(laps.spent)
        _clear(place.world)
    detail = Table(f"Where a run of the product spends its time ({plain.name}, one task)",
                   ("phase", "median", "min", "max"), tuple(phases.row(name) for name in phases.by_name),
                   (f"The bare read and write beside it: {seconds(samples.median(plain.bare))}.",))  # fmt: skip
    return [_compare(samples, formats, {name: each for name, (each, _way) in ways.items()}), detail]


def _compare(samples: Samples, formats: Sequence[Format], ways: Mapping[str, Format]) -> Table:
    plain = formats[0].topic
    cores = len(os.sched_getaffinity(0))
    rows = [
        samples.row(
            name,
            f"{each.topic.records / samples.median(name):,.0f}",
            f"{each.topic.records / samples.median(name) / cores:,.0f}",
            f"{each.topic.value_bytes / samples.median(name) / 1e6:.1f}",
            f"{each.topic.value_bytes / samples.median(name) / 1e6 / cores:.1f}",
            f"{samples.median(each.bare) / samples.median(name):.2f}",
        )
        for name, each in ways.items()
    ]
    # Spark alone, doing the same: where records can be bad, they are set aside.
    equals = {each.ours: each.bare if each.decode is None else each.careful for each in formats}
    return Table(
        f"{plain.records:,} records of a topic as Parquet, by the product and by Spark alone",
        ("way", "median", "min", "max", "records/s", "per core", "MB/s", "per core", "of the bare one"),
        tuple(rows),
        (
            f"A topic of {PARTITIONS} partitions on a broker on the same machine; its records are not compressed.",
            f"Values are {_value_bytes(plain):.0f} bytes of JSON, {_value_bytes(formats[-1].topic):.0f} of Avro.",
            "Bytes and text read the JSON topic. MB count only the values.",
            "Bare: Spark's Kafka source with the same offsets in the same session, its own functions, the same writer.",
            "An undecodable record becomes NULLs in the bare read; the product sets it aside, with the reason.",
            "Setting aside costs a check of each record, columns of NULLs in good records, and two directories.",
            "Text after a JSON value makes the record bad for the product; Spark's from_json ignores such text.",
            f"One task reads all partitions, as by default; in the last row the number of tasks is {PARTITIONS}.",
            f"Per core: of {cores}, which the broker uses as well.",
            *(
                verdict_at_least(
                    f"{ours}, beside {other}", samples.median(other) / samples.median(ours), SHARE_MIN, "times"
                )
                for ours, other in equals.items()
            ),
        ),
    )


def _value_bytes(topic: Topic) -> float:
    return topic.value_bytes / topic.records


def write_bare(place: Place, each: Format) -> None:
    """Read and write without the product."""
    write_parquet(each.select(_read(place, each.topic)), _somewhere(place))


def write_carefully(place: Place, each: Format) -> None:
    """The same, but undecodable records go to a directory of their own, with their place and the reason."""
    if each.decode is None:
        raise ValueError(f"nothing can be wrong with {each.name}")
    decoded = each.decode()
    judged = _read(place, each.topic).withColumn("content", decoded.content).withColumn("is_bad", decoded.is_bad)
    kept = [f.when(f.col("is_bad"), f.col(name)).alias(f"bad_{name}") for name in LETTER]
    reason = f.when(f.col("is_bad"), f.lit("it can't be decoded")).alias("reason")
    columns = [f.expr(column) for column in decoded.columns]
    write_parquet(judged.select(*columns, reason, *kept, "is_bad"), _somewhere(place), partition_columns=["is_bad"])


def _somewhere(place: Place) -> str:
    return f"file://{place.world.destination / 'bare' / uuid.uuid4().hex}"


def _read(place: Place, topic: Topic) -> DataFrame:
    starts = {str(number): 0 for number in range(topic.partitions)}
    ends = {str(number): topic.records // topic.partitions for number in range(topic.partitions)}
    return (
        place.spark.read.format("kafka")
        .option("kafka.bootstrap.servers", place.bootstrap)
        .option("assign", json.dumps({topic.name: list(range(topic.partitions))}))
        .option("startingOffsets", json.dumps({topic.name: starts}))
        .option("endingOffsets", json.dumps({topic.name: ends}))
        .load()
    )


def write_ours(place: Place, each: Format, split: Mapping[str, int]) -> None:
    dataset = {"topic": each.topic.name, "kafka": {"value": dict(each.value)}, "split": dict(split)}
    described = describe_topics(place.world.destination, new_job(), [dataset])
    report = run_topics(place.world, place.spark, place.bootstrap, described, registry_url=place.registry_url)
    require_rows(count_rows(report), each.topic.records, each.ours)


def _clear(world: World) -> int:
    """Remove what was written; returns its number of rows."""
    rows = 0
    for child in world.written():
        rows += sum(int(pq.read_metadata(file).num_rows) for file in child.rglob("*.parquet"))
        shutil.rmtree(child)
    return rows
