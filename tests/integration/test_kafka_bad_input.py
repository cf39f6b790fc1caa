"""Wrong records and settings: a record is set aside or fits, an error names the setting, and other topics go on."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from demo.kafka.broker import KafkaBroker
from gobblin_assets.cli import main
from gobblin_assets.model.urn import Role
from tests.support.kafka import DELIVERY_S_MAX, MakeTopic, produce
from tests.support.topics import Child, Open

pytestmark = pytest.mark.turns(of=4)

TEXT = {"value": {"format": "string"}}
DEPTH = 20_000
POISON = {
    "deep": b'{"id": 1, "more": ' + b"[" * DEPTH + b"]" * DEPTH + b"}",
    "open": b"[" * DEPTH,
    "huge exponent": b'{"id": 1e999999999}',
    "long number": b'{"id": ' + b"9" * 50_000 + b"}",
    "exact": b'{"amount": 1e-999999999}',
    "not utf-8": b'{"id": 1, "name": "\xff\xfe"}',
    "lone surrogate": b'{"id": 1, "name": "\\ud800"}',
    "empty": b"",
    "nul": b"\x00" * 1_000,
    "long name": b'{"' + b"n" * 100_000 + b'": 1}',
}


def test_no_record_can_fail_the_reading_of_json(ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic) -> None:
    name = topic("poison")
    good = [b'{"id": %d, "amount": 1.5, "name": "a"}' % n for n in range(5)]
    produce(kafka_broker.bootstrap, name, [*good, *POISON.values(), *good])
    value = {"format": "json", "schema": "id bigint, amount decimal(10, 2), name string"}
    ingestion = ingest({"topic": name, "kafka": {"value": value}, "quality": {"dead_letter_fraction_max": 1.0}})

    report = ingestion.run()

    assert not report.failed, report.failed
    rows, letters = ingestion.rows(name, "id", "amount", "name"), ingestion.read(name, role=Role.DEAD_LETTER).collect()
    assert sum(rows.values()) + len(letters) == 10 + len(POISON)
    assert {key[0]: count for key, count in rows.items() if key[2] == "a"} == dict.fromkeys(range(5), 2)
    aside = {bytes(row.dead_letter_value) for row in letters}
    assert {POISON["open"], POISON["huge exponent"], POISON["long number"], POISON["nul"], POISON["empty"]} <= aside


def test_records_as_large_as_the_broker_takes_them_are_read(
    ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic
) -> None:
    name = topic("large", settings={"max.message.bytes": "6000000"})
    sizes = [1_000_000, 5_000_000, 10, 1_048_576]
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "message.max.bytes": 6_000_000, "log_level": 0})
    for number, size in enumerate(sizes):
        producer.produce(name, bytes([97 + number]) * size)
    assert producer.flush(DELIVERY_S_MAX) == 0
    ingestion = ingest({"topic": name, "kafka": TEXT})

    report = ingestion.run()

    assert not report.failed, report.failed
    found = ingestion.read(name).selectExpr("length(value)", "left(value, 1)").collect()
    assert Counter(map(tuple, found)) == Counter((size, chr(97 + number)) for number, size in enumerate(sizes))


def test_a_topic_that_is_not_there_is_named_and_its_siblings_are_published(
    ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic
) -> None:
    good = [topic("good"), topic("good")]
    for name in good:
        produce(kafka_broker.bootstrap, name, [b"a"])
    ingestion = ingest(*({"topic": name, "kafka": TEXT} for name in (good[0], "no-such-topic", good[1])))

    (failed,) = ingestion.run().failed

    assert failed.urn == "no-such-topic"
    assert failed.error_family == "RejectedError"
    assert "there is no topic 'no-such-topic'" in str(failed.error)
    assert "\n" not in str(failed.error)
    for name in good:
        assert ingestion.rows(name, "value") == Counter({("a",): 1})


def test_patterns_that_choose_no_topic_are_named_by_discovery(
    kafka_broker: KafkaBroker, topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = topic("orders")
    monkeypatch.setenv("GOBBLIN_KAFKA_EVENTS_BOOTSTRAP_SERVERS", kafka_broker.bootstrap)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    job: dict[str, Any] = {
        "job": "events",
        "source": {"type": "kafka", "connection": "events", "include": ["no_such_*"]},
        "destination": str(tmp_path / "lake"),
        "defaults": {"kafka": TEXT},
    }
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(job), encoding="utf-8")

    result = CliRunner().invoke(main, ["discover", str(file)])

    assert result.exit_code != 0
    assert there in result.output
    assert "source.include: " in result.output


@pytest.mark.thorough
def test_a_spark_without_the_connector_is_told_which_capability_is_missing(
    kafka_broker: KafkaBroker, topic: MakeTopic, database_url: str, tmp_path: Path
) -> None:
    name = topic("orders")
    produce(kafka_broker.bootstrap, name, [b"a"])
    child = Child(tmp_path / "spark", remote=None)

    code, said = child.run(
        {
            "database_url": database_url,
            "bootstrap": kafka_broker.bootstrap,
            "root": str(tmp_path / "lake"),
            "datasets": [{"topic": name, "kafka": TEXT}],
        }
    )

    assert code == 1, said
    (line,) = [each for each in said.splitlines() if each.startswith(f"{name}: FAILED")]
    assert "spark.capabilities: Spark has no Kafka connector" in line
    assert "Add kafka to the Spark resource's capabilities" in line
