"""A Kafka cluster as planning asks it: which topics there are, and where their partitions' logs begin and end.

An offset alone is no place: a log whose end was lost gives old offsets to new records. The record before a position
says which log it is (``RecordMark``): by the epoch of the leader that appended it, by its time, and by a digest of what
it holds. Epochs alone would not do, since a broker that lost its files may begin to count anew.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from gobblin_assets.errors import GobblinError


@dataclass(frozen=True, slots=True)
class RecordMark:
    """The identity of one record.

    ``leader_epoch`` None: the brokers do not say it. ``time_ms``: since 1970, below 0 without a time.
    """

    offset: int
    leader_epoch: int | None
    time_ms: int
    digest: str

    def write(self) -> dict[str, object]:
        """As it is kept with a position."""
        return {"offset": self.offset, "epoch": self.leader_epoch, "time_ms": self.time_ms, "digest": self.digest}

    def describe_difference(self, found: "RecordMark") -> str | None:
        """Why ``found``, which has the same offset, is another record; None: it is the same."""
        if None not in (self.leader_epoch, found.leader_epoch) and self.leader_epoch != found.leader_epoch:
            return (
                f"its record {self.offset} was appended in the leader epoch {found.leader_epoch}, and the one that "
                f"was published in {self.leader_epoch}"
            )
        if (self.time_ms, self.digest) != (found.time_ms, found.digest):
            return f"its record {self.offset} is another one than was published"
        return None


def read_mark(history: Mapping[str, object] | None) -> RecordMark | None:
    """What ``write`` wrote; None: nothing is known."""
    match history:
        case {
            "offset": int() as offset,
            "epoch": int() | None as epoch,
            "time_ms": int() as at,
            "digest": str() as what,
        }:
            return RecordMark(offset, epoch, at, what)
        case _:
            return None


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
