"""``gobblin-assets sink run`` into tables of a real Postgres, while workers and sessions of the database are killed."""

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from demo.kafka.broker import KafkaBroker
from gobblin_assets import read_dataset
from gobblin_assets.errors import RejectedError
from tests.support.kafka import delete_topics
from tests.support.postgres import Database
from tests.support.postgres_rows import CONNECTION, variables_for
from tests.support.producing import Facts
from tests.support.topic_shop import JOB, StandbyCommands, TopicShop

INTO = {"type": "postgres", "connection": CONNECTION, "tables_schema": "shop"}
OPTIONS: dict[str, Any] = {
    "lease": {"ttl_s": 3, "wait_s": 60},
    "sink": {"lanes": 2, "every_s": 0.3, "roll": {"age_s": 0}, "into": INTO},
}


class TableShop(TopicShop):
    database: Database

    def published_facts(self, topic: str) -> Facts:
        """Dead letters are in files, all other rows in the table."""
        facts: Facts = Counter(super().published_facts(topic))
        with self.database.connect() as session:
            table = topic.replace(".", "_").replace("-", "_")
            found = session.execute(f'SELECT kafka_partition, kafka_offset, number FROM shop."{table}"').fetchall()
        facts.update(tuple(row) for row in found)  # type: ignore[arg-type]  # three columns
        return facts

    def end_sessions(self) -> int:
        with self.database.connect() as session:
            ended = session.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchall()
        return len(ended)


@pytest.fixture(scope="module")
def standby(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandbyCommands]:
    made = StandbyCommands(tmp_path_factory.mktemp("commands"))
    yield made
    made.stop()


@pytest.fixture
def shop(
    tmp_path: Path,
    kafka_broker: KafkaBroker,
    engine: Engine,
    standby: StandbyCommands,
    database_url: str,
    fresh_database: Database,
) -> Iterator[TableShop]:
    variables = {
        "GOBBLIN_HOME": str(tmp_path / "home"),
        "GOBBLIN_DATABASE_URL": database_url,
        **variables_for(fresh_database),
    }
    made = TableShop(tmp_path, kafka_broker, engine, standby, variables, OPTIONS)
    made.database = fresh_database
    yield made
    delete_topics(kafka_broker.bootstrap, *made.topics)


@pytest.mark.turns("what readers of topics meet", of=8)
def test_workers_load_each_record_once_while_workers_and_sessions_are_killed(shop: TableShop, engine: Engine) -> None:
    with shop.producing:
        first = shop.begin("sink", "run")
        shop.await_publications(first, 3)
        second = shop.begin("sink", "run")
        shop.await_publications(second, 3)
        shop.end_sessions()
        shop.await_publications(first, 2)
        assert second.end(signal.SIGKILL) == -signal.SIGKILL
        shop.end_sessions()
        shop.await_publications(first, 3)
    shop.await_all()
    drained = shop.begin("sink", "drain")
    assert drained.end() == 0, drained.said
    assert first.end() == 0, first.said

    shop.check_end()
    verified = shop.begin("verify")
    assert verified.end() == 0, verified.said
    with shop.database.connect() as session:
        session.execute("UPDATE gobblin_marks.gobblin_lane SET loaded_rows = 0")
    verified = shop.begin("verify", options=["--checksums"])
    assert verified.end() == 1, verified.said
    assert "rows were published, and the marks say that 0 were loaded" in verified.said.replace("\n", " ")
    with shop.database.connect() as session:
        session.execute("UPDATE gobblin_marks.gobblin_lane SET loaded_rows = 1000000")
        for topic in shop.topics:
            session.execute(f'DROP TABLE shop."{topic.replace(".", "_").replace("-", "_")}"')
    verified = shop.begin("verify")
    assert verified.end() == 1, verified.said
    assert "is gone, the table into which" in verified.said.replace("\n", " ")
    adopted = shop.begin("sink", "adopt", options=[part for topic in shop.topics for part in ("--dataset", topic)])
    assert adopted.end() == 0, adopted.said
    assert "is adopted" in adopted.said
    verified = shop.begin("verify")
    assert verified.end() == 0, verified.said
    with pytest.raises(RejectedError, match=r"rows in jdbc:warehouse/shop\.\w+, and they are in no file"):
        read_dataset(None, shop.topics[0], job=JOB, database=engine)  # type: ignore[arg-type]  # nothing is read
