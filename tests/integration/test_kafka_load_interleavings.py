"""One publication, two processes that load it into a topic: whatever stops one of them, its records are there once.

One process is interrupted at a point of its load: it dies, it gets no answer, another one loads at that moment, or a
person gives the publication up at that moment. Then a third one goes on, as a recovery does. The suite notices each
rule that is left out.
"""

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from demo.kafka.broker import KafkaBroker
from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.destinations.kafka.kafka_topics import KafkaTopics
from gobblin_assets.destinations.kafka.topic_batches import LoadedTopic, TopicBatch
from gobblin_assets.destinations.lane_marks import MarkPlace, decide_load
from gobblin_assets.errors import GobblinError
from gobblin_assets.failpoints import AcknowledgementLost, Failpoint, install, reach
from gobblin_assets.kafka.connection import read_cluster
from tests.integration import topic_load_mutants as mutants
from tests.support.kafka import delete_topics, read_all
from tests.support.shares import rotating
from tests.support.topic_sink import CONNECTION, new_topics, variables_for

ROWS = 3
STEP_BEFORE, COPIED = Failpoint.STEP_BEFORE, Failpoint.LOAD_COPIED
BEFORE_COMMIT, COMMITTED = Failpoint.LOAD_BEFORE_COMMIT, Failpoint.LOAD_COMMITTED
INTERRUPTIONS = (
    (STEP_BEFORE, "is overtaken"),
    (COPIED, "is overtaken"),
    (COPIED, "is given up"),
    (BEFORE_COMMIT, "dies"),
    (COMMITTED, "is given up"),
)
"""Each rule that is left out shows in one of these."""
MORE = (
    (STEP_BEFORE, "is given up"),
    (COPIED, "dies"),
    (COPIED, "is not answered"),
    (BEFORE_COMMIT, "is not answered"),
    (BEFORE_COMMIT, "is overtaken"),
    (BEFORE_COMMIT, "is given up"),
    (COMMITTED, "dies"),
    (COMMITTED, "is not answered"),
    (COMMITTED, "is overtaken"),
)


class DiedError(BaseException):
    """The process is gone."""


class Place:
    """Two topics of a broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.connection = read_cluster(CONNECTION, variables_for(bootstrap))
        self.topic, self.marks = new_topics()

    def count(self, lane: int) -> int:
        found = (json.loads(each.value or b"") for each in read_all(self.bootstrap, self.topic))
        return sum(row["lane"] == lane for row in found)


class Publication:
    """A publication of a lane of its own. ``kind``: how it is loaded."""

    def __init__(self, place: Place, kind: type[KafkaTopics], lane: int) -> None:
        self.place, self.kind = place, kind
        mark = MarkPlace(place.marks, "root", place.marks, "orders", lane)
        self.rows = pa.record_batch([pa.array([lane] * ROWS)], names=["lane"])
        topic = LoadedTopic(place.topic, (), 1, 1)
        self.batch = TopicBatch(topic, mark, 1, str(uuid.uuid4()), ROWS, 100)
        self.is_given_up = False

    def load(self) -> StepVerdict:
        """As the executor does it: look, do, look again. What it raises ends the process's try."""
        topics = self.kind(self.place.connection)
        try:
            if self._ask(topics) is StepVerdict.DO:
                topics.prepare(self.batch, self.rows.schema)
                reach(Failpoint.STEP_BEFORE)
                topics.load(self.batch, [self.rows])
            return self._ask(topics)
        except (GobblinError, OSError):
            return self._ask(topics)
        finally:
            topics.close()

    def _ask(self, topics: KafkaTopics) -> StepVerdict:
        return decide_load(topics.find_mark(self.batch.mark), self.batch.version, self.batch.sequence_id)

    def give_up(self) -> None:
        topics = self.kind(self.place.connection)
        self.is_given_up = topics.give_up(self.batch)
        topics.close()


def interrupt(publication: Publication, point: Failpoint, way: str) -> Callable[[Failpoint], None]:
    """A hook that acts the first time that the point is reached."""
    left = [way]

    def act(reached: Failpoint) -> None:
        if reached is not point or not left:
            return
        match left.pop():
            case "dies":
                raise DiedError
            case "is not answered":
                raise AcknowledgementLost("no answer")
            case "is overtaken":
                publication.load()
            case _:
                publication.give_up()

    return act


def find_fault(publication: Publication, point: Failpoint, way: str) -> str | None:
    with install(interrupt(publication, point, way)), contextlib.suppress(DiedError):
        publication.load()
    if not publication.is_given_up:
        verdict = publication.load()
        if verdict is not StepVerdict.DONE:
            return f"{point}, {way}: the recovery ends with {verdict}"
    expected = 0 if publication.is_given_up else ROWS
    found = publication.place.count(publication.batch.mark.lane)
    return None if found == expected else f"{point}, {way}: {found} rows instead of {expected}"


def list_faults(place: Place, kind: type[KafkaTopics]) -> Iterator[str]:
    for lane, (point, way) in enumerate(INTERRUPTIONS):
        fault = find_fault(Publication(place, kind, lane), point, way)
        if fault is not None:
            yield fault


@pytest.fixture
def place(kafka_broker: KafkaBroker) -> Iterator[Place]:
    made = Place(kafka_broker.bootstrap)
    yield made
    delete_topics(kafka_broker.bootstrap, made.topic, made.marks)


def test_records_are_there_once_whatever_stops_a_load(place: Place) -> None:
    assert list(list_faults(place, KafkaTopics)) == []


@pytest.mark.parametrize(("point", "way"), [rotating(*each) for each in MORE], ids=str)
def test_records_are_there_once_at_further_points(place: Place, point: Failpoint, way: str) -> None:
    assert find_fault(Publication(place, KafkaTopics, 0), point, way) is None


@pytest.mark.parametrize(
    "mutant",
    [
        rotating(mutants.LooksBeforeInit),
        rotating(mutants.MarkInAnotherTransaction),
        rotating(mutants.ReadsUncommitted),
        rotating(mutants.GivesUpWithoutALook),
        rotating(mutants.GivesUpByTheLogAlone),
        rotating(mutants.FencesNobodyOff),
    ],
)
def test_a_rule_that_is_left_out_is_missed(place: Place, mutant: type[KafkaTopics]) -> None:
    assert next(list_faults(place, mutant), None) is not None
