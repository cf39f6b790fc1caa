"""``gobblin-assets sink run`` into tables of Iceberg, while workers and sessions of the catalog are killed."""

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
from tests.integration.test_kafka_table_sink import TableShop
from tests.support.iceberg_rows import CATALOG, find_table, iceberg_variables
from tests.support.kafka import delete_topics
from tests.support.postgres import Database
from tests.support.producing import Facts
from tests.support.topic_shop import JOB, StandbyCommands, TopicShop

INTO = {"type": "iceberg", "connection": CATALOG, "namespace": "shop"}
OPTIONS: dict[str, Any] = {
    "lease": {"ttl_s": 3, "wait_s": 60},
    "sink": {"lanes": 2, "every_s": 0.3, "roll": {"age_s": 0}, "into": INTO},
}


class IcebergShop(TableShop):
    def published_facts(self, topic: str) -> Facts:
        """Dead letters are in files, all other rows in the table."""
        facts: Facts = Counter(TopicShop.published_facts(self, topic))
        table = find_table(self._variables, "shop", topic.replace(".", "_").replace("-", "_"))
        columns = ("kafka_partition", "kafka_offset", "number")
        rows = [] if table is None else table.scan(selected_fields=columns).to_arrow().to_pylist()
        facts.update(tuple(row[column] for column in columns) for row in rows)
        return facts


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
) -> Iterator[IcebergShop]:
    (tmp_path / "warehouse").mkdir()
    variables = {
        "GOBBLIN_HOME": str(tmp_path / "home"),
        "GOBBLIN_DATABASE_URL": database_url,
        **iceberg_variables(fresh_database, f"file://{tmp_path}/warehouse"),
    }
    made = IcebergShop(tmp_path, kafka_broker, engine, standby, variables, OPTIONS)
    made.database = fresh_database
    yield made
    delete_topics(kafka_broker.bootstrap, *made.topics)


@pytest.mark.turns("what readers of topics meet", of=8)
def test_workers_append_each_record_once_while_workers_and_sessions_are_killed(
    shop: IcebergShop, engine: Engine
) -> None:
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
    verified = shop.begin("verify", options=["--checksums"])
    assert verified.end() == 0, verified.said
    table = find_table(shop._variables, "shop", shop.topics[0].replace(".", "_").replace("-", "_"))
    assert table is not None
    table.delete("kafka_offset < 3")
    verified = shop.begin("verify", options=["--checksums"])
    assert verified.end() == 1, verified.said
    assert "were published" in verified.said.replace("\n", " ")
    with pytest.raises(RejectedError, match=r"rows in iceberg:lakehouse/shop\.\w+, and they are in no file"):
        read_dataset(None, shop.topics[0], job=JOB, database=engine)  # type: ignore[arg-type]  # nothing is read
