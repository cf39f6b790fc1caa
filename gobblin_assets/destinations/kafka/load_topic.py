"""Steps that load staged files into a topic. Without the client, so that planning does not import it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.destinations.kafka.topic_batches import LoadedTopic, TopicBatch
from gobblin_assets.destinations.lane_marks import LaneMark, MarkPlace, decide_batch
from gobblin_assets.destinations.load_rows import LoadRows, MarkedRows, read_files, read_is_marked, write_load

LOAD_TOPIC: Final = "load_topic"


class MarkedTopics(MarkedRows[TopicBatch], Protocol):
    """The topics of a cluster that keeps a mark of each lane in one of them."""

    def require(self, topics: Iterable[LoadedTopic], marks: str) -> None:
        """Raise if the cluster, or one of the topics that exist, can't be loaded."""
        ...

    def find_settled_mark(self, place: MarkPlace) -> LaneMark | None:
        """As ``find_mark``, once nothing hides a later one. OutcomeUnknownError: an open transaction still may."""
        ...

    def count_loaded(self, place: MarkPlace) -> int:
        """The rows that all lanes of the dataset have loaded, whichever lane ``place`` is of."""
        ...

    def find_gone(self, topic: LoadedTopic, place: MarkPlace, *, is_marked: bool) -> str | None:
        """Why the topic is not the one into which the dataset's rows were loaded; None: it is, or there are none.

        ``is_marked``: marks say that there are some, so that also the topic of marks must be there.
        """
        ...

    def adopt(self, topic: LoadedTopic, marks: Mapping[MarkPlace, LaneMark], row_count: int) -> None:
        """Let the topic and the topic of marks go on behind these marks, as ``RowsPlace.adopt``."""
        ...


@dataclass(frozen=True, slots=True)
class LoadTopic(LoadRows[TopicBatch]):
    """Load the rows of staged files into a topic."""

    @property
    def kind(self) -> str:
        return LOAD_TOPIC

    @property
    def place(self) -> str:
        return f"the topic {self.batch.topic}"

    def open_marked(self, world: StepWorld) -> MarkedTopics:
        return world.get(MarkedTopics, self.connection)

    def find_gone(self, world: StepWorld) -> str | None:
        batch = self.batch
        return self.open_marked(world).find_gone(batch.topic, batch.mark, is_marked=batch.is_marked)

    def verify(self, world: StepWorld) -> StepVerdict:
        # Not by super(): a slotted dataclass is another class than the one that the compiler knows.
        verdict = LoadRows.verify(self, world)
        if verdict is not StepVerdict.LOST:
            # DO is a guess: whoever loads or gives up looks again, behind a fence.
            return verdict
        batch = self.batch
        settled = decide_batch(self.open_marked(world).find_settled_mark(batch.mark), batch)
        return StepVerdict.LOST if settled is StepVerdict.DO else settled


def write_topic_load(step: LoadTopic) -> Mapping[str, object]:
    """The step as plain values."""
    topic = step.batch.topic
    return {**write_load(step), "topic": [topic.name, list(topic.key), topic.partitions, topic.replication_factor]}


def read_topic_load(stored: Mapping[str, Any]) -> LoadTopic:
    """The step that ``write_topic_load`` stored."""
    files = read_files(stored)
    name, key, *numbers = stored["topic"]
    batch = TopicBatch(
        LoadedTopic(name, tuple(key), *numbers),
        MarkPlace(*stored["mark"]),
        stored["version"],
        stored["sequence"],
        sum(each.row_count for each in files),
        sum(each.identity.size_bytes for each in files),
        read_is_marked(stored),
    )
    return LoadTopic(stored["connection"], batch, files)
