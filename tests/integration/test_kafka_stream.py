"""``gobblin-assets stream`` as a shell sees it: a real broker, real Spark, producers that write all the time."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from demo.kafka.broker import KafkaBroker, start_broker
from gobblin_assets.spark.connect_server import ConnectServer
from tests.support.kafka import delete_topics
from tests.support.topic_shop import StandbyCommands, TopicShop

KILLS = 3


@pytest.fixture(scope="module")
def standby(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandbyCommands]:
    made = StandbyCommands(tmp_path_factory.mktemp("commands"))
    yield made
    made.stop()


@pytest.fixture
def variables(database_url: str, connect: ConnectServer, tmp_path: Path) -> dict[str, str]:
    return {
        "GOBBLIN_HOME": str(tmp_path / "home"),
        "GOBBLIN_DATABASE_URL": database_url,
        "GOBBLIN_SPARK_REMOTE": connect.url,
    }


@pytest.fixture
def shop(
    tmp_path: Path, kafka_broker: KafkaBroker, engine: Engine, standby: StandbyCommands, variables: dict[str, str]
) -> Iterator[TopicShop]:
    made = TopicShop(tmp_path, kafka_broker, engine, standby, variables)
    yield made
    delete_topics(kafka_broker.bootstrap, *made.topics)


def test_sigterm_ends_a_stream_at_a_published_boundary_and_a_run_has_the_rest(shop: TopicShop) -> None:
    with shop.producing:
        stream = shop.begin("stream")
        shop.await_publications(stream, 3)
        code = stream.end(signal.SIGTERM)
        shop.check()
        assert code == 0, stream.said
        assert "SIGTERM: stopping after the publication under way" in stream.said
        assert "stopped at a published boundary" in stream.said

    run = shop.begin("run")

    assert run.end() == 0, run.said
    shop.check_end()


@pytest.mark.thorough
def test_streams_that_are_killed_one_after_the_other_are_gone_on_with_by_the_next(shop: TopicShop) -> None:
    with shop.producing:
        for killed in range(KILLS):
            stream = shop.begin("stream")
            shop.await_publications(stream, 1 + killed)
            assert stream.end(signal.SIGKILL) == -signal.SIGKILL
    last = shop.begin("stream")
    shop.await_all()

    assert last.end(signal.SIGTERM) == 0, last.said
    shop.check_end()


@pytest.mark.thorough
def test_a_stream_goes_on_by_itself_when_a_broker_that_was_killed_is_back(
    tmp_path: Path, engine: Engine, standby: StandbyCommands, variables: dict[str, str]
) -> None:
    with start_broker(tmp_path / "broker") as broker:
        shop = TopicShop(tmp_path, broker, engine, standby, variables)
        with shop.producing:
            stream = shop.begin("stream")
            shop.await_publications(stream, 3)
            broker.kill()
            broker.restart()
            shop.await_publications(stream, 3)
        shop.await_all()

        assert stream.end(signal.SIGTERM) == 0, stream.said
        shop.check_end()
