"""The topics into which the rows of a job's datasets go."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gobblin_assets.commit.step_kinds import get_kind
from gobblin_assets.commit.step_world import StepPorts
from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.lane_marks import LaneMark, MarkPlace
from gobblin_assets.destinations.kafka.load_topic import LOAD_TOPIC, LoadTopic, MarkedTopics
from gobblin_assets.destinations.kafka.topic_batches import LoadedTopic, TopicBatch
from gobblin_assets.model.files import DataFile
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.destination import Target


@dataclass(frozen=True, slots=True)
class TopicsPlace:
    """``connection``: the name of the cluster's. ``topics``: that of each dataset. ``marks``: the topic of marks."""

    connection: str
    topics: Mapping[DatasetUrn, LoadedTopic]
    marks: str

    def require(self) -> None:
        with self._open() as topics:
            topics.require(self.topics.values(), self.marks)

    def uri_of(self, urn: DatasetUrn) -> str:
        return f"kafka:{self.connection}/{self.topics[urn]}"

    def make_step(
        self, urn: DatasetUrn, mark: MarkPlace, target: Target, files: Sequence[DataFile], *, is_marked: bool
    ) -> CommitStep:
        counts = sum(file.row_count for file in files), sum(file.identity.size_bytes for file in files)
        batch = TopicBatch(self.topics[urn], mark, target.version, str(target.sequence_id), *counts, is_marked)
        return LoadTopic(self.connection, batch, tuple(files))

    def find_mark(self, urn: DatasetUrn, mark: MarkPlace) -> LaneMark | None:
        del urn
        with self._open() as topics:
            return topics.find_settled_mark(mark)

    def find_gone(self, urn: DatasetUrn, mark: MarkPlace) -> str | None:
        with self._open() as topics:
            return topics.find_gone(self.topics[urn], mark, is_marked=True)

    def adopt(self, urn: DatasetUrn, marks: Mapping[MarkPlace, LaneMark], row_count: int) -> None:
        with self._open() as topics:
            topics.adopt(self.topics[urn], marks, row_count)

    def count_loaded(self, marks: Mapping[DatasetUrn, MarkPlace]) -> Mapping[DatasetUrn, int]:
        with self._open() as topics:
            return {urn: topics.count_loaded(mark) for urn, mark in marks.items()}

    def count_rows(self, urn: DatasetUrn) -> int | None:
        """Retention and compaction take records away, and others may add some."""
        del urn
        return None

    @contextmanager
    def _open(self) -> Iterator[MarkedTopics]:
        # The kind says what opens topics. It is imported here first, since it brings the client.
        get_kind(LOAD_TOPIC)
        with StepPorts() as ports:
            yield ports.get(MarkedTopics, self.connection)
