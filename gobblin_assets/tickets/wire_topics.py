"""Topics of tickets and reports: their names, a producer that waits for the brokers, a reader from stored places.

Logins and certificates are those of a Kafka connection of the environment, as of jobs.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from gobblin_assets.destinations.kafka.topic_admin import TopicAdmin
from gobblin_assets.destinations.kafka.topic_batches import LoadedTopic
from gobblin_assets.destinations.kafka.write_failures import QUIET, TooLargeError, judge_write
from gobblin_assets.errors import ConflictError, GobblinError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.kafka.client_reports import ClientFailure, SeenFailures, client_failure
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.sources.kafka.client_messages import offset_of_message
from gobblin_assets.sources.kafka.cluster import TopicOffsets, TopicPartition
from gobblin_assets.sources.kafka.confluent import ConfluentCluster
from gobblin_assets.sources.kafka.log_consumer import LogConsumer

ANSWER_S: Final = 5.0
"""So long one send may wait for the brokers: others wait behind it, and it is repeated anyway."""

RECORD_BYTES_MAX: Final = 4 << 20
"""A record has at most so many bytes before it is compressed; its topic decides then: 1 MiB, unless it is set."""

LOOK_AGAIN_S: Final = 30.0
"""So often topics are looked at, which may have got further partitions."""

ABSENT_LOOK_S: Final = 3.0
"""The same while one of them is missing."""

_POLL_S: Final = 0.05
_ISOLATION: Final = "read_committed"


def name_ticket_topic(executor: str) -> str:
    return f"gobblin-tickets-{executor}"


def name_report_topic(executor: str) -> str:
    return f"gobblin-reports-{executor}"


def prepare_wire_topics(connection: KafkaConnection, names: Sequence[str]) -> None:
    """Make them, unless they are there: of one partition each, with the brokers' settings.

    RejectedError: one of them loses records by its settings, or may not be made. Errors as of ``WireProducer.send``.
    """
    admin = TopicAdmin(connection)
    for name in names:
        try:
            admin.prepare(LoadedTopic(name, partitions=1))
        except RejectedError as error:
            if str(error.fields.get("field", "")).startswith("into."):
                raise RejectedError(
                    f"{name} can't take tickets or reports: {error.message.partition(': ')[2]}",
                    field="topic",
                    hint="Let its cleanup.policy be delete, and its replicas be as many as min.insync.replicas asks.",
                ) from None
            raise


@dataclass(frozen=True, slots=True)
class WireRecord:
    """A record that was read of a topic, which has this id."""

    topic: str
    topic_id: str
    partition: int
    offset: int
    value: bytes | None


@dataclass(slots=True)
class WireProducer:
    """An idempotent producer: a record that all replicas in sync have is there once. Any thread may send."""

    connection: KafkaConnection
    timeout_s: float = ANSWER_S
    _client: Any = field(default=None, init=False)
    _seen: SeenFailures = field(default_factory=SeenFailures, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def send(self, topic: str, records: Sequence[tuple[str, bytes]]) -> None:
        """Keys and values, in their order. All are at the brokers when this returns.

        Raises:
            ConflictError: a record is larger than the topic takes.
            RejectedError: the topic, the login, the rights or the certificates are not right.
            RetryableError: others are sending, and wait for the brokers.
            OutcomeUnknownError: the brokers did not answer; some or all records may be there.

        """
        if not self._lock.acquire(timeout=self.timeout_s):
            raise RetryableError(f"the brokers of {self.connection.name} are waited for by others", passes=True)
        try:
            self._send(topic, records)
        except GobblinError:
            # What waits in the client is sent by nobody any more.
            self._drop()
            raise
        finally:
            self._lock.release()

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _send(self, topic: str, records: Sequence[tuple[str, bytes]]) -> None:
        self._seen.clear()
        refused: list[ClientFailure] = []

        def hear(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                refused.append(client_failure(error))

        client = self._open()
        deadline = time.monotonic() + self.timeout_s
        try:
            for key, value in records:
                client.produce(topic, value, key.encode(), on_delivery=hear)
            while len(client) and not refused and self._seen.find_final() is None and time.monotonic() < deadline:
                client.poll(_POLL_S)
        except (KafkaException, BufferError, SystemError) as error:
            cause = error if isinstance(error, KafkaException) else error.__cause__
            said = client_failure(cause.args[0]) if isinstance(cause, KafkaException) else None
            refused.append(said or ClientFailure("_QUEUE_FULL", str(error)))
        if refused or len(client):
            raise self._judge(refused[0] if refused else ClientFailure("_TIMED_OUT", "no answer"), topic)

    def _open(self) -> Any:
        if self._client is None:
            settings: dict[str, Any] = {
                **self.connection.admin_settings(),
                "logger": QUIET,
                "log.connection.close": False,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "message.timeout.ms": round(self.timeout_s * 1000),
                # A topic that is gone is made by nobody in silence.
                "allow.auto.create.topics": False,
                "compression.type": "lz4",
                "message.max.bytes": RECORD_BYTES_MAX,
                "partitioner": "murmur2_random",
                "error_cb": self._seen.note,
            }
            try:
                self._client = Producer(settings)
            except KafkaException as error:
                raise self._judge(client_failure(error.args[0]), "a topic") from None
        return self._client

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(KafkaException):
                client.purge()

    def _judge(self, failure: ClientFailure, topic: str) -> GobblinError:
        if failure.name == "TOPIC_AUTHORIZATION_FAILED":
            return self.connection.reject(
                "username", f"may not write to {topic}: {failure.text}", "Grant this user Write and Describe on it."
            )
        if failure.name in {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"}:
            return RejectedError(
                f"there is no topic {topic} on {self.connection.bootstrap_servers}",
                field="topic",
                hint="Start the executor once, which makes it, or make it by hand.",
            )
        error = judge_write(failure, self.connection, action=f"write to {topic}", seen=self._seen)
        if isinstance(error, TooLargeError):
            return ConflictError(
                f"a record is larger than the topic {topic} takes: {failure.text}",
                hint="Raise max.message.bytes of the topic.",
            )
        if isinstance(error, RejectedError | OutcomeUnknownError):
            return error
        return OutcomeUnknownError(error.message, hint=error.hint)


class WireReader:
    """Reads topics from stored places on, for one thread. What it gives is of the topics that have these ids.

    ``load_places``: of a topic and its id, the offsets that are next, by partition. ``hear_of_loss``: records are gone
    before they were read.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        load_places: Callable[[str, str], Mapping[int, int]],
        say: Callable[[str], None],
        hear_of_loss: Callable[[], None],
    ) -> None:
        self._connection = replace(connection, timeout_s=min(connection.timeout_s, ANSWER_S))
        self._load_places = load_places
        self._say = say
        self._hear_of_loss = hear_of_loss
        self._wanted: frozenset[str] = frozenset()
        self._found: dict[str, TopicOffsets] = {}
        self._consumer: LogConsumer | None = None
        self._look_at_s = float("-inf")
        self._unchecked: list[WireRecord] = []
        self._told: frozenset[str] = frozenset()

    def follow(self, topics: Collection[str]) -> None:
        if frozenset(topics) != self._wanted:
            self._wanted = frozenset(topics)
            self._look_at_s = float("-inf")

    def poll(self, timeout_s: float) -> Sequence[WireRecord]:
        """Records in the order of each partition. What was given and not stored is given again behind ``start_over``.

        Raises:
            RejectedError: the login, the rights or the certificates are not right, or a topic is another one now.
            RetryableError: no broker answers.

        """
        if time.monotonic() >= self._look_at_s:
            self._look()
        if self._consumer is None:
            return ()
        try:
            if not self._unchecked:
                self._unchecked = self._read(self._consumer, timeout_s)
            # Behind the reading: a topic that was made anew would be read at the old place.
            if not self._unchecked or not self._consumer.check_topics():
                return ()
        except GobblinError:
            self.start_over()
            raise
        given, self._unchecked = self._unchecked, []
        return given

    def start_over(self) -> None:
        """Go on at the stored places, of the topics as they are then."""
        self._unchecked = []
        self._found = {}
        self._look_at_s = float("-inf")

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _read(self, consumer: LogConsumer, timeout_s: float) -> list[WireRecord]:
        return [
            WireRecord(
                name.topic, self._found[name.topic].topic_id, name.partition, offset_of_message(each), each.value()
            )
            for name, polled in consumer.poll(timeout_s).items()
            for each in polled.messages
        ]

    def _look(self) -> None:
        """Open another consumer, unless the topics are as they were."""
        self._look_at_s = time.monotonic() + ABSENT_LOOK_S
        answers = ConfluentCluster(self._connection).find_offsets(sorted(self._wanted), isolation=_ISOLATION)
        found = {name: each for name, each in answers.items() if isinstance(each, TopicOffsets) and not each.failures}
        self._tell({name: each for name, each in answers.items() if isinstance(each, GobblinError)})
        if len(found) == len(self._wanted):
            self._look_at_s = time.monotonic() + LOOK_AGAIN_S
        if _list_shapes(found) == _list_shapes(self._found) and self._consumer is not None:
            return
        self.close()
        self._unchecked = []
        self._found = found
        if found:
            places = {TopicPartition(name, number): at for name in found for number, at in self._begin(name).items()}
            ids = {name: each.topic_id for name, each in found.items()}
            self._consumer = LogConsumer(self._connection, ids, _ISOLATION)
            self._consumer.assign({name: (at, None) for name, at in places.items()}, paused=())

    def _begin(self, topic: str) -> dict[int, int]:
        offsets = self._found[topic]
        stored = self._load_places(topic, offsets.topic_id)
        begins = {}
        for number, known in offsets.partitions.items():
            at = stored.get(number, known.earliest)
            if at > known.end:
                self._found = {}
                raise RejectedError(
                    f"the topic {topic} has lost its end: {at} comes next in partition {number}, and it ends at"
                    f" {known.end}",
                    field="topic",
                    hint="Delete the topic, and start the executor again: what is open is then sent and told again.",
                )
            if at < known.earliest:
                self._say(f"{topic}: {known.earliest - at} records are gone before they were read")
                self._hear_of_loss()
            begins[number] = max(at, known.earliest)
        return begins

    def _tell(self, errors: Mapping[str, GobblinError]) -> None:
        said = {f"{name}: {error.message}" for name, error in errors.items()}
        for line in sorted(said - self._told):
            self._say(line)
        self._told = frozenset(said)


def _list_shapes(found: Mapping[str, TopicOffsets]) -> dict[str, tuple[str, frozenset[int]]]:
    return {name: (each.topic_id, frozenset(each.partitions)) for name, each in found.items()}
