"""Workers of a sink that loads a topic are killed and paused: each record is in the topic once.

The broker is a real one, the log a real Postgres database, and workers are processes.
"""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from demo.kafka.broker import KafkaBroker
from gobblin_assets.commit.driver import PUBLISH_TRIES_MAX
from gobblin_assets.commit.published.published_port import RowsElsewhere
from gobblin_assets.errors import RejectedError
from gobblin_assets.failpoints import Failpoint, install
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import JobName, Role
from tests.crash.test_sinks import kill_at
from tests.support.kafka import delete_topics
from tests.support.shares import rotating
from tests.support.sink_lake import JOB, URN, start_sink_worker
from tests.support.topic_sink import TopicSinkLake, TopicSinkWorld, new_topics, variables_for

OF_A_LOAD = (
    Failpoint.STEP_BEFORE,
    Failpoint.LOAD_COPIED,
    Failpoint.LOAD_BEFORE_COMMIT,
    Failpoint.LOAD_COMMITTED,
    Failpoint.STEP_AFTER,
)


@pytest.fixture
def lake(
    database_url: str, kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TopicSinkLake]:
    for name, value in variables_for(kafka_broker.bootstrap).items():
        monkeypatch.setenv(name, value)
    topic, marks = new_topics()
    made = TopicSinkLake(database_url, str(tmp_path), bootstrap=kafka_broker.bootstrap, topic=topic, marks=marks)
    yield made
    delete_topics(kafka_broker.bootstrap, made.topic, made.marks)


@pytest.fixture
def world(lake: TopicSinkLake) -> Iterator[TopicSinkWorld]:
    opened = lake.open_world()
    yield opened
    opened.close()


def test_every_point_of_a_load_is_reached(world: TopicSinkWorld) -> None:
    seen: set[Failpoint] = set()

    with install(seen.add):
        world.work()

    world.check_exactly_once()
    assert seen >= set(OF_A_LOAD)
    expected = sum(count for (role, *_), count in world.expected().items() if role == Role.DATA)
    found = world.stores.published.find_rows_elsewhere(JobName(JOB), URN)
    assert found == RowsElsewhere(f"kafka:out/{world.lake.topic}", expected)


@pytest.mark.parametrize(
    ("point", "count"),
    [rotating(point, count) for count in (1, 2) for point in OF_A_LOAD],
    ids=str,
)
@pytest.mark.turns("a load that is killed")
def test_a_worker_killed_anywhere_is_gone_on_with_by_another(
    lake: TopicSinkLake, world: TopicSinkWorld, point: Failpoint, count: int
) -> None:
    kill_at(lake, point, count)
    world.expire()

    world.work()

    world.check_exactly_once()


@pytest.mark.parametrize(
    "point",
    [Failpoint.LOAD_BEFORE_COMMIT, *(rotating(point) for point in OF_A_LOAD if "before" not in point)],
    ids=str,
)
@pytest.mark.turns("a load that slept")
def test_a_zombie_that_wakes_up_loads_nothing(lake: TopicSinkLake, world: TopicSinkWorld, point: Failpoint) -> None:
    """It has a transaction open, which its successor ends."""
    zombie = start_sink_worker(lake, failpoint=f"{point}=stop")
    zombie.wait_until_stopped()
    world.expire()
    world.work()
    world.check_exactly_once()
    before = world.marks()

    zombie.wake_up()

    assert zombie.wait() == 0, "the zombie crashed instead of giving up"
    world.check_exactly_once()
    assert world.marks() == before


@pytest.mark.parametrize(
    ("first", "second"),
    [
        rotating(first, second)
        for first in OF_A_LOAD
        for second in (Failpoint.RECOVERY_STARTED, Failpoint.LOAD_COPIED, Failpoint.LOAD_COMMITTED)
    ],
    ids=str,
)
@pytest.mark.turns("a recovery of a load that is killed")
def test_a_recovery_killed_anywhere_is_completed_by_the_next(
    lake: TopicSinkLake, world: TopicSinkWorld, first: Failpoint, second: Failpoint
) -> None:
    kill_at(lake, first)
    world.expire()
    kill_at(lake, second)
    world.expire()

    world.work()

    world.check_exactly_once()


@pytest.mark.parametrize("point", [Failpoint.LOAD_COPIED, rotating(Failpoint.LOAD_BEFORE_COMMIT)], ids=str)
@pytest.mark.turns("a load that was abandoned")
def test_a_zombie_loads_nothing_that_was_abandoned(
    lake: TopicSinkLake, world: TopicSinkWorld, point: Failpoint
) -> None:
    """It wakes up before anything else is published: only the broker stands in its way."""
    zombie = start_sink_worker(lake, failpoint=f"{point}=stop")
    zombie.wait_until_stopped()
    world.expire()
    sequences = world.open_sequences()
    assert sequences
    for sequence_id in sequences:
        world.operations().abandon(sequence_id, reason="a test")

    zombie.wake_up()

    assert zombie.wait() == 0
    world.check_exactly_once()


@pytest.mark.parametrize("point", [rotating(Failpoint.LOAD_COMMITTED)], ids=str)
@pytest.mark.turns("what is loaded")
def test_what_is_loaded_can_only_be_completed(lake: TopicSinkLake, world: TopicSinkWorld, point: Failpoint) -> None:
    kill_at(lake, point)
    world.expire()
    loaded = {SequenceId(uuid.UUID(each)) for mark in world.marks().values() for each in mark["recent"]}
    (sequence_id,) = loaded & set(world.open_sequences())

    with pytest.raises(RejectedError, match="It can only be completed"):
        world.operations().abandon(sequence_id, reason="a test")

    world.work()
    world.check_exactly_once()


@pytest.mark.parametrize("lost", [rotating("marks")])
@pytest.mark.turns("a place that lost rows")
def test_a_cluster_that_lost_its_marks_is_not_loaded_any_more(
    lake: TopicSinkLake, world: TopicSinkWorld, lost: str
) -> None:
    world.work()
    delete_topics(lake.bootstrap, getattr(lake, lost))
    again = replace(lake, epoch_count=lake.epoch_count + 1).open_world()

    again.work(lambda: any(f"the topic of marks {lake.marks} is gone" in line for line in again.lines))

    assert again.marks() == {}
    again.close()


@pytest.mark.parametrize("address", [rotating("127.0.0.1:1")])
@pytest.mark.turns("a place that is away")
def test_brokers_that_are_away_for_long_block_nothing(
    lake: TopicSinkLake, world: TopicSinkWorld, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """More failures than a publication has tries. Workers rest, and go on by themselves."""
    variable = next(iter(variables_for(lake.bootstrap)))

    def go_away(reached: Failpoint) -> None:
        if reached is Failpoint.STAGED_BEFORE_SEAL:
            monkeypatch.setenv("GOBBLIN_KAFKA_OUT_TIMEOUT_S", "0.2")
            monkeypatch.setenv(variable, address)

    def has_failed_often() -> bool:
        return sum("out of reach" in line for line in world.lines) > lake.lanes * PUBLISH_TRIES_MAX

    with install(go_away):
        world.work(has_failed_often)
    monkeypatch.setenv(variable, lake.bootstrap)
    monkeypatch.setenv("GOBBLIN_KAFKA_OUT_TIMEOUT_S", "30")

    world.work()

    world.check_exactly_once()
