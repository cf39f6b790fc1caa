"""A lane's transactional producer. Once it is initialized, nobody else who has the lane's id can commit anything.

The mark that a producer remembers is right as long as the producer can commit. Every change of a lane's mark is a
transaction under the lane's id, and a producer is refused once another one has replaced it.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from gobblin_assets.destinations.kafka.mark_records import PARTITION, TopicMark
from gobblin_assets.destinations.kafka.write_failures import QUIET, TooLargeError, judge_write
from gobblin_assets.errors import FencedError, GobblinError, OutcomeUnknownError
from gobblin_assets.kafka.client_reports import ClientFailure, SeenFailures, client_failure
from gobblin_assets.kafka.connection import KafkaConnection

TRANSACTION_S: Final = (20, 60, 300, 900)
"""How long a transaction may take. A process that is paused in one holds others back for so long at most."""

ROWS_A_SECOND: Final = 20_000
BYTES_A_SECOND: Final = 1 << 20
"""Loads are faster than this by far, where a broker is not overloaded."""

RECORD_BYTES_MIN: Final = 1_000_000
BATCH_BYTES_MAX: Final = 1_000_000
"""The client's own default. A batch is refused as a whole where it is larger than its topic takes."""
ALONE: Final = 1
"""The bytes of a batch that has one record, however large."""
_FRAME_BYTES: Final = 100
QUEUE_KIB: Final = 64 << 10
QUEUE_RECORDS: Final = 200_000
_ABORT_S: Final = 5.0
_CALL_S: Final = 2.0
_POLL_S: Final = 0.05
_WRITE: Final = "write records"
_ANY: Final = -1
_NO_STATE: Final = "_STATE"


def choose_timeout_s(row_count: int, byte_count: int) -> int:
    """The shortest of the times that is enough for a load of this size, or the longest."""
    needed = TRANSACTION_S[0] + max(row_count / ROWS_A_SECOND, byte_count / BYTES_A_SECOND)
    small = row_count < ROWS_A_SECOND and byte_count < BYTES_A_SECOND
    return TRANSACTION_S[0] if small else next((each for each in TRANSACTION_S if each >= needed), TRANSACTION_S[-1])


def choose_batch_bytes(topic_bytes: int) -> int:
    """Bytes of a batch for a topic that takes so many at once; 0: that can't be seen."""
    return min(BATCH_BYTES_MAX, max(ALONE, topic_bytes - _FRAME_BYTES)) if topic_bytes else BATCH_BYTES_MAX


@dataclass(slots=True)
class LaneProducer:
    """The producer of a lane.

    ``known``: the lane's mark, once it was looked at; None: not yet. After an error it is of no use any more.
    """

    connection: KafkaConnection
    transactional_id: str
    timeout_s: int
    record_bytes_max: int
    batch_bytes_max: int = BATCH_BYTES_MAX
    known: TopicMark | None = None
    _client: Any = field(init=False)
    _seen: SeenFailures = field(default_factory=SeenFailures, init=False)
    _is_refused: bool = field(default=False, init=False)
    _refused: ClientFailure | None = field(default=None, init=False)
    _refused_bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        settings: dict[str, Any] = {
            **self.connection.admin_settings(),
            "logger": QUIET,
            "log.connection.close": False,
            "transactional.id": self.transactional_id,
            "transaction.timeout.ms": self.timeout_s * 1000,
            "enable.idempotence": True,
            "acks": "all",
            # A topic that is gone stays gone.
            "allow.auto.create.topics": False,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "message.max.bytes": self.record_bytes_max,
            "batch.size": self.batch_bytes_max,
            "queue.buffering.max.kbytes": QUEUE_KIB,
            "queue.buffering.max.messages": QUEUE_RECORDS,
            "error_cb": self._seen.note,
            "delivery.report.only.error": True,
            "on_delivery": self._note_refused,
        }
        try:
            self._client = Producer(settings)
        except KafkaException as error:
            raise self._judge(error, "make a producer") from None

    def open(self) -> Self:
        """Fence off whoever had the lane before. What they had begun is ended when this returns."""
        deadline = time.monotonic() + self.connection.timeout_s
        self._repeat(self._client.init_transactions, deadline, "begin transactions")
        return self

    def begin(self) -> None:
        self._seen.clear()
        self._refused = None
        self._try("begin a transaction", self._client.begin_transaction)

    def send(self, topic: str, values: Sequence[bytes], keys: Sequence[bytes | None] | None = None) -> None:
        """Hand records over. What the brokers refuse is raised by ``commit``."""
        self._send(topic, values, repeat(None) if keys is None else keys, _ANY)

    def send_mark(self, topic: str, key: bytes, value: bytes) -> None:
        """Hand over the lane's mark, to the partition in which marks are sought, however many others there are."""
        self._send(topic, [value], [key], PARTITION)

    def _send(self, topic: str, values: Sequence[bytes], keys: Iterable[bytes | None], partition: int) -> None:
        produce = self._client.produce
        self._serve(0)
        for value, key in zip(values, keys):  # noqa: B905  one of them may have no end
            try:
                produce(topic, value, key, partition)
            except BufferError:
                self._send_slowly(topic, key, value, partition)
            except KafkaException as error:
                raise self._explain(self._find_cause(error.args[0]), topic, key, value) from None

    def _send_slowly(self, topic: str, key: bytes | None, value: bytes, partition: int) -> None:
        """The queue is full: wait for the brokers."""
        deadline = time.monotonic() + self.timeout_s
        while time.monotonic() < deadline:
            self._serve(_POLL_S)
            try:
                self._client.produce(topic, value, key, partition)
            except BufferError:
                continue
            except KafkaException as error:
                raise self._explain(self._find_cause(error.args[0]), topic, key, value) from None
            return
        raise self._judge_failure(ClientFailure("_TIMED_OUT", "the brokers take no more records"), _WRITE)

    def flush(self) -> None:
        """Wait until the brokers have all records."""
        deadline = time.monotonic() + self.timeout_s
        while len(self._client):
            self._serve(_POLL_S)
            if self._refused is not None:
                # The transaction can't be committed any more, and the client keeps what is behind the record.
                raise self._mark_alone(self._judge_failure(self._refused, _WRITE), self._refused_bytes)
            if time.monotonic() > deadline:
                raise self._judge_failure(ClientFailure("_TIMED_OUT", "the brokers did not take all records"), _WRITE)

    def commit(self) -> None:
        """OutcomeUnknownError: the transaction may be there."""
        deadline = time.monotonic() + max(self.connection.timeout_s, self.timeout_s)
        try:
            self._repeat(self._commit, deadline, "commit a transaction")
        except FencedError:
            raise
        except GobblinError as error:
            if self._is_refused:
                raise
            raise OutcomeUnknownError(error.message, hint=error.hint) from None

    def _commit(self, left_s: float) -> None:
        try:
            self._client.commit_transaction(left_s)
        except KafkaException as error:
            # Only then it is certain that nothing was committed.
            self._is_refused = error.args[0].txn_requires_abort()
            raise

    def close(self) -> None:
        """End what was begun, if the brokers answer at once; they do it by themselves after a while."""
        with suppress(KafkaException):
            self._client.purge()
            self._client.abort_transaction(_ABORT_S)

    def _repeat(self, call: Callable[[float], object], deadline: float, action: str) -> None:
        """Call again for as long as the client says that the call goes on, and that waiting is of use."""
        while True:
            try:
                call(max(0.1, min(_CALL_S, deadline - time.monotonic())))
            except KafkaException as error:
                self._serve(0)
                is_of_use = time.monotonic() < deadline and self._seen.find_final() is None
                if error.args[0].retriable() and is_of_use:
                    continue
                raise self._judge(error, action) from None
            return

    def _try(self, action: str, call: Callable[[], object]) -> None:
        try:
            call()
        except KafkaException as error:
            raise self._judge(error, action) from None

    def _serve(self, wait_s: float) -> None:
        """Take what the client reports. It raises a fatal error; a callback behind that makes the error a cause."""
        try:
            self._client.poll(wait_s)
        except (KafkaException, SystemError) as error:
            found = error if isinstance(error, KafkaException) else error.__cause__
            if not isinstance(found, KafkaException):
                raise
            raise self._judge(found, _WRITE) from None

    def _judge(self, error: KafkaException, action: str) -> GobblinError:
        return self._judge_failure(client_failure(error.args[0]), action)

    def _judge_failure(self, failure: ClientFailure, action: str) -> GobblinError:
        return judge_write(failure, self.connection, action=action, seen=self._seen)

    def _find_cause(self, error: KafkaError) -> KafkaError:
        """Why the transaction takes no more records. The client says it only to who begins another one."""
        if error.name() != _NO_STATE:
            return error
        try:
            self._client.begin_transaction()
        except KafkaException as cause:
            found: KafkaError = cause.args[0]
            return found
        return error

    def _explain(self, error: KafkaError, topic: str, key: bytes | None, value: bytes) -> GobblinError:
        size = len(value) + len(key or b"")
        if error.txn_requires_abort():  # of an earlier record
            return self._judge_failure(ClientFailure(error.name(), f"{topic}: {error.str()}"), _WRITE)
        said = f"{error.str()}: a record of {size:,} bytes for {topic}, which takes {self.record_bytes_max:,}"
        return self._mark_alone(self._judge_failure(ClientFailure(error.name(), said), _WRITE), size)

    def _mark_alone(self, error: GobblinError, size: int) -> GobblinError:
        """A record that does not fit into a batch is in none. One that the client does not take is larger still."""
        if isinstance(error, TooLargeError):
            error.is_alone = size >= min(self.batch_bytes_max, self.record_bytes_max)
        return error

    def _note_refused(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and self._refused is None:
            self._refused = ClientFailure(error.name(), f"{message.topic()}: {error.str()}")
            self._refused_bytes = len(message.value() or b"") + len(message.key() or b"")
