"""One librdkafka consumer that follows partitions without an end, and the watch over whether they are still the same.

The client goes on by itself after a broker's restart, and also in a topic that was deleted and made anew: it reads the
new topic's records at the old positions and says nothing. So ``check_topics`` asks for the topics' ids; what was read
before an answer with the same ids is of the same topics.
"""

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as ClientPartition

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.kafka.client_reports import GONE, PASSING, ClientFailure, SeenFailures, judge_client
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.sources.kafka.client_messages import END, open_consumer, partition_of_message
from gobblin_assets.sources.kafka.cluster import Isolation, TopicOffsets, TopicPartition
from gobblin_assets.sources.kafka.confluent import ConfluentCluster
from gobblin_assets.sources.kafka.mark_reader import is_truncation
from gobblin_assets.sources.kafka.reading import POLL_TIMEOUT_MS

ANSWER_S_MAX: Final = 5.0
"""How long one question for ids may hold up the reading."""

ENDS_S_MAX: Final = 5.0
"""The age of the ends by which a lag is measured."""

ASK_AGAIN_S: Final = 1.0
"""The pause after a question without an answer."""

_BATCH_RECORDS: Final = 10_000
_SETTINGS: Final = {
    "fetch.wait.max.ms": 100,
    # With the default, a full queue stops the fetching for a second.
    "fetch.queue.backoff.ms": 10,
    "reconnect.backoff.max.ms": 2_000,
    "queued.max.messages.kbytes": 65_536,
}


@dataclass(slots=True)
class PolledPartition:
    """Records of one partition in their order. ``end``: nothing readable lies between the last one and this offset."""

    messages: list[Message] = field(default_factory=list)
    end: int | None = None


class LogConsumer:
    """A consumer of partitions that have no end, for one thread.

    ``topic_ids``: the topics that may be read, with their ids.

    Every method may raise RejectedError (login, rights, TLS, a topic that is gone or another one) and RetryableError
    (silence of all brokers for longer than the connection's ``default.api.timeout.ms``).
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topic_ids: Mapping[str, str],
        isolation: Isolation,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._topic_ids = dict(topic_ids)
        self._isolation = isolation
        self._monotonic = monotonic
        self._patience_s = float(connection.options.get("default.api.timeout.ms", POLL_TIMEOUT_MS)) / 1000
        asking = replace(connection, timeout_s=min(connection.timeout_s, ANSWER_S_MAX, self._patience_s))
        self._cluster = ConfluentCluster(asking)
        self._seen = SeenFailures()
        self._heard_at = self._asked_at = monotonic()
        self._ask_at = float("-inf")
        self._ends: Mapping[TopicPartition, int] = {}
        self._ends_at = float("-inf")
        settings = {**_SETTINGS, "isolation.level": isolation}
        self._consumer = open_consumer(connection, settings, self._see, action="open a consumer")

    def find_ends(self) -> Mapping[TopicPartition, int]:
        """The ends of the topics' partitions for the consumer's isolation, some seconds old; those that are known."""
        if self._monotonic() - self._ends_at > ENDS_S_MAX:
            self._ends_at = self._monotonic()
            with contextlib.suppress(RetryableError):  # what matters to the reading shows in the reading
                answers = self._cluster.find_offsets(sorted(self._topic_ids), isolation=self._isolation)
                self._ends = {
                    TopicPartition(topic, number): each.end
                    for topic, answer in answers.items()
                    if isinstance(answer, TopicOffsets)
                    for number, each in answer.partitions.items()
                }
        return self._ends

    @property
    def age_s(self) -> float:
        """How old the last answer with the topics' ids is."""
        return self._monotonic() - self._asked_at

    def assign(
        self, places: Mapping[TopicPartition, tuple[int, int | None]], *, paused: Collection[TopicPartition]
    ) -> None:
        """Read these partitions from these offsets; what was fetched before and not polled is dropped.

        Beside each offset, the leader epoch of the record before it, if it is known: the client compares it with the
        log's.
        """
        if unknown := sorted({name.topic for name in places} - self._topic_ids.keys()):
            raise RejectedError(
                f"{unknown[0]} is none of the reader's topics", field="positions", hint="Name vnodes of its topics."
            )
        self._consumer.assign(
            [
                ClientPartition(name.topic, name.partition, offset)
                if leader_epoch is None
                else ClientPartition(name.topic, name.partition, offset, leader_epoch=leader_epoch)
                for name, (offset, leader_epoch) in places.items()
            ]
        )
        self.resume([name for name in places if name not in paused])
        self.pause(paused)
        self._heard_at = self._monotonic()

    def pause(self, names: Collection[TopicPartition]) -> None:
        if names:
            self._consumer.pause([ClientPartition(name.topic, name.partition) for name in names])

    def resume(self, names: Collection[TopicPartition]) -> None:
        if names:
            self._consumer.resume([ClientPartition(name.topic, name.partition) for name in names])

    def poll(self, timeout_s: float) -> dict[TopicPartition, PolledPartition]:
        """What comes within the time, or some of it."""
        messages = self._consumer.consume(_BATCH_RECORDS, timeout_s)
        if not messages:
            if final := self._seen.find_final():
                raise judge_client(final, self._connection, action="read")
            return {}
        found: dict[TopicPartition, PolledPartition] = {}
        errors = list(map(Message.error, messages))
        # Compared with None, an error of the client fails; any other look at it is harmless.
        if any(errors):
            for message, error in zip(messages, errors, strict=True):
                if error is not None:
                    self._take_event(message, error, found)
            messages = [message for message, error in zip(messages, errors, strict=True) if error is None]
        _sort_by_partition(messages, found)
        if found:
            self._hear()
        return found

    def check_topics(self) -> bool:
        """Whether the brokers say that the topics are those of ``topic_ids``. False: they don't answer now."""
        now = self._monotonic()
        if now < self._ask_at:
            return False
        try:
            for topic, answer in self._cluster.find_topic_ids(sorted(self._topic_ids)).items():
                self._require_same(topic, answer)
        except RetryableError as error:
            if self._monotonic() - self._heard_at > self._patience_s:
                raise RetryableError(
                    f"nothing was read for {self._patience_s:g} s: {error.message}", hint=error.hint
                ) from error
            self._ask_at = self._monotonic() + ASK_AGAIN_S
            return False
        self._asked_at = self._monotonic()
        self._hear()
        return True

    def close(self) -> None:
        self._consumer.close()

    def _require_same(self, topic: str, answer: str | GobblinError) -> None:
        if isinstance(answer, GobblinError):
            raise answer
        if answer != self._topic_ids[topic]:
            raise RejectedError(
                f"the topic {topic} was deleted and made again while it was read: its id was "
                f"{self._topic_ids[topic]} and is {answer} now",
                field="datasets.topic",
                hint="Nothing of the new topic was published. To publish its records too, start the dataset over.",
                topic=topic,
            )

    def _take_event(self, event: Message, error: KafkaError, found: dict[TopicPartition, PolledPartition]) -> None:
        name, offset = partition_of_message(event.topic(), event.partition()), event.offset()
        code, said = error.name(), self._connection.scrub(error.str())
        if code == END:
            found.setdefault(name, PolledPartition()).end = offset
        elif code == "_AUTO_OFFSET_RESET" and is_truncation(said):
            raise RejectedError(
                f"{name}: the brokers lost the end of the log that was read: {said}",
                field="datasets.topic",
                hint="Nothing behind it was read. The next start compares what is published with what the log has now.",
                topic=name.topic,
                partition=name.partition,
            )
        elif code == "_AUTO_OFFSET_RESET":
            raise RejectedError(
                f"{name}: the broker does not have the offset that comes next: {said}",
                field="kafka.reset_on_out_of_range",
                hint="Nothing behind it was read. The next start goes on by this rule.",
                topic=name.topic,
                partition=name.partition,
            )
        elif code in GONE or code in PASSING:
            self._see(error)
        else:
            raise judge_client(ClientFailure(code, said), self._connection, action=f"read {name}")

    def _see(self, error: KafkaError) -> None:
        if error.name() in GONE:
            self._asked_at = float("-inf")
        self._seen.note(error)

    def _hear(self) -> None:
        self._heard_at = self._monotonic()
        self._seen.clear()


def _sort_by_partition(messages: list[Message], found: dict[TopicPartition, PolledPartition]) -> None:
    """Records come in runs of one partition. A record of one topic costs no Python code of its own."""
    groups: dict[tuple[str | None, int | None], list[Message]] = {}
    if len(set(map(Message.topic, messages))) == 1:
        topic = messages[0].topic()
        for number, run in groupby(messages, Message.partition):
            groups.setdefault((topic, number), []).extend(run)
    else:
        for message in messages:
            groups.setdefault((message.topic(), message.partition()), []).append(message)
    for (topic, number), records in groups.items():
        found.setdefault(partition_of_message(topic, number), PolledPartition()).messages = records
