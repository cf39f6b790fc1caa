"""A sink whose rows go into a topic of a real broker. Its dead letters stand in files."""

import json
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gobblin_assets.destinations.kafka.topic_batches import LoadedTopic
from gobblin_assets.destinations.kafka.topics_place import TopicsPlace
from gobblin_assets.destinations.loaded_destination import open_loaded_destination
from gobblin_assets.model.urn import Role
from gobblin_assets.run.destination import Destination, DestinationRequest
from tests.support.kafka import Found, open_admin, read_all
from tests.support.loaded_sink import LoadedSinkWorld
from tests.support.random_logs import Records
from tests.support.sink_lake import URN, SinkLake

CONNECTION = "out"


@dataclass(frozen=True)
class TopicSinkLake(SinkLake):
    """``bootstrap``: of the broker where the rows go. ``topic``, ``marks``: two topics of this lake alone."""

    bootstrap: str = field(kw_only=True)
    topic: str = field(kw_only=True)
    marks: str = field(kw_only=True)

    @property
    def variables(self) -> Mapping[str, str]:
        return variables_for(self.bootstrap)

    def open_world(self) -> "TopicSinkWorld":
        return TopicSinkWorld(self)


def variables_for(bootstrap: str) -> dict[str, str]:
    """How a process reaches the broker."""
    return {f"GOBBLIN_KAFKA_{CONNECTION.upper()}_BOOTSTRAP_SERVERS": bootstrap}


def new_topics() -> tuple[str, str]:
    """A topic and one of marks, by names that no other test has."""
    name = uuid.uuid4().hex[:8]
    return f"records-{name}", f"marks-{name}"


@dataclass
class TopicSinkWorld(LoadedSinkWorld):
    lake: TopicSinkLake

    def open_destination(self, request: DestinationRequest) -> Destination:
        place = TopicsPlace(CONNECTION, {URN: LoadedTopic(self.lake.topic, ("vnode",), 2)}, self.lake.marks)
        return open_loaded_destination(request, place)

    def marks(self) -> dict[bytes, Any]:
        """The last mark of each lane, by the key of its records."""
        return {
            each.key: json.loads(each.value or b"null") for each in self._read(self.lake.marks) if each.key is not None
        }

    def _read(self, topic: str) -> list[Found]:
        known = open_admin(self.lake.bootstrap).list_topics(timeout=30).topics
        return read_all(self.lake.bootstrap, topic) if topic in known else []

    def published(self) -> Records:
        """The committed records of the topic, and the rows of the files of dead letters."""
        records: Records = super().published()
        assert not any(role == Role.DATA for role, _vnode, _n in records)
        found = [(each.key, json.loads(each.value or b"")) for each in self._read(self.lake.topic)]
        assert all(key == row["vnode"].encode() for key, row in found)
        records.update(Counter((Role.DATA.value, row["vnode"], row["n"]) for _key, row in found))
        return records
