"""Datasets of a sink whose rows come from Spark: real topics, real lanes, one session that is open already."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from demo.kafka.broker import KafkaBroker
from demo.kafka.registry_server import RegistryServer, serve_registry
from gobblin_assets.model.urn import Role
from tests.support.kafka import MakeTopic, Record, produce
from tests.support.kafka_records import avro_bytes
from tests.support.producing import find_ends
from tests.support.spark_sink import OpenSpark, SparkSink

Open = Callable[..., SparkSink]

VIEW = {
    "type": "record",
    "name": "View",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "page", "type": ["null", "string"], "default": None}],
}
VIEW_2 = {**VIEW, "fields": [*VIEW["fields"], {"name": "country", "type": "string", "default": "??"}]}  # type: ignore[misc]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    with serve_registry() as server:
        monkeypatch.setenv("GOBBLIN_KAFKA_SHOP_REGISTRY_URL", server.url)
        yield server


@pytest.fixture
def open_sink(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Open]:
    """``open_sink(topic, kafka options, **dataset options, sink={})`` of a topic of two partitions."""
    monkeypatch.setenv("GOBBLIN_KAFKA_SHOP_BOOTSTRAP_SERVERS", kafka_broker.bootstrap)
    opened: list[SparkSink] = []

    def make(
        topic: str, kafka: Mapping[str, Any], *, options: Mapping[str, Any] | None = None, **dataset: Any
    ) -> SparkSink:
        opened.append(
            SparkSink(
                database_url,
                str(tmp_path / "lake"),
                [{"topic": topic, "kafka": kafka, "quality": {"dead_letter_fraction_max": 1}, **dataset}],
                OpenSpark(spark),
                lambda: find_ends(kafka_broker.bootstrap, topic),
                options or {},
            )
        )
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def test_avro_is_published_by_two_lanes_and_a_column_that_comes_later_is_added(
    open_sink: Open, topic: MakeTopic, registry: RegistryServer, kafka_broker: KafkaBroker
) -> None:
    name = topic("views", partitions=2)
    first = registry.register(f"{name}-value", VIEW)
    values = [avro_bytes(VIEW, {"id": n, "page": f"/{n}"}, first) for n in range(20)]
    produce(kafka_broker.bootstrap, name, [Record(each, partition=n % 2) for n, each in enumerate(values)])
    produce(kafka_broker.bootstrap, name, [Record(b"broken", partition=1)])
    sink = open_sink(name, {"value": {"format": "avro"}, "keep": ["partition", "offset"]})

    sink.work()

    assert f"{name}: rows by Spark, since its values are Avro" in sink.lines
    assert sink.rows(name, "id", "page", "kafka_partition", "kafka_offset") == Counter(
        (n, f"/{n}", n % 2, n // 2) for n in range(20)
    )
    letters = sink.rows(name, "dead_letter_partition", "dead_letter_offset", "dead_letter_value", role=Role.DEAD_LETTER)
    assert letters == Counter([(1, 10, b"broken")])
    assert len(sink.files(name)) == 2, "each lane has a file of its own"
    assert list(sink.columns(name) or ()) == ["id", "page", "kafka_partition", "kafka_offset"]

    second = registry.register(f"{name}-value", VIEW_2)
    produce(
        kafka_broker.bootstrap, name, [Record(avro_bytes(VIEW_2, {"id": 20, "page": None, "country": "fr"}, second))]
    )
    sink.work()

    assert sink.rows(name, "id", "country")[20, "fr"] == 1
    assert sink.rows(name, "id").total() == 21
    assert (sink.columns(name) or {})["country"] == "string"


def test_json_without_a_schema_is_inferred_once(open_sink: Open, topic: MakeTopic, kafka_broker: KafkaBroker) -> None:
    name = topic("events", partitions=2)
    records = [Record(json.dumps({"n": n, "at": {"zone": "UTC"}}).encode(), partition=n % 2) for n in range(10)]
    produce(kafka_broker.bootstrap, name, records)
    sink = open_sink(name, {"value": {"format": "json"}})

    sink.work()
    produce(kafka_broker.bootstrap, name, [b'{"n": 10, "more": true}', b'{"n": "ten"}'])
    sink.work()

    assert sink.rows(name, "n") == Counter((n,) for n in range(11))
    assert sink.rows(name, "dead_letter_value", role=Role.DEAD_LETTER) == Counter([(b'{"n": "ten"}',)])
    assert sink.columns(name) == {"at": "struct<zone:string>", "n": "bigint"}
