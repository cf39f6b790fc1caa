"""A Kafka cluster as planning asks it: which topics there are, and where their partitions' logs begin and end."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from gobblin_assets.errors import GobblinError
from gobblin_assets.sources.kafka.record_marks import RecordMark

Isolation = Literal["read_committed", "read_uncommitted"]


@dataclass(frozen=True, slots=True)
class TopicPartition:
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}"


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the brokers describe it.

    ``topic_id`` is a UUID as text; a topic that was deleted and made again has another one.
    """

    name: str
    topic_id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """The offsets of one partition that can be read now.

    ``earliest`` is the first offset that the broker still has; ``end`` is one behind the last that may be read.

    For read_committed the end is the last stable offset: every open transaction begins at it or behind it.
    """

    earliest: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """Each partition of the topic is in ``partitions``, or in ``failures`` with the reason."""

    topic_id: str
    partitions: Mapping[int, PartitionOffsets]
    failures: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class MarkAnswers:
    """The brokers' answers to a question for the records before positions.

    ``lost``: why a partition's record is not in its log any more. ``silent``: partitions whose leaders did not say.

    Of all others the record is there, or was removed as topics remove records, and nothing speaks against it.
    """

    lost: Mapping[TopicPartition, str]
    silent: frozenset[TopicPartition]


class Cluster(Protocol):
    """A read-only view of one cluster. Every call waits for a bounded time.

    All methods raise RejectedError for a login that the brokers refuse, and RetryableError when no broker answers.
    """

    def list_topics(self) -> Mapping[str, TopicDescription]:
        """Topics by name, without Kafka's internal topics and without those that the user may not see."""
        ...

    def find_offsets(self, topics: Sequence[str], *, isolation: Isolation) -> Mapping[str, TopicOffsets | GobblinError]:
        """For each topic its offsets, or the error that ends its planning: the topic is unknown, or may not be read."""
        ...

    def find_offsets_at(self, wanted: Mapping[TopicPartition, dt.datetime]) -> Mapping[TopicPartition, int | None]:
        """The first offset whose record is not older than the time; None when there is none.

        RetryableError when a partition's leader does not say: a guess would skip records.
        """
        ...

    def find_marks(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Mapping[TopicPartition, RecordMark]:
        """The last record of each half-open range of offsets, of the partitions where there is one."""
        ...

    def check_marks(self, marks: Mapping[TopicPartition, RecordMark]) -> MarkAnswers:
        """Whether the logs still have these records at their offsets."""
        ...
