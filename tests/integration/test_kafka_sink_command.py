"""``gobblin-assets sink run`` into topics of the cluster that it reads, while a worker is killed."""

import json
import signal
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from demo.kafka.broker import KafkaBroker
from gobblin_assets import read_dataset
from gobblin_assets.errors import RejectedError
from tests.support.kafka import Record, delete_topics, open_admin, produce, read_all
from tests.support.kafka_rows import CONNECTION, variables_for
from tests.support.producing import Facts
from tests.support.spark import wait_until
from tests.support.topic_shop import JOB, StandbyCommands, TopicShop


class OutShop(TopicShop):
    marks: str

    def published_facts(self, topic: str) -> Facts:
        """Dead letters are in files, all other rows in the topic."""
        facts: Facts = Counter(super().published_facts(topic))
        for each in read_all(self.broker.bootstrap, out_of(topic)):
            row = json.loads(each.value or b"")
            assert json.loads(each.key or b"") == [row["kafka_partition"], row["kafka_offset"]]
            facts[row["kafka_partition"], row["kafka_offset"], row["number"]] += 1
        return facts


def out_of(topic: str) -> str:
    return f"out.{topic}"


@pytest.fixture(scope="module")
def standby(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandbyCommands]:
    made = StandbyCommands(tmp_path_factory.mktemp("commands"))
    yield made
    made.stop()


@pytest.fixture
def shop(
    tmp_path: Path, kafka_broker: KafkaBroker, engine: Engine, standby: StandbyCommands, database_url: str
) -> Iterator[OutShop]:
    variables = {
        "GOBBLIN_HOME": str(tmp_path / "home"),
        "GOBBLIN_DATABASE_URL": database_url,
        **variables_for(kafka_broker.bootstrap),
    }
    marks = f"marks-{uuid.uuid4().hex[:6]}"
    into = {
        "type": "kafka",
        "connection": CONNECTION,
        "topic": "out.{dataset}",
        "key": ["kafka_partition", "kafka_offset"],
        "partitions": 2,
        "marks_topic": marks,
    }
    sink = {"lanes": 2, "every_s": 0.3, "roll": {"age_s": 0}, "into": into}
    made = OutShop(
        tmp_path, kafka_broker, engine, standby, variables, {"lease": {"ttl_s": 3, "wait_s": 60}, "sink": sink}
    )
    made.marks = marks
    yield made
    delete_topics(kafka_broker.bootstrap, *made.topics, *map(out_of, made.topics), marks)


def check_that_a_person_may_say_where_to_go_on(shop: OutShop) -> None:
    """A run that only says so loads nothing, and the next worker goes on from there."""
    topic, ends = shop.topics[0], shop.watermarks()
    facts = shop.published_facts(topic)
    ran = shop.begin("run", options=["--dataset", topic, "--start-at", "0=0"])
    assert ran.end() == 0, ran.said
    assert shop.published_facts(topic) == facts
    assert shop.watermarks()[topic] == {**ends[topic], f"{topic}:0#1": 0}

    worker = shop.begin("sink", "run")
    wait_until(lambda: shop.watermarks()[topic].get(f"{topic}:0#1") == ends[topic][f"{topic}:0"], "the end")
    drained = shop.begin("sink", "drain")
    assert (drained.end(), worker.end()) == (0, 0), drained.said

    again = {fact: 2 if fact[0] == 0 else 1 for fact in facts}
    assert shop.published_facts(topic) == again


@pytest.mark.turns("what readers of topics meet", of=8)
def test_workers_load_each_record_once_while_one_is_killed(shop: OutShop, engine: Engine) -> None:
    with shop.producing:
        first = shop.begin("sink", "run")
        shop.await_publications(first, 2)
        second = shop.begin("sink", "run")
        shop.await_publications(second, 2)
        assert second.end(signal.SIGKILL) == -signal.SIGKILL
        shop.await_publications(first, 3)
    shop.await_all()
    drained = shop.begin("sink", "drain")
    assert drained.end() == 0, drained.said
    assert first.end() == 0, first.said

    shop.check_end()
    known = open_admin(shop.broker.bootstrap).list_topics(timeout=30).topics
    assert {len(known[out_of(topic)].partitions) for topic in shop.topics} == {2}
    assert len(known[shop.marks].partitions) == 1
    verified = shop.begin("verify", options=["--checksums"])
    assert verified.end() == 0, verified.said
    check_that_a_person_may_say_where_to_go_on(shop)
    with pytest.raises(RejectedError, match=r"rows in kafka:out/out\.\S+, and they are in no file"):
        read_dataset(None, shop.topics[0], job=JOB, database=engine)  # type: ignore[arg-type]  # nothing is read

    forgotten = [Record(None, each.key) for each in read_all(shop.broker.bootstrap, shop.marks)]
    produce(shop.broker.bootstrap, shop.marks, forgotten)
    verified = shop.begin("verify")
    assert verified.end() == 1, verified.said
    assert "rows were published, and the marks say that 0 were loaded" in verified.said.replace("\n", " ")
