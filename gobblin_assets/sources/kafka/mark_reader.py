"""Records before positions, looked up by one consumer: of all partitions at once, one or a few records of each.

The client itself asks the leaders whether the log was truncated behind the epoch of a record (KIP-320), and says so.
"""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as ClientPartition

from gobblin_assets.kafka.client_reports import SeenFailures, judge_client
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.sources.kafka.client_messages import (
    END,
    ClientMessage,
    headers_of,
    offset_of_message,
    open_consumer,
    partition_of_message,
    time_ms_of,
)
from gobblin_assets.sources.kafka.cluster import MarkAnswers, RecordMark, TopicPartition
from gobblin_assets.sources.kafka.reading import Ranges

_PARTITIONS_MAX: Final = 1_000
"""In one consumer: what it fetches lies in memory until it is polled."""

_BATCH_RECORDS: Final = 1_000
_POLL_S: Final = 0.1
_SETTINGS: Final = {
    # Also of transactions that are open or were aborted: what is at an offset is asked for.
    "isolation.level": "read_uncommitted",
    "fetch.wait.max.ms": 10,
    # Of a larger batch the client asks for more.
    "fetch.message.max.bytes": 65_536,
}
_ACTION: Final = "look at the records before positions"
_OUT_OF_RANGE: Final = "_AUTO_OFFSET_RESET"
_TRUNCATION: Final = "truncation detected"
_DIGEST_BYTES: Final = 8
_NULL: Final = b"-"


def mark_record(message: ClientMessage) -> RecordMark:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in (message.key(), message.value(), *_list_headers(message)):
        # The lengths keep apart what stands side by side.
        digest.update(_NULL if part is None else b"%d:" % len(part))
        digest.update(part or b"")
    return RecordMark(offset_of_message(message), message.leader_epoch(), time_ms_of(message), digest.hexdigest())


def _list_headers(message: ClientMessage) -> list[bytes | None]:
    pairs = headers_of(message) or ()
    return [part for name, content in pairs for part in (name.encode("utf-8", "surrogatepass"), content)]


def is_truncation(said: str) -> bool:
    """Whether the client says so that the log ends before the offset, or goes on there in another epoch."""
    return _TRUNCATION in said


def find_marks(connection: KafkaConnection, ranges: Ranges) -> Mapping[TopicPartition, RecordMark]:
    """The last record of each range of offsets, of partitions where there is one.

    RetryableError or RejectedError as other questions; a partition whose leader does not answer has none.
    """
    asked = {
        name: _Asked(ClientPartition(name.topic, name.partition, low), high)
        for name, (low, high) in ranges.items()
        if low < high
    }
    _ask(connection, asked)
    return {name: each.mark for name, each in asked.items() if each.mark is not None}


def check_marks(connection: KafkaConnection, marks: Mapping[TopicPartition, RecordMark]) -> MarkAnswers:
    """Whether the logs still have these records at their offsets. Errors of ``find_marks``."""
    asked = {name: _Asked(_place_of(name, mark), mark.offset + 1) for name, mark in marks.items()}
    _ask(connection, asked)
    lost: dict[TopicPartition, str] = {}
    for name, each in asked.items():
        mark = marks[name]
        said = each.truncation
        if each.mark is not None and each.mark.offset == mark.offset:
            said = said or mark.describe_difference(each.mark)
        if said is not None:
            lost[name] = said
    return MarkAnswers(lost, frozenset(name for name, each in asked.items() if not each.is_done))


def _place_of(name: TopicPartition, mark: RecordMark) -> ClientPartition:
    if mark.leader_epoch is None:
        return ClientPartition(name.topic, name.partition, mark.offset)
    return ClientPartition(name.topic, name.partition, mark.offset, leader_epoch=mark.leader_epoch)


@dataclass(slots=True)
class _Asked:
    """One partition whose record is sought.

    ``before``: the offset behind what is sought. ``truncation``: what the client said of the log.
    """

    place: ClientPartition
    before: int
    mark: RecordMark | None = None
    truncation: str | None = None
    is_done: bool = False


def _ask(connection: KafkaConnection, asked: Mapping[TopicPartition, _Asked]) -> None:
    names = list(asked)
    for first in range(0, len(names), _PARTITIONS_MAX):
        _Question(connection, {name: asked[name] for name in names[first : first + _PARTITIONS_MAX]}).ask()


@dataclass(slots=True)
class _Question:
    """One question, asked once."""

    connection: KafkaConnection
    asked: Mapping[TopicPartition, _Asked]
    _seen: SeenFailures = field(default_factory=SeenFailures)
    _last: dict[TopicPartition, Message] = field(default_factory=dict)

    def ask(self) -> None:
        consumer = open_consumer(self.connection, _SETTINGS, self._seen.note, action=_ACTION)
        try:
            consumer.assign([each.place for each in self.asked.values()])
            self._consume(consumer)
        finally:
            consumer.close()
        for name, message in self._last.items():
            self.asked[name].mark = mark_record(message)

    def _consume(self, consumer: Consumer) -> None:
        deadline = time.monotonic() + self.connection.timeout_s
        while any(not each.is_done for each in self.asked.values()) and time.monotonic() < deadline:
            done = [name for message in consumer.consume(_BATCH_RECORDS, _POLL_S) if (name := self._take(message))]
            if done:
                consumer.pause([ClientPartition(name.topic, name.partition) for name in done])
            elif final := self._seen.find_final():
                raise judge_client(final, self.connection, action=_ACTION)

    def _take(self, message: Message) -> TopicPartition | None:
        """The partition of which nothing more is asked."""
        error = message.error()
        name = partition_of_message(message.topic(), message.partition())
        each = self.asked.get(name)
        if each is None or each.is_done:
            return None
        offset = message.offset()
        if error is None:
            if offset is not None and offset < each.before:
                self._last[name] = message
            each.is_done = offset is None or offset >= each.before - 1
        elif error.name() in (END, _OUT_OF_RANGE):
            each.is_done = True
            if is_truncation(error.str()):
                each.truncation = self.connection.scrub(error.str()).partition(". Reset")[0]
        else:
            self._seen.note(error)
        return name if each.is_done else None
