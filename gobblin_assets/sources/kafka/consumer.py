"""Small ranges of many partitions, read by one librdkafka consumer in this process.

Spark's reader opens a consumer for each partition, which takes a tenth of a second and more. This is fine for a
partition of a million records, but takes a quarter of an hour for the four thousand partitions of a thousand small
topics. One librdkafka consumer reads all of them in a second or two. Its reads are bounded, since the records lie in
memory until Spark takes them.

The ranges are read exactly, or not at all: if a log begins behind a range's start, or ends before its end, that is an
error. A gap is no error: a partition is done when a record at or behind its range's end comes, or when the client
reports the end of the partition.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as ClientPartition

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.kafka.client_reports import GONE, PASSING, ClientFailure, SeenFailures, judge_client
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.sources.kafka.client_messages import (
    END,
    TIME_MS_MAX,
    TIME_MS_MIN,
    build_records,
    headers_of,
    open_consumer,
    partition_of_message,
)
from gobblin_assets.sources.kafka.cluster import Isolation, TopicPartition
from gobblin_assets.sources.kafka.reading import POLL_TIMEOUT_MS, Ranges

BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of keys, values and headers in one read: more than the sizes of earlier runs let expect."""

BEYOND_MAX: Final = 1_000_000
"""How many records with such times one read may find."""

_BATCH_RECORDS: Final = 10_000
_POLL_S: Final = 0.5
_SETTINGS: Final = {
    # The records are there already: a partition without more is to be reported at once.
    "fetch.wait.max.ms": 20,
    "queued.max.messages.kbytes": 65_536,
}


class TooManyBytesError(RetryableError):
    """The records of a read are more than may lie in memory."""


def read_ranges(
    connection: KafkaConnection, ranges: Ranges, *, isolation: Isolation, bytes_max: int = BYTES_MAX
) -> pa.Table:
    """The records of the ranges, in the columns of Spark's source, in no order of partitions.

    A record without a time, or with one beyond ``TIME_MS_MIN`` and ``TIME_MS_MAX``, has NULL for it.

    Raises:
        RejectedError: the login is refused, or may not read.
        RetryableError: records were deleted, a topic is gone, no record came for a long time, or they are too large.

    """
    columns = _Columns()
    _Read(connection, ranges, isolation, bytes_max, columns).run()
    return columns.as_table()


def find_beyond_time(
    connection: KafkaConnection, ranges: Ranges, *, isolation: Isolation
) -> Mapping[TopicPartition, Sequence[int]]:
    """The ascending offsets of records whose time is none from ``TIME_MS_MIN`` to ``TIME_MS_MAX``, by partitions.

    Reads all records, keeps only offsets. Errors of ``read_ranges``; RejectedError also for more than ``BEYOND_MAX``.
    """
    beyond = _BeyondTime()
    _Read(connection, ranges, isolation, BYTES_MAX, beyond).run()
    return {name: sorted(offsets) for name, offsets in beyond.found.items()}


class _Kept(Protocol):
    """The records that a read keeps."""

    @property
    def size_bytes(self) -> int: ...

    def add(self, message: Message) -> None: ...


@dataclass(slots=True)
class _BeyondTime:
    found: dict[TopicPartition, list[int]] = field(default_factory=dict)
    count: int = 0
    size_bytes: int = 0

    def add(self, message: Message) -> None:
        _kind, timestamp_ms = message.timestamp()
        number, offset = message.partition(), message.offset()
        if TIME_MS_MIN <= timestamp_ms <= TIME_MS_MAX or number is None or offset is None:
            return
        self.found.setdefault(TopicPartition(message.topic() or "", number), []).append(offset)
        self.count += 1
        if self.count > BEYOND_MAX:
            raise RejectedError(
                f"more than {BEYOND_MAX:,} records have a time beyond what a timestamp holds",
                field="kafka.records_per_partition_max",
                hint="Set it, such as to 100000: that many are read in one run, and the rest in the next.",
            )


@dataclass(slots=True)
class _Columns:
    found: list[Message] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, message: Message) -> None:
        self.found.append(message)
        self.size_bytes += len(message.key() or b"") + len(message.value() or b"")
        for header, content in headers_of(message) or ():
            self.size_bytes += len(header) + len(content or b"")

    def as_table(self) -> pa.Table:
        return pa.Table.from_batches([build_records(self.found, with_headers=True)])


class _Read:
    """One read, which runs once."""

    def __init__(
        self, connection: KafkaConnection, ranges: Ranges, isolation: Isolation, bytes_max: int, kept: _Kept
    ) -> None:
        self._connection = connection
        self._left = {name: high for name, (low, high) in ranges.items() if low < high}
        self._starts = {name: low for name, (low, _high) in ranges.items() if name in self._left}
        self._isolation = isolation
        self._bytes_max = bytes_max
        self._patience_s = float(connection.options.get("default.api.timeout.ms", POLL_TIMEOUT_MS)) / 1000
        self._seen = SeenFailures()
        self._kept = kept

    def run(self) -> None:
        if not self._left:
            return
        settings = {**_SETTINGS, "isolation.level": self._isolation}
        consumer = open_consumer(self._connection, settings, self._seen.note, action="read")
        try:
            consumer.assign([ClientPartition(n.topic, n.partition, low) for n, low in self._starts.items()])
            self._consume(consumer)
        finally:
            consumer.close()

    def _consume(self, consumer: Consumer) -> None:
        deadline = time.monotonic() + self._patience_s
        while self._left:
            messages = consumer.consume(_BATCH_RECORDS, _POLL_S)
            done: list[TopicPartition] = []
            for message in messages:
                name = self._take(message)
                if name is not None:
                    done.append(name)
            if done:
                consumer.pause([ClientPartition(name.topic, name.partition) for name in done])
            if self._kept.size_bytes > self._bytes_max:
                raise TooManyBytesError(
                    f"{len(self._starts)} partitions gave more than {self._bytes_max:,} bytes at once",
                    hint="Fewer of them are read together.",
                )
            if any(message.error() is None for message in messages) or done:
                deadline = time.monotonic() + self._patience_s
            elif gone := next((failure for failure in self._seen if failure.name in GONE), None):
                # The client reports a partition that it can't find in this way; no message of it comes.
                raise _describe_gone(self._connection.scrub(gone.text))
            elif self._seen.find_final() or time.monotonic() > deadline:
                raise self._give_up()

    def _take(self, message: Message) -> TopicPartition | None:
        """Keep a record. Returns its partition if the record completes that partition."""
        error = message.error()
        name = partition_of_message(message.topic(), message.partition())
        if error is not None and error.name() != END:
            self._judge(name, error)
            return None
        high = self._left.get(name)
        if high is None:
            return None
        offset = message.offset()
        if error is not None:
            if offset is None or offset < high:
                raise RetryableError(
                    f"{name}: the log ends at {offset} and ended at {high} when the run was planned",
                    hint="Nothing of it was published. The next run plans anew.",
                )
        elif offset is not None and offset < high:
            self._kept.add(message)
            if offset < high - 1:
                return None
        del self._left[name]
        return name

    def _judge(self, name: TopicPartition, error: KafkaError) -> None:
        """Raise for an error that waiting does not mend."""
        code, said = error.name(), self._connection.scrub(error.str())
        if code == "_AUTO_OFFSET_RESET":
            raise RetryableError(
                f"{name}: records were deleted between planning and reading: {said}",
                hint="Nothing of it was published. The next run plans anew, by reset_on_out_of_range.",
            )
        if code in GONE:
            raise _describe_gone(f"{name}: {said}")
        if code in PASSING:
            self._seen.note(error)
            return
        raise judge_client(ClientFailure(code, said), self._connection, action=f"read {name}")

    def _give_up(self) -> Exception:
        name = next(iter(self._left))
        failure = ClientFailure("_TIMED_OUT", f"no record for {self._patience_s:g} s")
        more = f" and {len(self._left) - 1} more" if len(self._left) > 1 else ""
        return judge_client(failure, self._connection, action=f"read {name}{more}", seen=self._seen)


def _describe_gone(said: str) -> RetryableError:
    return RetryableError(
        f"the topic was deleted while it was read: {said}",
        hint="Nothing of it was published; watermarks stay where they are.",
    )
