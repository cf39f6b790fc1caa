"""A place of rows in topics of a real broker."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gobblin_assets.destinations.kafka.kafka_topics import KafkaTopics
from gobblin_assets.destinations.kafka.topic_batches import LoadedTopic
from gobblin_assets.destinations.kafka.topics_place import TopicsPlace
from gobblin_assets.kafka.connection import read_cluster
from gobblin_assets.model.urn import DatasetUrn
from tests.support.kafka import Found, delete_topics, open_admin, read_all
from tests.support.tried_place import TriedPlace

CONNECTION = "out"
PARTITIONS = 2


def variables_for(bootstrap: str) -> dict[str, str]:
    """How a process reaches the broker."""
    return {f"GOBBLIN_KAFKA_{CONNECTION.upper()}_BOOTSTRAP_SERVERS": bootstrap}


def new_topics() -> tuple[str, str]:
    """A topic and one of marks, by names that no other test has."""
    name = uuid.uuid4().hex[:8]
    return f"records-{name}", f"marks-{name}"


@dataclass(frozen=True)
class KafkaRows(TriedPlace):
    """``bootstrap``: of the broker. ``suffix``: how the names of topics end that are this place's alone."""

    bootstrap: str
    suffix: str

    absences: ClassVar = {"brokers": "out of reach"}
    loss = "the topic of marks marks-"

    @property
    def variables(self) -> Mapping[str, str]:
        return variables_for(self.bootstrap)

    @property
    def marks_topic(self) -> str:
        return self.topic_of("marks")

    def topic_of(self, name: str) -> str:
        return f"{name}-{self.suffix}"

    def open(self, names: Mapping[DatasetUrn, str], key: str) -> TopicsPlace:
        topics = {urn: LoadedTopic(self.topic_of(name), (key,), PARTITIONS) for urn, name in names.items()}
        return TopicsPlace(CONNECTION, topics, self.marks_topic)

    def connect(self, kind: type[KafkaTopics] | None = None) -> KafkaTopics:
        return (kind or KafkaTopics)(read_cluster(CONNECTION, self.variables))

    def uri_of(self, name: str) -> str:
        return f"kafka:{CONNECTION}/{self.topic_of(name)}"

    def read(self, name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """The committed records."""
        found = [(each.key, json.loads(each.value or b"")) for each in self._read(self.topic_of(name))]
        assert all(key == str(row[columns[0]]).encode() for key, row in found)
        return [tuple(row[column] for column in columns) for _key, row in found]

    def marks(self, name: str) -> dict[bytes, Any]:
        """The last mark of each lane, by the key of its records."""
        del name
        return {each.key: json.loads(each.value or b"null") for each in self._read(self.marks_topic) if each.key}

    def _read(self, topic: str) -> list[Found]:
        known = open_admin(self.bootstrap).list_topics(timeout=30).topics
        return read_all(self.bootstrap, topic) if topic in known else []

    def lose(self) -> None:
        delete_topics(self.bootstrap, self.marks_topic)

    def go_away(self, absence: str) -> Mapping[str, str]:
        del absence
        timeout = f"GOBBLIN_KAFKA_{CONNECTION.upper()}_TIMEOUT_S"
        return {**variables_for("127.0.0.1:1"), timeout: "0.2"}

    def remove(self) -> None:
        """Delete all topics of the place."""
        known = open_admin(self.bootstrap).list_topics(timeout=30).topics
        delete_topics(self.bootstrap, *(topic for topic in known if topic.endswith(f"-{self.suffix}")))
