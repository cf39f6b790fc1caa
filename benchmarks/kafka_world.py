"""A private broker for the figures, topics of made-up orders in it, and runs of jobs over these topics."""

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from benchmarks.world import World, run_all
from demo.kafka.broker import KafkaBroker, start_broker
from gobblin_assets.dagster.resources.kinds import KafkaConnectionResource
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.ingest.extractor import SparkExtractor
from gobblin_assets.run.job_kind import Worker
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.run_values import RunReport
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.source_port import Source
from gobblin_assets.spark.session import open_session
from gobblin_assets.spark.spark_settings import SparkSettings
from gobblin_assets.spec.job_parsing import parse_job

RECORDS = 2_000_000
RECORDS_QUICK = 200_000
PARTITIONS = 4
TIMEOUT_S = 60.0

_DELIVERY_S_MAX = 300.0
_MADE_S_MAX = 300.0
_POLL_S = 0.2
_TOPICS_PER_CALL = 50
_STATUSES = ("placed", "paid", "packed", "shipped", "returned")
_START_MS = 1_748_822_400_000

DDL = "order_id bigint, customer string, status string, amount double, items int, placed_at bigint, note string"
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order_id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "status", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "items", "type": "int"},
        {"name": "placed_at", "type": "long"},
        {"name": "note", "type": "string"},
    ],
}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and what was sent to it. ``value_bytes``: of the values alone; ``line_bytes``: with a line's end each."""

    name: str
    partitions: int
    records: int
    value_bytes: int

    @property
    def line_bytes(self) -> int:
        return self.value_bytes + self.records


@contextmanager
def open_broker(
    world: World, *, heap_mb: int = 1_024, settings: Mapping[str, str] | None = None
) -> Iterator[KafkaBroker]:
    """One node on this machine, in the folder of the figures."""
    with start_broker(world.home / f"kafka-{uuid.uuid4().hex[:6]}", heap_mb=heap_mb, settings=settings) as broker:
        yield broker


def open_kafka_session(home: Path) -> SparkSession:
    settings = SparkSettings(home / "spark", master="local[2]", conf={"spark.driver.memory": "2g"},
                             capabilities=("avro", "kafka"))  # fmt: skip
    return open_session(settings)


def make_topics(bootstrap: str, names: Sequence[str], partitions: int) -> None:
    """Make topics and wait until all have leaders: the broker answers before it has made thousands of logs."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for start in range(0, len(names), _TOPICS_PER_CALL):
        chosen = names[start : start + _TOPICS_PER_CALL]
        made = admin.create_topics(
            [NewTopic(name, num_partitions=partitions, replication_factor=1) for name in chosen],
            operation_timeout=TIMEOUT_S,
        )
        for each in made.values():
            each.result(TIMEOUT_S)
    end = time.monotonic() + _MADE_S_MAX
    while not _are_led(admin, names, partitions):
        if time.monotonic() > end:
            raise RuntimeError(f"{len(names)} topics of {partitions} partitions have no leaders after {_MADE_S_MAX} s")
        time.sleep(_POLL_S)


def _are_led(admin: AdminClient, names: Sequence[str], partitions: int) -> bool:
    known = admin.list_topics(timeout=TIMEOUT_S).topics
    leaders = [each.leader for name in names if name in known for each in known[name].partitions.values()]
    return len(leaders) == len(names) * partitions and min(leaders) >= 0


def make_order_topic(bootstrap: str, name: str, count: int, encode: Callable[[dict[str, Any]], bytes]) -> Topic:
    """A topic of ``count`` different orders, spread evenly over the partitions."""
    make_topics(bootstrap, [name], PARTITIONS)
    value_bytes = 0

    def values() -> Iterator[tuple[str, int, bytes]]:
        nonlocal value_bytes
        for number in range(count):
            value = encode(make_order(number))
            value_bytes += len(value)
            yield name, number % PARTITIONS, value

    send(bootstrap, values())
    return Topic(name, PARTITIONS, count, value_bytes)


def make_order(number: int) -> dict[str, Any]:
    return {
        "order_id": number,
        "customer": f"customer-{number * 7_919 % 100_003:06d}",
        "status": _STATUSES[number % len(_STATUSES)],
        "amount": number * 37 % 100_000 / 100,
        "items": number % 9 + 1,
        "placed_at": _START_MS + number * 250,
        "note": f"left with the neighbour at number {number * 104_729 % 1_000_003}",
    }


def to_json(order: Mapping[str, Any]) -> bytes:
    return json.dumps(order, separators=(",", ":")).encode()


def to_avro(schema_id: int) -> Callable[[Mapping[str, Any]], bytes]:
    """An encoder for Confluent's wire format."""
    schema, head = fastavro.parse_schema(AVRO), b"\0" + schema_id.to_bytes(4, "big")

    def encode(order: Mapping[str, Any]) -> bytes:
        body = BytesIO()
        fastavro.schemaless_writer(body, schema, dict(order))
        return head + body.getvalue()

    return encode


def send(bootstrap: str, values: Iterator[tuple[str, int, bytes]]) -> None:
    """Send records (topic, partition, value) and wait until all are acknowledged."""
    failures: list[str] = []

    def take(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error.str())

    producer = Producer({
        "bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 50, "batch.size": 1_000_000,
        "delivery.report.only.error": True,
    })  # fmt: skip
    for topic, partition, value in values:
        while True:
            try:
                producer.produce(topic, value, partition=partition, on_delivery=take)
                break
            except BufferError:
                producer.poll(1.0)
    if producer.flush(_DELIVERY_S_MAX) or failures:
        raise RuntimeError(f"not all records were delivered: {failures[:1]}")


def describe_topics(
    destination: Path, job: str, datasets: Sequence[Mapping[str, Any]], **options: Any
) -> dict[str, Any]:
    source = {"type": "kafka", "connection": "bench"}
    return {"job": job, "source": source, "destination": str(destination), "datasets": list(datasets), **options}


def run_topics(
    world: World,
    spark: SparkSession,
    bootstrap: str,
    described: Mapping[str, Any],
    *,
    registry_url: str | None = None,
    stores: Stores | None = None,
    wrap: Callable[[FileSystem], FileSystem] = lambda fs: fs,
    wrap_source: Callable[[Source], Source] = lambda source: source,
    open_extractor: Callable[[], Worker] | None = None,
) -> RunReport:
    """Publish what is new in the topics of a job, by the same parts that its asset uses.

    ``stores`` replaces the run's log, ``wrap`` its file system; the extractor still uses the plain file system.
    RuntimeError unless every dataset was published: a failed run gives no figure.
    """
    spec = parse_job(dict(described))
    plain, root = open_file_system(spec.destination, umask=spec.umask)
    fs = wrap(plain)
    own = open_stores(world.engine)
    kafka = KafkaConnectionResource(bootstrap_servers=bootstrap, registry_url=registry_url)
    return run_all(
        spec,
        fs,
        root,
        stores=stores or own,
        source=wrap_source(kafka.open_source(spec)),
        open_extractor=open_extractor or (lambda: SparkExtractor(spark, plain, own.published)),
        spark=spark,
    )


def count_rows(report: RunReport) -> int:
    return sum(each.publication.row_count for each in report.datasets if each.publication is not None)


def require_rows(found: int, expected: int, what: str) -> None:
    if found != expected:
        raise RuntimeError(f"{what}: expected {expected:,} rows, found {found:,}")
