"""Datasets of a sink whose rows come from Spark: real topics, real lanes, one session that is open already."""

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from demo.kafka.broker import KafkaBroker
from demo.kafka.registry_server import RegistryServer, serve_registry
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.urn import Role
from gobblin_assets.sources.kafka.epoch_markers import EPOCH_HEADER
from tests.support.kafka import (
    MakeTopic,
    Record,
    add_partitions,
    produce,
    produce_aborted,
    produce_committed,
)
from tests.support.kafka_records import avro_bytes, view_descriptors
from tests.support.postgres import Database
from tests.support.postgres_rows import CONNECTION, variables_for
from tests.support.producing import find_ends
from tests.support.spark_sink import OpenSpark, SparkSink

pytestmark = pytest.mark.turns(of=8)

Open = Callable[..., SparkSink]

FIELDS: list[dict[str, object]] = [
    {"name": "id", "type": "long"},
    {"name": "page", "type": ["null", "string"], "default": None},
]
VIEW = {"type": "record", "name": "View", "namespace": "shop", "fields": FIELDS}
VIEW_2 = {**VIEW, "fields": [*FIELDS, {"name": "country", "type": "string", "default": "??"}]}


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
        topic: str,
        kafka: Mapping[str, Any],
        *,
        options: Mapping[str, Any] | None = None,
        by_spark: bool = False,
        **dataset: Any,
    ) -> SparkSink:
        opened.append(
            SparkSink(
                database_url,
                str(tmp_path / "lake"),
                [{"topic": topic, "kafka": kafka, "quality": {"dead_letter_fraction_max": 1}, **dataset}],
                OpenSpark(spark),
                lambda: find_ends(kafka_broker.bootstrap, topic),
                options or {},
                by_spark,
            )
        )
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.mark.core
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
    assert len(sink.files(name)) >= 2, "each lane has files of its own"
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


@pytest.mark.turns("what readers of topics meet", of=8)
def test_converters_row_policies_and_directories_by_value_are_those_of_a_run(
    open_sink: Open, topic: MakeTopic, kafka_broker: KafkaBroker
) -> None:
    name = topic("orders", partitions=2)
    values = [{"n": n, "country": "fr" if n % 3 else "it", "at": 1_359_633_600_000 + n * 43_200_000} for n in range(12)]
    records = [Record(json.dumps(each).encode(), partition=n % 2) for n, each in enumerate(values)]
    produce(kafka_broker.bootstrap, name, [*records, Record(b"{", partition=1), Record(None, partition=0)])
    sink = open_sink(
        name,
        {"value": {"format": "json", "schema": "n bigint, country string, at bigint"}, "on_tombstone": "drop"},
        converters=[{"where": "n <> 4"}, {"sql": {"half": "n / 2"}}],
        quality={
            "dead_letter_fraction_max": 1,
            "rows": [{"name": "small", "check": "n < 10", "on_failure": "err_file"}],
        },
        writer={"partition_by": ["country"], "event_time": {"column": "at"}},
        partitions={"kind": "monthly", "start": "2020-01-01"},
    )

    sink.work()

    assert sink.rows(name, "n", "half") == Counter((n, n / 2) for n in range(10) if n != 4)
    assert sink.rows(name, "n", role=Role.QUARANTINE) == Counter([(10,), (11,)])
    assert sink.rows(name, "dead_letter_value", role=Role.DEAD_LETTER) == Counter([(b"{",)])
    read = Counter(tuple(row) for row in sink.read(name).select("n", "country", "event_time").collect())
    assert read == Counter(
        (n, "fr" if n % 3 else "it", f"2013-{(dt.date(2013, 1, 31) + dt.timedelta(days=(n + 1) // 2)):%m-%d}")
        for n in range(10)
        if n != 4
    )


def end_epoch(broker: KafkaBroker, topic: str, epoch: int, partitions: int = 2) -> None:
    headers = [(EPOCH_HEADER, b"%d" % epoch)]
    produce(broker.bootstrap, topic, [Record(b"", partition=n, headers=headers) for n in range(partitions)])


@pytest.mark.core
def test_markers_of_epochs_and_aborted_records_are_no_rows(
    open_sink: Open, topic: MakeTopic, kafka_broker: KafkaBroker
) -> None:
    name = topic("epochs", partitions=2)

    produce(
        kafka_broker.bootstrap,
        name,
        [Record(b'{"n":{"a":1}}', headers=[("trace", b"x")]), Record(b'{"n":{"a":2}}', partition=1)],
    )
    end_epoch(kafka_broker, name, 1)
    produce_aborted(kafka_broker.bootstrap, name, [Record(b'{"n":{"a":3}}')])
    produce_committed(kafka_broker.bootstrap, name, [Record(b'{"n":{"a":4}}'), Record(b'{"n":', partition=1)])
    end_epoch(kafka_broker, name, 2)
    sink = open_sink(
        name,
        {"value": {"format": "json", "schema": "n map<string,int>"}, "keep": ["headers"]},
        options={"sink": {"lanes": 2, "every_s": 0.1, "barriers": "log", "roll": {"age_s": 0.0}}},
    )

    sink.work()

    assert sink.rows(name, "n") == Counter((f"[('a', {n})]",) for n in (1, 2, 4))
    assert sink.rows(name, "dead_letter_value", role=Role.DEAD_LETTER) == Counter([(b'{"n":',)])
    assert f"{name}: rows by Spark, since its values are JSON of types that only Spark decodes" in sink.lines


@pytest.mark.turns("what readers of topics meet", of=8)
def test_arrow_and_spark_publish_the_same_rows_and_the_same_dead_letters(
    open_sink: Open, topic: MakeTopic, kafka_broker: KafkaBroker
) -> None:
    name = topic("both", partitions=2)
    values = [
        *(b'{"n":%d,"price":"%d.50","at":"2013-01-31T0%d:00:00Z","tags":["a",null]}' % (n, n, n) for n in range(8)),
        *(b'{"n":1.5}', b'{"n":1,"n":2}', b"\xff", b"null", b"[]", b'{"price":1.999}', b'{"at":"2013-02-30"}', b"{}"),
    ]
    records = [Record(each, key=b"k%d" % n, partition=n % 2, timestamp_ms=1_000 + n) for n, each in enumerate(values)]
    produce(
        kafka_broker.bootstrap, name, [*records, Record(None, partition=1, timestamp_ms=9_000, headers=[("h", b"x")])]
    )
    kafka = {
        "value": {"format": "json", "schema": "n bigint, price decimal(9,2), at timestamp, tags array<string>"},
        "key": {"format": "string"},
        "keep": ["topic", "key", "headers", "partition", "offset", "timestamp", "timestamp_type"],
    }
    found = []
    for job in ("arrow", "spark"):
        sink = open_sink(name, kafka, options={"job": job}, by_spark=job == "spark")
        sink.work()
        assert bool(sink.spark.opened) == (job == "spark")
        found.append(sink)
    arrow, spark = found

    assert arrow.columns(name) == spark.columns(name)
    for role, count in {Role.DATA: 10, Role.DEAD_LETTER: 7}.items():
        by_arrow, by_spark = arrow.read(name, role), spark.read(name, role)
        assert by_arrow.dtypes == by_spark.dtypes
        rows = Counter(repr(row) for row in by_arrow.collect())
        assert rows == Counter(repr(row) for row in by_spark.collect())
        assert rows.total() == count


def test_of_lanes_that_all_fail_only_some_are_tried_by_themselves(
    open_sink: Open, topic: MakeTopic, kafka_broker: KafkaBroker
) -> None:
    name = topic("hopeless", partitions=2)
    add_partitions(kafka_broker.bootstrap, name, 8)
    produce(kafka_broker.bootstrap, name, [Record(b"x", partition=n) for n in range(8)])
    end_epoch(kafka_broker, name, 1, partitions=8)
    sink = open_sink(
        name,
        {"value": {"format": "string"}},
        quality={"rows": [{"name": "never", "check": "false", "on_failure": "fail"}]},
        options={"sink": {"lanes": 8, "barriers": "log", "roll": {"age_s": 0.0}}},
    )

    sink.work(lambda: sum("backs off" in line for line in sink.lines) == 8)

    assert sink.count_attempts() == 8 + 4 + 2 + 1 + 1 + 2, "after the sixth job that failed, no other one is tried"
    assert sink.files(name) == []


def test_a_lane_whose_rows_fail_rests_and_the_others_are_published(
    open_sink: Open, topic: MakeTopic, kafka_broker: KafkaBroker
) -> None:
    name = topic("halves", partitions=2)
    produce(kafka_broker.bootstrap, name, [Record(b'{"n":%d}' % n, partition=n % 2) for n in range(6)])
    sink = open_sink(
        name,
        {"value": {"format": "json", "schema": "n bigint"}},
        quality={"rows": [{"name": "even", "check": "n <> 3", "on_failure": "fail"}]},
    )

    sink.work(
        lambda: sink.watermarks().get(f"{name}:0") == 3 and any("lane 1: backs off" in line for line in sink.lines)
    )

    assert sink.rows(name, "n") == Counter([(0,), (2,), (4,)])
    assert sink.watermarks()[f"{name}:1"] == 0
    sink.datasets = [{**sink.datasets[0], "quality": {}, "converters": [{"where": "n <> 3"}]}]
    sink.work()
    assert sink.rows(name, "n") == Counter([(0,), (1,), (2,), (4,), (5,)])


def test_a_column_of_another_type_is_refused_before_a_row_is_written_and_other_datasets_go_on(
    open_sink: Open, topic: MakeTopic, kafka_broker: KafkaBroker
) -> None:
    name, other = topic("retyped", partitions=2), topic("sound", partitions=2)
    produce(kafka_broker.bootstrap, name, [Record(b'{"n":1}')])
    sink = open_sink(name, {"value": {"format": "json", "schema": "n bigint"}}, converters=[{"sql": {"m": "n"}}])
    sink.work()
    produce(kafka_broker.bootstrap, name, [Record(b'{"n":2}')])
    produce(kafka_broker.bootstrap, other, [Record(b"a")])
    sink.datasets = [{**sink.datasets[0], "converters": [{"sql": {"m": "array(n)"}}]}, {"topic": other}]

    sink.work(lambda: any("backs off" in line for line in sink.lines))
    produce(kafka_broker.bootstrap, other, [Record(b"b", partition=1)])
    sink.work(lambda: [sink.watermarks().get(f"{other}:{n}") for n in range(2)] == [1, 1])

    said = [line for line in sink.lines if "backs off" in line]
    assert all(f"datasets[{name}].schema_change" in line for line in said)
    assert sink.rows(name, "n", "m") == Counter([(1, 1)])
    assert sink.rows(other, "value") == Counter([(b"a",), (b"b",)])
    assert any(line.startswith(f"{name}: rows by Spark") for line in sink.lines)
    assert not any(line.startswith(f"{other}: rows by Spark") for line in sink.lines)


def test_only_parquet_comes_from_spark(open_sink: Open, topic: MakeTopic) -> None:
    sink = open_sink(topic("csv", partitions=2), {"value": {"format": "avro"}}, options={"sink": {"format": "csv"}})

    with pytest.raises(RejectedError, match=r"sink\.format: .* since its values are Avro"):
        sink.work()


@pytest.mark.turns("what readers of topics meet", of=8)
def test_leases_are_kept_while_spark_decodes_protobuf_for_longer_than_they_last(
    open_sink: Open, topic: MakeTopic, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    name = topic("slow", partitions=2)
    # The fields 1, which is the id, and 3, which is the name.
    values = [*(b"\x08%c\x1a\x02hi" % n for n in range(1, 9)), b"\x08"]
    produce(kafka_broker.bootstrap, name, [Record(each, partition=n % 2) for n, each in enumerate(values)])
    descriptors = tmp_path / "view.desc"
    descriptors.write_bytes(view_descriptors())
    decoder = {"format": "protobuf", "descriptor_file": str(descriptors), "message": "shop.View", "framing": "none"}
    slept = "java_method('java.lang.Thread', 'sleep', 1000L)"
    sink = open_sink(name, {"value": decoder}, converters=[{"sql": {"slept": slept}}], options={"lease": {"ttl_s": 1}})

    sink.work()

    assert sink.rows(name, "id", "name") == Counter((n, "hi") for n in range(1, 9))
    assert sink.rows(name, "dead_letter_value", role=Role.DEAD_LETTER) == Counter([(b"\x08",)])
    assert not any("backs off" in line or "taken over" in line or "lost" in line for line in sink.lines)
    assert sink.count("state NOT IN ('DONE', 'ABORTED')") == 0


@pytest.mark.turns("what readers of topics meet", of=8)
def test_rows_of_spark_go_into_a_table_and_a_column_that_comes_later_is_added(
    open_sink: Open,
    topic: MakeTopic,
    registry: RegistryServer,
    kafka_broker: KafkaBroker,
    fresh_database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable, value in variables_for(fresh_database).items():
        monkeypatch.setenv(variable, value)
    name = topic("loads", partitions=2)
    first = registry.register(f"{name}-value", VIEW)
    values = [avro_bytes(VIEW, {"id": n, "page": f"/{n}\t"}, first) for n in range(20)]
    produce(kafka_broker.bootstrap, name, [Record(each, partition=n % 2) for n, each in enumerate(values)])
    produce(kafka_broker.bootstrap, name, [Record(b"broken", partition=1)])
    sink = open_sink(
        name,
        {"value": {"format": "avro"}},
        options={"sink": {"lanes": 2, "every_s": 0.2, "into": {"type": "postgres", "connection": CONNECTION}}},
    )
    sink.work()
    second = registry.register(f"{name}-value", VIEW_2)
    produce(
        kafka_broker.bootstrap, name, [Record(avro_bytes(VIEW_2, {"id": 20, "page": None, "country": "fr"}, second))]
    )

    sink.work()

    with fresh_database.connect() as session:
        table = name.replace("-", "_").replace(".", "_")
        found = session.execute(f'SELECT id, page, country FROM public."{table}" ORDER BY id').fetchall()
    assert found == [*((n, f"/{n}\t", None) for n in range(20)), (20, None, "fr")]
    assert sink.rows(name, "dead_letter_value", role=Role.DEAD_LETTER) == Counter([(b"broken",)])
