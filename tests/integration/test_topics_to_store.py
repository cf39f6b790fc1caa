"""Topics whose destination is a bucket or HDFS: many are written by one Spark job, and stay separate datasets."""

import io
from collections import Counter

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from demo.kafka.broker import KafkaBroker
from gobblin_assets.fs.registry import open_file_system
from tests.integration.test_kafka_shared_reads import count_tags, dataset, records
from tests.support.kafka import MakeTopic, Record, produce
from tests.support.producing import find_ends
from tests.support.reached_stores import STORES, reach_destination
from tests.support.spark_sink import OpenSpark, SparkSink
from tests.support.topics import JOB, Open


def read_objects(uri: str, urn: str, role: str) -> list[dict[str, object]]:
    """The rows of the dataset's objects, whatever their directories say."""
    fs, root = open_file_system(uri)
    rows: list[dict[str, object]] = []
    for file in fs.list_files(f"{root}/{JOB}/{role}/{urn}"):
        with fs.open_input(file.path) as stream:
            rows += pq.read_table(io.BytesIO(stream.read())).to_pylist()
    return rows


@pytest.fixture(params=STORES)
def uri(request: pytest.FixtureRequest, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> str:
    """A destination that the driver and Spark's tasks reach."""
    uri, environment = reach_destination(request)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    return uri


def test_dead_letters_quarantine_and_shares_of_one_write_stay_with_their_topic(
    ingest: Open,
    kafka_broker: KafkaBroker,
    topic: MakeTopic,
    uri: str,
) -> None:
    names = [topic("mixed") for _ in range(3)]
    for name in names:
        produce(kafka_broker.bootstrap, name, [*records(name, 30), b"broken", b"\xff"])
    more = {
        "writer": {"partition_by": ["kind"]},
        "quality": {
            "dead_letter_fraction_max": 0.5,
            "rows": [{"name": "small", "check": "id < 20", "on_failure": "err_file"}],
        },
    }
    ingestion = ingest(*(dataset(name, **more) for name in names), root=uri)

    report = ingestion.run()

    assert not report.failed, report.failed
    assert count_tags(ingestion) == 1, ingestion.lines
    for name in names:
        assert Counter(row["id"] for row in read_objects(uri, name, "data")) == Counter(range(20))
        assert Counter(row["id"] for row in read_objects(uri, name, "quarantine")) == Counter(range(20, 30))
        letters = read_objects(uri, name, "dead_letter")
        assert Counter(row["dead_letter_value"] for row in letters) == Counter([b"broken", b"\xff"])
        assert {row["dead_letter_topic"] for row in letters} == {name}
    fs, root = open_file_system(uri)
    assert not [file.path for file in fs.list_files(f"{root}/{JOB}/.staging")]
    assert (report.datasets[0].uri or "").startswith(f"{uri}/")


@pytest.mark.thorough
def test_one_job_writes_the_lanes_of_a_sink(
    spark: SparkSession,
    database_url: str,
    kafka_broker: KafkaBroker,
    topic: MakeTopic,
    uri: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GOBBLIN_KAFKA_SHOP_BOOTSTRAP_SERVERS", kafka_broker.bootstrap)
    name = topic("lanes", partitions=2)
    produce(kafka_broker.bootstrap, name, [*records(name, 30, 2), b"broken", Record(b"\xff", partition=1)])
    read = dataset(name, converters=[{"where": "id <> 7"}], quality={"dead_letter_fraction_max": 1})
    ends = find_ends(kafka_broker.bootstrap, name)
    sink = SparkSink(database_url, uri, [read], OpenSpark(spark), lambda: ends, {"job": JOB})

    sink.work()

    assert Counter(row["id"] for row in read_objects(uri, name, "data")) == Counter({*range(30)} - {7})
    letters = read_objects(uri, name, "dead_letter")
    assert Counter(row["dead_letter_value"] for row in letters) == Counter([b"broken", b"\xff"])
    sink.close()
