"""Watermark keys of topic partitions: ``MyTopic:0``, and ``MyTopic:0#1`` once its offsets have begun anew.

A topic that was deleted and made again, or whose log was cut, gives old offsets to new records. Their positions are
those of another key, so that every key's intervals stay apart and its watermark never goes back.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gobblin_assets.ingest.sources.kafka.cluster import TopicPartition
from gobblin_assets.model.state import DatasetState

_KEY: Final = re.compile(r"(?P<topic>.+):(?P<partition>\d+)(#(?P<generation>\d+))?")


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """``generation`` counts how often the partition's offsets have begun anew."""

    partition: TopicPartition
    generation: int = 0

    def __str__(self) -> str:
        return f"{self.partition}#{self.generation}" if self.generation else str(self.partition)

    def next(self) -> "PartitionKey":
        return PartitionKey(self.partition, self.generation + 1)


def parse_key(name: str) -> PartitionKey | None:
    """None for a name that is no key of a topic partition."""
    found = _KEY.fullmatch(name)
    if found is None:
        return None
    partition = TopicPartition(found["topic"], int(found["partition"]))
    return PartitionKey(partition, int(found["generation"] or 0))


def newest_keys(state: DatasetState, topic: str) -> dict[int, PartitionKey]:
    """The newest generation's key of each partition of the topic that the dataset has positions of."""
    newest: dict[int, PartitionKey] = {}
    for key in _keys_of((name for name, _partition in state.keys), topic):
        known = newest.get(key.partition.partition)
        if known is None or known.generation < key.generation:
            newest[key.partition.partition] = key
    return newest


def _keys_of(names: Iterable[str], topic: str) -> list[PartitionKey]:
    found = [parse_key(name) for name in names]
    return [key for key in found if key is not None and key.partition.topic == topic]
