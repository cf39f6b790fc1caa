"""Looks at topics, makes them, and refuses those that can't keep what is loaded.

Each question opens a client of its own: a long-lived one keeps asking a controller that is gone.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the vendor does not mark what it exports
    AdminClient,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from gobblin_assets.destinations.kafka.topic_batches import LoadedTopic
from gobblin_assets.destinations.kafka.write_failures import judge_write
from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.kafka.client_reports import UNKNOWN_ID, ClientFailure, SeenFailures, client_failure, read_topic_id
from gobblin_assets.kafka.connection import KafkaConnection

_UNKNOWN: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID"})
_HIDDEN: Final = frozenset({"TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"})
_UNFIT: Final = MappingProxyType(
    {
        "INVALID_REPLICATION_FACTOR": "replication_factor",
        "INVALID_PARTITIONS": "partitions",
        "POLICY_VIOLATION": "topic",
        "TOPIC_EXCEPTION": "topic",
        "INVALID_CONFIG": "topic",
    }
)
"""Why brokers make no such topic, and the option that says how it is made."""

_POLL_S: Final = 0.05
_GRACE_S: Final = 5.0
_ABSENT_S: Final = 1.0

_OF_MARKS: Final = MappingProxyType(
    {
        "cleanup.policy": "compact",
        # The segment that is written to is never compacted, and each new process reads it.
        "segment.bytes": str(16 << 20),
        "segment.ms": str(3_600_000),
        "min.cleanable.dirty.ratio": "0.1",
    }
)


@dataclass(frozen=True, slots=True)
class PreparedTopic:
    """A topic that can be loaded.

    ``topic_id``: empty where the brokers know none. ``record_bytes``: of a record at most; 0: that can't be seen.
    """

    topic_id: str
    record_bytes: int


@dataclass(frozen=True, slots=True)
class _Topic:
    """``settings`` None: the user may not see them."""

    topic_id: str
    replicas: int
    settings: Mapping[str, str] | None

    def get(self, name: str) -> str | None:
        return None if self.settings is None else self.settings.get(name)

    def get_number(self, name: str) -> int:
        return int(self.get(name) or 0)


@dataclass(slots=True)
class TopicAdmin:
    """One question to the cluster, or several that follow each other at once."""

    connection: KafkaConnection
    _client: Any = field(init=False)
    _seen: SeenFailures = field(default_factory=SeenFailures, init=False)

    def __post_init__(self) -> None:
        settings: dict[str, Any] = {
            **self.connection.admin_settings(),
            "log_level": 0,
            "log.connection.close": False,
            "error_cb": self._seen.note,
        }
        try:
            self._client = AdminClient(settings)
        except KafkaException as error:
            raise judge_write(client_failure(error.args[0]), self.connection, action="open a client") from None

    def require(self, topics: Iterable[LoadedTopic], marks: str) -> None:
        """Raise if one of the topics that exist can't take rows, or can't keep marks."""
        wanted = {topic.name: topic for topic in topics}
        found = self._find([*wanted, marks])
        for name, topic in wanted.items():
            if name in found:
                _require_fit(topic, found[name])
        if marks in found:
            _require_marks(marks, found[marks])

    def find_ids(self, names: Sequence[str]) -> Mapping[str, str]:
        """The id of each of these topics that exists; empty: the brokers know no ids."""
        # A broker that has just come back may not know all topics yet.
        deadline = time.monotonic() + _ABSENT_S
        while True:
            found = self._describe(names)
            if len(found) == len(names) or time.monotonic() > deadline:
                return {name: _id_of(each) for name, each in found.items()}
            time.sleep(_POLL_S)

    def prepare(self, topic: LoadedTopic) -> PreparedTopic:
        """Make the topic, unless it exists."""
        found = self._prepare(NewTopic(topic.name, topic.partitions, topic.replication_factor))
        _require_fit(topic, found)
        return PreparedTopic(found.topic_id, found.get_number("max.message.bytes"))

    def prepare_marks(self, marks: str, replication_factor: int) -> None:
        """Make the topic of marks, unless it exists."""
        _require_marks(marks, self._prepare(NewTopic(marks, 1, replication_factor, config=dict(_OF_MARKS))))

    def _prepare(self, new: NewTopic) -> _Topic:
        found = self._find([new.topic])
        if not found:
            self._make(new)
            found = self._await([new.topic])
        return found[new.topic]

    def _make(self, new: NewTopic) -> None:
        answer = self._ask(self._client.create_topics([new], request_timeout=self.connection.timeout_s))[new.topic]
        if not isinstance(answer, ClientFailure) or answer.name == "TOPIC_ALREADY_EXISTS":
            return
        if answer.name in _UNFIT:
            raise RejectedError(
                f"the brokers do not make the topic {new.topic}: {answer.text}",
                field=f"into.{_UNFIT[answer.name]}",
                hint="Correct it, or have the topic made by whoever may.",
            )
        raise self._judge(answer, f"make the topic {new.topic}")

    def _await(self, names: list[str]) -> Mapping[str, _Topic]:
        """A broker says that a topic is made some time before all of them know it."""
        deadline = time.monotonic() + self.connection.timeout_s
        while True:
            found = self._find(names)
            if len(found) == len(names):
                return found
            if time.monotonic() > deadline:
                raise self._judge(ClientFailure("_TIMED_OUT", "they do not know it yet"), f"make {' and '.join(names)}")
            time.sleep(_POLL_S)

    def _find(self, names: list[str]) -> Mapping[str, _Topic]:
        """Those that exist, and whose partitions have leaders."""
        described = self._describe(names)
        found = {
            name: (_id_of(answer), min(len(partition.replicas) for partition in answer.partitions))
            for name, answer in described.items()
            if all(partition.leader is not None for partition in answer.partitions)
        }
        settings = self._find_settings(found) if found else {}
        return {name: _Topic(*facts, settings.get(name)) for name, facts in found.items()}

    def _describe(self, names: Sequence[str]) -> Mapping[str, Any]:
        """Of those that exist, what the client says."""
        answers = self._ask(
            self._client.describe_topics(TopicCollection(list(names)), request_timeout=self.connection.timeout_s)
        )
        found = {}
        for name, answer in answers.items():
            if not isinstance(answer, ClientFailure):
                found[name] = answer
            elif answer.name not in _UNKNOWN:
                raise self._judge(answer, f"describe the topic {name}")
        return found

    def _find_settings(self, names: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """Of those that the user may see."""
        wanted = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        answers = self._ask(self._client.describe_configs(wanted, request_timeout=self.connection.timeout_s))
        found = {}
        for resource, answer in answers.items():
            if not isinstance(answer, ClientFailure):
                found[resource.name] = {name: each.value for name, each in answer.items() if each.value is not None}
            elif answer.name not in _UNKNOWN | _HIDDEN:
                raise self._judge(answer, f"describe the topic {resource.name}")
        return found

    def _ask(self, futures: Mapping[Any, "Future[Any]"]) -> dict[Any, Any]:
        """Each answer, or a ``ClientFailure``."""
        deadline = time.monotonic() + self.connection.timeout_s + _GRACE_S
        answers: dict[Any, Any] = {}
        for name, future in futures.items():
            while not future.done():
                self._client.poll(0)  # has the client hand over what its connections report
                if time.monotonic() > deadline or self._seen.find_final() is not None:
                    raise self._judge(ClientFailure("_TIMED_OUT", "no answer"), "ask for topics")
                time.sleep(_POLL_S / 10)
            try:
                answers[name] = future.result()
            except KafkaException as error:
                answers[name] = client_failure(error.args[0])
        return answers

    def _judge(self, failure: ClientFailure, action: str) -> GobblinError:
        return judge_write(failure, self.connection, action=action, seen=self._seen)


def _id_of(described: Any) -> str:
    found = read_topic_id(described.topic_id)
    return "" if found == UNKNOWN_ID else found


def _require_fit(topic: LoadedTopic, found: _Topic) -> None:
    policy = found.get("cleanup.policy") or ""
    if "compact" in policy and not topic.key:
        raise RejectedError(
            f"the topic {topic.name} is compacted, and records of rows have no key",
            field="into.key",
            hint="Name the columns that make a record's key, or let the topic's cleanup.policy be delete.",
        )
    _require_replicas(topic.name, found, "topic")


def _require_marks(name: str, found: _Topic) -> None:
    policy = found.get("cleanup.policy")
    if policy is None:
        raise RejectedError(
            f"whether the topic of marks {name} keeps them can't be seen",
            field="into.marks_topic",
            hint="Grant the user DescribeConfigs on it.",
        )
    if policy != "compact":
        raise RejectedError(
            f"the topic of marks {name} has the cleanup.policy {policy}, and loses marks; expected compact",
            field="into.marks_topic",
            hint=f"`kafka-configs --alter --topic {name} --add-config cleanup.policy=compact`, or name another topic.",
        )
    _require_replicas(name, found, "marks_topic")


def _require_replicas(name: str, found: _Topic, option: str) -> None:
    needed = found.get_number("min.insync.replicas")
    if needed > found.replicas:
        raise RejectedError(
            f"the topic {name} asks for {needed} replicas in sync, and has {found.replicas}: it takes no record",
            field=f"into.{option}",
            hint="Lower its min.insync.replicas, or give its partitions more replicas.",
        )
