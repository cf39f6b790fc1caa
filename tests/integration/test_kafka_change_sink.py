"""The change log of a table goes into a topic: each change is a record, in the order of the log."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from demo.kafka.broker import KafkaBroker
from tests.support.changed_tables import ChangedTables, set_log_variables
from tests.support.kafka import delete_topics, read_all
from tests.support.kafka_rows import CONNECTION, new_topics, variables_for
from tests.support.postgres import Database


class TablesIntoTopics(ChangedTables):
    topic: str
    marks: str

    @property
    def described(self) -> dict[str, Any]:
        described = super().described
        into = {
            "type": "kafka",
            "connection": CONNECTION,
            "topic": self.topic,
            "key": ["id"],
            "partitions": 1,
            "marks_topic": self.marks,
        }
        return {**described, "sink": {**described["sink"], "into": into}}


@pytest.fixture
def tables(
    tmp_path: Path,
    source_database: Database,
    engine: Engine,
    kafka_broker: KafkaBroker,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[TablesIntoTopics]:
    made = TablesIntoTopics(tmp_path, source_database, engine, ["orders"])
    made.topic, made.marks = new_topics()
    made.do(
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer text, amount numeric(12, 2), at timestamptz)",
        "CREATE PUBLICATION lake FOR TABLE orders",
        "INSERT INTO orders SELECT n, 'c' || n, n / 7.0, now() FROM generate_series(1, 100) n",
    )
    for name, value in variables_for(kafka_broker.bootstrap).items():
        monkeypatch.setenv(name, value)
    set_log_variables(made, monkeypatch)
    yield made
    delete_topics(kafka_broker.bootstrap, made.topic, made.marks)


def test_changes_become_records(tables: TablesIntoTopics, kafka_broker: KafkaBroker) -> None:
    with tables.working():
        tables.await_published()
        tables.do(
            "UPDATE orders SET amount = amount + 1 WHERE id <= 10",
            "DELETE FROM orders WHERE id > 95",
            "INSERT INTO orders VALUES (5000, NULL, NULL, NULL)",
        )
        tables.await_published()

    rows = [json.loads(each.value or b"") for each in read_all(kafka_broker.bootstrap, tables.topic)]
    assert Counter(row["_op"] for row in rows) == {"r": 100, "u": 10, "d": 5, "c": 1}
    places = [(row["_lsn"], row["_seq"]) for row in rows]
    assert places == sorted(places)
    last = {row["id"]: row["_op"] for row in rows}
    kept = {key for key, op in last.items() if op != "d"}
    assert len(kept) == tables.ask("SELECT count(*) FROM orders")
