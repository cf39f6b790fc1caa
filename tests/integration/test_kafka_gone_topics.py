"""A topic into which a sink loaded rows, or its topic of marks, is deleted while the sink works: neither is made again.

A person adopts what is there now, and each further record is there once.
"""

import json
from dataclasses import dataclass

import pytest

from gobblin_assets.destinations.kafka import kafka_topics
from gobblin_assets.errors import RejectedError
from gobblin_assets.failpoints import Failpoint, install
from tests.crash.test_gone_places import Stranger, adopt, resume_all, sequences_of, work_until_it_stops
from tests.crash.test_sinks import some_published
from tests.integration.test_kafka_topic_sinks import lake, world  # noqa: F401  the fixtures
from tests.support.kafka import Record, delete_topics, make_topic, open_admin, produce
from tests.support.topic_sink import TopicSinkLake, TopicSinkWorld

pytestmark = pytest.mark.turns(of=3)


@dataclass
class TopicActs:
    lake: TopicSinkLake

    def delete(self) -> None:
        delete_topics(self.lake.bootstrap, self.lake.topic)

    def make_anew(self) -> None:
        self.delete()
        make_topic(self.lake.bootstrap, self.lake.topic, 2)

    def delete_marks(self) -> None:
        delete_topics(self.lake.bootstrap, self.lake.marks)

    def are_there(self) -> tuple[bool, bool]:
        known = open_admin(self.lake.bootstrap).list_topics(timeout=30).topics
        return self.lake.topic in known, self.lake.marks in known


@pytest.fixture
def acts(lake: TopicSinkLake) -> TopicActs:  # noqa: F811  the fixture
    return TopicActs(lake)


POINTS = [Failpoint.SEALED_BEFORE_EXECUTE, Failpoint.LOAD_COPIED]


@pytest.mark.turns("a topic that is gone")
@pytest.mark.parametrize("act", ["delete", "make_anew"])
@pytest.mark.parametrize("point", POINTS, ids=str)
def test_a_topic_that_is_gone_is_not_made_again_and_what_is_there_instead_is_adopted(
    world: TopicSinkWorld,  # noqa: F811  the fixture
    acts: TopicActs,
    point: Failpoint,
    act: str,
) -> None:
    stranger = Stranger(world, point, getattr(acts, act))
    work_until_it_stops(world, stranger)
    assert acts.are_there() == (act == "make_anew", True)
    assert stranger.lost

    adopt(world, missing=sequences_of(world))
    resume_all(world)
    world.work()

    assert world.published() == world.expected() - stranger.lost
    assert world.published().total() == world.expected().total() - stranger.lost.total()


@pytest.mark.turns("a topic that is gone")
def test_a_sink_that_takes_absence_for_a_beginning_is_noticed(
    world: TopicSinkWorld,  # noqa: F811  the fixture
    acts: TopicActs,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_topics, "find_gone", lambda *_asked: None)
    stranger = Stranger(world, Failpoint.SEALED_BEFORE_EXECUTE, acts.make_anew)

    with install(stranger):
        world.work()

    assert stranger.lost
    assert world.published() == world.expected() - stranger.lost, "the rows are all there"


@pytest.mark.every_run
def test_marks_that_are_gone_stop_a_live_worker_and_are_adopted_with_what_a_person_has_seen(
    world: TopicSinkWorld,  # noqa: F811  the fixture
    acts: TopicActs,
) -> None:
    work_until_it_stops(world, Stranger(world, Failpoint.SEALED_BEFORE_EXECUTE, acts.delete_marks))
    assert acts.are_there() == (True, False)
    assert world.open_sequences()

    with pytest.raises(RejectedError, match="no mark says whether their rows are there"):
        adopt(world)
    assert adopt(world, missing=sequences_of(world))
    assert adopt(world) == []
    resume_all(world)
    world.work()

    world.check_exactly_once()


def test_marks_of_an_earlier_release_are_taken_over(world: TopicSinkWorld, acts: TopicActs) -> None:  # noqa: F811  the fixture
    """They don't say into which topic rows were loaded."""
    world.work(some_published(world))
    marks = world.marks()
    older = {key: {name: mark[name] for name in mark if not name.startswith("topic")} for key, mark in marks.items()}
    assert older != marks
    written = [Record(json.dumps(mark).encode(), key) for key, mark in older.items()]
    produce(acts.lake.bootstrap, acts.lake.marks, written)

    world.work()

    world.check_exactly_once()
    assert any(mark["topic"] == acts.lake.topic and mark["topic_id"] for mark in world.marks().values())
