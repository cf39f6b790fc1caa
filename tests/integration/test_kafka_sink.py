"""``gobblin-assets sink run`` as a shell sees it: a real broker, several workers, producers that write all the time."""

import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from demo.kafka.broker import KafkaBroker
from tests.support.kafka import delete_topics
from tests.support.spark import wait_until
from tests.support.topic_shop import JOB, StandbyCommands, TopicShop

pytestmark = pytest.mark.turns(of=8)

SINK = {"lease": {"ttl_s": 3, "wait_s": 60}, "sink": {"lanes": 2, "every_s": 0.3, "roll": {"age_s": 0}}}


@pytest.fixture(scope="module")
def standby(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandbyCommands]:
    made = StandbyCommands(tmp_path_factory.mktemp("commands"))
    yield made
    made.stop()


@pytest.fixture
def shop(
    tmp_path: Path, kafka_broker: KafkaBroker, engine: Engine, standby: StandbyCommands, database_url: str
) -> Iterator[TopicShop]:
    variables = {"GOBBLIN_HOME": str(tmp_path / "home"), "GOBBLIN_DATABASE_URL": database_url}
    made = TopicShop(tmp_path, kafka_broker, engine, standby, variables, SINK)
    yield made
    delete_topics(kafka_broker.bootstrap, *made.topics)


def live_lanes(shop: TopicShop) -> dict[str, int]:
    """How many lanes each worker holds."""
    query = "SELECT owner, count(*) FROM gobblin.lease WHERE expires_at > clock_timestamp() GROUP BY owner"
    with shop.engine.connect() as connection:
        return {row[0]: row[1] for row in connection.execute(text(query))}


def count_workers(shop: TopicShop) -> int:
    with shop.engine.connect() as connection:
        query = "SELECT count(*) FROM gobblin.sink_worker WHERE expires_at > clock_timestamp()"
        return int(connection.execute(text(query)).scalar_one())


@pytest.mark.turns("what readers of topics meet", of=8)
def test_workers_share_lanes_and_publish_each_record_once_while_one_is_killed_and_lanes_are_rescaled(
    shop: TopicShop,
) -> None:
    with shop.producing:
        first = shop.begin("sink", "run")
        shop.await_publications(first, 3)
        second = shop.begin("sink", "run")
        wait_until(lambda: sorted(live_lanes(shop).values()) == [2, 2], f"even shares; {first.said} {second.said}")
        shop.await_publications(second, 3)
        assert second.end(signal.SIGKILL) == -signal.SIGKILL
        wait_until(lambda: sorted(live_lanes(shop).values()) == [4], f"all lanes at the survivor; {first.said}")
        scaled = shop.begin("sink", "scale", options=["1"])
        assert scaled.end() == 0, scaled.said
        shop.await_publications(first, 3)
        third = shop.begin("sink", "run")
        # Whoever joins after the others were asked to end is not asked.
        wait_until(lambda: count_workers(shop) == 2, f"the third one has joined; {third.said}")
        shop.await_publications(first, 3)
    shop.await_all()
    drained = shop.begin("sink", "drain")

    assert drained.end() == 0, drained.said
    assert first.end() == 0, first.said
    assert third.end() == 0, third.said
    shop.check_end()
    status = shop.begin("sink", "status")
    assert status.end() == 0, status.said
    assert "0 live workers" in status.said
    assert "behind" in status.said


def join(shop: TopicShop, run_id: uuid.UUID, *, lives_s: float = 300.0) -> None:
    """As a worker with another job file that was killed as soon as it had joined."""
    asked = {"run_id": run_id, "job": JOB, "lives_s": lives_s}
    with shop.engine.begin() as connection:
        connection.execute(text("DELETE FROM gobblin.sink_worker WHERE owner = 'elsewhere:1'"))
        connection.execute(
            text("""
                INSERT INTO gobblin.sink_worker (run_id, job, owner, configuration, expires_at)
                VALUES (:run_id, :job, 'elsewhere:1', 'another', clock_timestamp() + make_interval(secs => :lives_s))
            """),
            asked,
        )


def test_of_workers_with_different_job_files_the_newer_one_is_refused(shop: TopicShop) -> None:
    with shop.producing:
        worker = shop.begin("sink", "run")
        shop.await_publications(worker, 1)
        join(shop, uuid.UUID(int=2**128 - 1))
        wait_until(lambda: sorted(live_lanes(shop).values()) == [2], f"a share with the newer one; {worker.said}")
        shop.await_publications(worker, 2)

        join(shop, uuid.UUID(int=0))
        assert worker.end() == 2, worker.said
    assert "elsewhere:1 works on the sink" in worker.said


def test_a_worker_waits_for_a_killed_one_that_had_another_job_file(shop: TopicShop) -> None:
    migrated = shop.begin("sink", "status")
    assert migrated.end() == 0, migrated.said
    join(shop, uuid.UUID(int=0), lives_s=3.0)
    with shop.producing:
        worker = shop.begin("sink", "run")

        def is_waiting() -> bool:
            join(shop, uuid.UUID(int=0), lives_s=3.0)
            return "waits for elsewhere:1" in worker.said

        wait_until(is_waiting, "the worker waits")
        shop.await_publications(worker, 1)
    shop.await_all()
    assert worker.end(signal.SIGTERM) == 0, worker.said
    shop.check_end()
