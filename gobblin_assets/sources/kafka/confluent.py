"""The cluster as librdkafka's admin client sees it. Beside it, only the two consumers talk with that client.

Each question opens a client of its own: a long-lived one keeps asking a controller or a leader that is gone, and none
survives a fork. The client never says that a login is refused; it tries until its time is up. So the reports of its
connections are watched, and a question ends as soon as waiting is useless.
"""

import contextlib
import datetime as dt
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the vendor does not mark what it exports
    AdminClient,
    OffsetSpec,
)
from confluent_kafka.admin import TopicDescription as ClientTopic  # type: ignore[attr-defined]  # the same

from gobblin_assets.errors import GobblinError, RetryableError
from gobblin_assets.kafka.client_reports import (
    ClientFailure,
    SeenFailures,
    client_failure,
    explain_partition,
    judge_client,
    judge_topic,
    read_topic_id,
)
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.sources.kafka.cluster import (
    Isolation,
    MarkAnswers,
    PartitionOffsets,
    RecordMark,
    TopicDescription,
    TopicOffsets,
    TopicPartition,
)
from gobblin_assets.sources.kafka.mark_reader import check_marks, find_marks

POLL_S: Final = 0.1
GRACE_S: Final = 5.0
"""Added to the client's own deadline: an answer that has not come by then will not come."""

PARTITIONS_PER_CALL: Final = 1_000
"""The client's time grows with the square of a call's partitions."""

ROUNDS_MAX: Final = 6
"""A partition whose leader is just changing is asked again: five pauses are 7.5 s."""

LOST_ROUNDS_MAX: Final = 2
"""A partition whose leader is away is asked only once more: the absence may last, and the others wait."""

ROUND_PAUSE_S: Final = 0.5
"""Each round makes the pause longer by this."""

CALL_SHARE: Final = 3
"""A silent broker uses up a call's time; this share of a question's time leaves enough to ask again."""

_EARLIEST: Final[OffsetSpec] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the vendor left it untyped
_LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the same
_ISOLATION: Final = {
    "read_committed": IsolationLevel.READ_COMMITTED,
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
}
# The client reports these to us, and would print them on stderr as well.
_QUIET: Final = {"log_level": 0, "log.connection.close": False}
_MOVING: Final = frozenset({
    "NOT_LEADER_FOR_PARTITION", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "OFFSET_NOT_AVAILABLE",
    "UNKNOWN_TOPIC_OR_PART",
})  # fmt: skip
_LOST: Final = frozenset({
    "LEADER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR", "_TIMED_OUT", "_TRANSPORT",
})  # fmt: skip
_TIMED_OUT: Final = frozenset({"_TIMED_OUT"})
_HIDDEN: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "TOPIC_AUTHORIZATION_FAILED"})

_Answers = dict[TopicPartition, int | ClientFailure]
_Batch = tuple[tuple[TopicPartition, OffsetSpec], ...]


class ConfluentCluster:
    """A ``Cluster`` over the brokers of one connection. Nothing is kept open between two calls."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        for key in ("ssl_ca_file", "ssl_client_file"):
            path = getattr(connection, key)
            if path is not None and not Path(path).is_file():
                raise connection.reject(key, f"expected a PEM file, found none at {path}", "Correct the path.")

    def list_topics(self) -> Mapping[str, TopicDescription]:
        session = _open(self._connection, "list the topics")
        found: dict[str, TopicDescription] = {}
        for name, answer in session.describe(session.list_names()).items():
            if isinstance(answer, ClientFailure):
                # Deleted since it was listed, or hidden from this user.
                if answer.name not in _HIDDEN:
                    raise judge_topic(answer, self._connection, name)
            elif not answer.is_internal:
                found[name] = _as_description(answer)
        return found

    def find_topic_ids(self, topics: Sequence[str]) -> Mapping[str, str | GobblinError]:
        """For each topic its id, or why there is none. Errors of the other questions."""
        session = _open(self._connection, "ask for the topics' ids")
        return {
            name: judge_topic(answer, self._connection, name)
            if isinstance(answer, ClientFailure)
            else _as_description(answer).topic_id
            for name, answer in session.describe(topics).items()
        }

    def find_offsets(self, topics: Sequence[str], *, isolation: Isolation) -> Mapping[str, TopicOffsets | GobblinError]:
        session = _open(self._connection, "ask for the topics' offsets")
        found: dict[str, TopicOffsets | GobblinError] = {}
        known: dict[str, TopicDescription] = {}
        for name, answer in session.describe(topics).items():
            if isinstance(answer, ClientFailure):
                found[name] = judge_topic(answer, self._connection, name)
            else:
                known[name] = _as_description(answer)
        partitions = [TopicPartition(topic.name, number) for topic in known.values() for number in topic.partitions]
        earliest, ends = session.ask_rounds(
            [dict.fromkeys(partitions, _EARLIEST), dict.fromkeys(partitions, _LATEST)],
            _ISOLATION[isolation],
        )
        return {**found, **{name: self._join(topic, earliest, ends) for name, topic in known.items()}}

    def find_offsets_at(self, wanted: Mapping[TopicPartition, dt.datetime]) -> Mapping[TopicPartition, int | None]:
        session = _open(self._connection, "ask for offsets by time")
        # Open transactions hide no offset here: the pinned end bounds what is read.
        (answers,) = session.ask_rounds(
            [{name: OffsetSpec.for_timestamp(_as_ms(at)) for name, at in wanted.items()}],
            IsolationLevel.READ_UNCOMMITTED,
        )
        found: dict[TopicPartition, int | None] = {}
        for name, answer in answers.items():
            if isinstance(answer, ClientFailure):
                raise RetryableError(
                    f"{name} does not say where its time begins: {explain_partition(answer, self._connection)}",
                    hint="Nothing was read; the next run asks again.",
                )
            found[name] = answer if answer >= 0 else None
        return found

    def find_marks(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Mapping[TopicPartition, RecordMark]:
        return find_marks(self._connection, ranges)

    def check_marks(self, marks: Mapping[TopicPartition, RecordMark]) -> MarkAnswers:
        return check_marks(self._connection, marks)

    def _join(self, topic: TopicDescription, earliest: _Answers, ends: _Answers) -> TopicOffsets:
        partitions: dict[int, PartitionOffsets] = {}
        failures: dict[int, str] = {}
        for number in topic.partitions:
            name = TopicPartition(topic.name, number)
            low, high = earliest[name], ends[name]
            if isinstance(low, ClientFailure):
                failures[number] = explain_partition(low, self._connection)
            elif isinstance(high, ClientFailure):
                failures[number] = explain_partition(high, self._connection)
            else:
                # The two offsets come from different answers: retention may have moved the first one in between.
                partitions[number] = PartitionOffsets(low, max(low, high))
        return TopicOffsets(topic.topic_id, partitions, failures)


@dataclass(frozen=True, slots=True)
class _Session:
    """One question's client, with its deadline and what its connections reported."""

    admin: AdminClient
    connection: KafkaConnection
    action: str
    deadline: float
    seen: SeenFailures

    def left_s(self) -> float:
        return max(POLL_S, self.deadline - time.monotonic())

    def wait(self, futures: Iterable["Future[Any]"]) -> None:
        """Wait until all are done. Raises if waiting is useless, or if no answer comes in time."""
        for future in futures:
            while not future.done():
                self.admin.poll(0)  # has the client hand over what its connections report
                if self.seen.find_final():
                    raise self.judge(ClientFailure("_TIMED_OUT", ""))
                if time.monotonic() > self.deadline + GRACE_S:
                    raise self.judge(ClientFailure("_TIMED_OUT", "the client gave no answer"))
                wait([future], timeout=POLL_S)

    def ask_controller(self, ask: Callable[[float], Mapping[str, "Future[Any]"]]) -> dict[str, Any | ClientFailure]:
        """The answers to a call that the client sends to the controller; ``ask`` is given the call's time.

        The client waits for the controller that it heard of first, which may be the broker that is gone. Only new
        metadata shows it another one: so a call gets a share of the time, and is made again after new metadata.
        """
        while True:
            futures = ask(min(self.left_s(), self.connection.timeout_s / CALL_SHARE))
            self.wait(futures.values())
            answers = {name: _as_answer(future) for name, future in futures.items()}
            late = next((each for each in answers.values() if _failed_by(each, _TIMED_OUT)), None)
            if late is None:
                return answers
            self.admin.poll(0)
            if time.monotonic() + POLL_S > self.deadline:
                raise self.judge(late)
            with contextlib.suppress(KafkaException):  # the next call reports the same
                self.admin.list_topics(timeout=min(self.left_s(), self.connection.timeout_s / CALL_SHARE))

    def judge(self, failure: ClientFailure) -> GobblinError:
        return judge_client(failure, self.connection, action=self.action, seen=self.seen)

    def list_names(self) -> list[str]:
        try:
            return list(self.admin.list_topics(timeout=self.left_s()).topics)
        except KafkaException as error:
            self.admin.poll(0)
            raise self.judge(client_failure(error.args[0])) from error

    def describe(self, names: Iterable[str]) -> dict[str, ClientTopic | ClientFailure]:
        wanted = list(dict.fromkeys(names))
        if not wanted:
            return {}
        topics = TopicCollection(wanted)
        return self.ask_controller(lambda time_s: self.admin.describe_topics(topics, request_timeout=time_s))

    def ask_rounds(
        self, questions: Sequence[Mapping[TopicPartition, OffsetSpec]], isolation: IsolationLevel
    ) -> list[_Answers]:
        """The answers to each question. Questions that a moving leader leaves unanswered are repeated a few times."""
        answers: list[_Answers] = [{} for _ in questions]
        left = list(questions)
        for round_number in range(ROUNDS_MAX):
            pause_s = round_number * ROUND_PAUSE_S
            if not any(left) or (round_number and time.monotonic() + pause_s > self.deadline):
                break
            if round_number:
                time.sleep(pause_s)
                self.list_names()  # makes the client forget the leaders that it knew
            for known, found in zip(answers, self._ask(left, isolation, together=round_number > 0), strict=True):
                known.update(found)
            passing = _MOVING | _LOST if round_number + 1 < LOST_ROUNDS_MAX else _MOVING
            left = [
                {name: spec for name, spec in asked.items() if _failed_by(known[name], passing)}
                for asked, known in zip(questions, answers, strict=True)
            ]
        return answers

    def _ask(
        self, questions: Sequence[Mapping[TopicPartition, OffsetSpec]], isolation: IsolationLevel, *, together: bool
    ) -> list[_Answers]:
        """Ask the parts of the questions one by one, since each answer that is waited for takes several KB.

        Once a broker is silent, or half of the time is up, the rest is asked ``together``: waits must not add up.
        """
        answers: list[_Answers] = [{} for _ in questions]
        parts = list(itertools.zip_longest(*(_batches(asked.items()) for asked in questions), fillvalue=()))
        while parts:
            at_once = len(parts) if together or self.left_s() < self.connection.timeout_s / 2 else 1
            for known, found in zip(answers, self._ask_parts(parts[:at_once], isolation), strict=True):
                known.update(found)
                together = together or any(_failed_by(answer, _LOST) for answer in found.values())
            del parts[:at_once]
        return answers

    def _ask_parts(self, parts: Sequence[tuple[_Batch, ...]], isolation: IsolationLevel) -> list[_Answers]:
        """The answers by question; each part has one batch of each question."""
        timeout_s = min(self.left_s(), self.connection.timeout_s / CALL_SHARE)
        calls = [
            [
                self.admin.list_offsets(
                    {ClientPartition(name.topic, name.partition): spec for name, spec in batch},
                    isolation_level=isolation,
                    request_timeout=timeout_s,
                )
                for batch in of_question
                if batch
            ]
            for of_question in zip(*parts, strict=True)
        ]
        self.wait(future for of_question in calls for call in of_question for future in call.values())
        return [
            {
                TopicPartition(partition.topic, partition.partition): _as_offset(future, timeout_s)
                for call in of_question
                for partition, future in call.items()
            }
            for of_question in calls
        ]


def _open(connection: KafkaConnection, action: str) -> _Session:
    """A client that a broker has answered."""
    seen = SeenFailures()
    settings: dict[str, Any] = {**connection.admin_settings(), **_QUIET, "error_cb": seen.note}
    try:
        admin = AdminClient(settings)
    except KafkaException as error:
        raise judge_client(client_failure(error.args[0]), connection, action=action) from error
    session = _Session(admin, connection, action, time.monotonic() + connection.timeout_s, seen)
    found = session.ask_controller(lambda time_s: {"": admin.describe_cluster(request_timeout=time_s)})[""]
    if isinstance(found, ClientFailure):
        raise session.judge(found)
    return session


def _batches(
    items: Iterable[tuple[TopicPartition, OffsetSpec]],
) -> Iterator[_Batch]:
    rest = iter(items)
    while batch := tuple(itertools.islice(rest, PARTITIONS_PER_CALL)):
        yield batch


def _as_answer(future: "Future[Any]") -> Any | ClientFailure:
    try:
        return future.result()
    except KafkaException as error:
        return client_failure(error.args[0])


def _as_offset(future: "Future[Any]", timeout_s: float) -> int | ClientFailure:
    try:
        offset: int = future.result().offset
    except KafkaException as error:
        return client_failure(error.args[0])
    # In an answer without an error, librdkafka marks an offset that it did not get; -1 means that there is none.
    if offset < -1:
        return ClientFailure("_TIMED_OUT", f"the partition's leader did not answer in {timeout_s:g} s")
    return offset


def _failed_by(answer: int | ClientFailure, names: frozenset[str]) -> bool:
    return isinstance(answer, ClientFailure) and answer.name in names


def _as_description(topic: ClientTopic) -> TopicDescription:
    return TopicDescription(
        topic.name,
        read_topic_id(topic.topic_id),
        tuple(sorted(partition.id for partition in topic.partitions)),
    )


def _as_ms(at: dt.datetime) -> int:
    """Rounded up. Kafka counts milliseconds since 1970, and gives negative numbers another meaning."""
    return max(0, -((dt.datetime.fromtimestamp(0, dt.UTC) - at) // dt.timedelta(milliseconds=1)))
