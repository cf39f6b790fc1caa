"""Planning of one topic from plain values, for tests of planning."""

import datetime as dt
import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.state import DatasetId, DatasetState, KeyId, KeyState
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.watermark import Watermark, long_watermark
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.run.job_kind import Restart, StartAt
from gobblin_assets.sources.kafka.cluster import (
    Isolation,
    MarkAnswers,
    PartitionOffsets,
    RecordMark,
    TopicDescription,
    TopicOffsets,
    TopicPartition,
)
from gobblin_assets.sources.kafka.kafka_kind import SizeEstimator
from gobblin_assets.sources.kafka.planning import (
    TopicDecision,
    cut_ranges,
    decide_ranges,
    find_beginners,
    recall_topic,
)
from gobblin_assets.sources.kafka.sizes import Sizes
from gobblin_assets.sources.source_port import SourceRequest
from gobblin_assets.spec.job_spec import DatasetSpec

TOPIC = "MyTopic"
CONNECTION = KafkaConnection(bootstrap_servers="nowhere:9092")
_IDS = itertools.count(1)


def offsets_of(partitions: Mapping[int, tuple[int, int]], *failed: int, topic_id: str = "first") -> TopicOffsets:
    known = {number: PartitionOffsets(earliest, end) for number, (earliest, end) in partitions.items()}
    return TopicOffsets(topic_id, known, dict.fromkeys(failed, "no leader"))


@dataclass
class Follower:
    """A dataset that follows a topic: it plans, and publishes all planned partitions or some of them."""

    kafka: dict[str, Any] = field(default_factory=dict)
    split: dict[str, Any] = field(default_factory=dict)
    watermarks: dict[str, int | Watermark | None] = field(default_factory=dict)
    facts: dict[str, object] = field(default_factory=dict)
    topic: str = TOPIC

    def request(self, restart: Restart | StartAt | None = None, *, only_moves: bool = False) -> SourceRequest:
        keys = {
            (name, ""): KeyState(KeyId(number), name, "", long_watermark(at) if isinstance(at, int) else at)
            for number, (name, at) in enumerate(self.watermarks.items())
        }
        spec = DatasetSpec.model_validate({"topic": self.topic, "kafka": self.kafka, "split": self.split})
        state = DatasetState(DatasetId(1), JobName("job"), DatasetUrn(self.topic), 0, keys, source_facts=self.facts)
        return SourceRequest(
            DatasetUrn(self.topic),
            AssetPartition(None),
            state,
            mode=Mode.AUTO,
            by_hand=False,
            restart=restart,
            only_moves=only_moves,
            spec=spec,
        )

    def decide(
        self,
        offsets: TopicOffsets,
        restart: Restart | StartAt | None = None,
        at_time: Mapping[int, int | None] | None = None,
        *,
        only_moves: bool = False,
    ) -> TopicDecision:
        request = self.request(restart, only_moves=only_moves)
        memory = recall_topic(request, self.topic, offsets)
        asked = find_beginners(request, memory, offsets.partitions)
        return decide_ranges(
            request, memory, offsets, at_time={name: (at_time or {})[name.partition] for name in asked}
        )

    def publish(self, decision: TopicDecision, *, without: frozenset[int] = frozenset()) -> None:
        self.facts = decision.facts
        for number, chosen in decision.ranges.items():
            if number not in without:
                self.watermarks[str(chosen.key)] = chosen.offsets.high

    def follow(self, offsets: TopicOffsets, restart: Restart | StartAt | None = None) -> dict[str, tuple[int, int]]:
        """Plan and publish everything. Returns the offsets read, by key."""
        decision = self.decide(offsets, restart)
        self.publish(decision)
        return ranges_of(decision)

    def cut(self, offsets: TopicOffsets) -> list[WorkUnit]:
        sizes = Sizes(SizeEstimator.AVERAGE_RECORD_SIZE)
        return cut_ranges(self.request(), self.decide(offsets), sizes, new_id=lambda: uuid.UUID(int=next(_IDS)))


def ranges_of(decision: TopicDecision) -> dict[str, tuple[int, int]]:
    return {str(chosen.key): (chosen.offsets.low, chosen.offsets.high) for chosen in decision.ranges.values()}


@dataclass
class FixedCluster:
    """Brokers whose logs never change; a topic without offsets is unknown."""

    offsets: Mapping[str, TopicOffsets]
    at_time: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    asked: list[list[str]] = field(default_factory=list)

    def list_topics(self) -> Mapping[str, TopicDescription]:
        return {
            name: TopicDescription(name, each.topic_id, tuple(each.partitions)) for name, each in self.offsets.items()
        }

    def find_offsets(self, topics: Sequence[str], *, isolation: Isolation) -> Mapping[str, TopicOffsets | GobblinError]:
        self.asked.append(list(topics))
        unknown = RejectedError("there is no such topic", field="topic", hint="Make it.")
        return {topic: self.offsets.get(topic, unknown) for topic in topics}

    def find_offsets_at(self, wanted: Mapping[TopicPartition, dt.datetime]) -> Mapping[TopicPartition, int | None]:
        return {name: self.at_time[name] for name in wanted}

    def find_marks(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Mapping[TopicPartition, RecordMark]:
        del ranges
        return {}

    def check_marks(self, marks: Mapping[TopicPartition, RecordMark]) -> MarkAnswers:
        del marks
        return MarkAnswers({}, frozenset())
