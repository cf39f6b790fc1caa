"""Watermark keys of topic partitions: ``MyTopic:0``, and ``MyTopic:0#1`` once its offsets have begun anew.

A topic that was deleted and made again, or whose log was cut, gives old offsets to new records. Their positions belong
to another key, so that each key's intervals stay apart and its watermark never goes back.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import CorruptionError
from gobblin_assets.model.state import DatasetState
from gobblin_assets.sources.kafka.cluster import RecordMark, TopicPartition, read_mark

_KEY: Final = re.compile(r"(?P<topic>.+):(?P<partition>\d+)(#(?P<generation>\d+))?")


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """A partition in one generation of its offsets.

    ``generation`` counts how often the partition's offsets have begun anew.
    """

    partition: TopicPartition
    generation: int = 0

    def __str__(self) -> str:
        return f"{self.partition}#{self.generation}" if self.generation else str(self.partition)

    def next(self) -> "PartitionKey":
        return PartitionKey(self.partition, self.generation + 1)


@dataclass(frozen=True, slots=True)
class Position:
    """The published watermark of a partition, by the key that holds it. ``history``: that of the ``Watermark``."""

    key: PartitionKey
    offset: int
    history: Mapping[str, object] | None = None

    @property
    def mark(self) -> RecordMark | None:
        """The record before the offset; None: not known, as of positions that were published long ago."""
        return read_mark(self.history)


def parse_key(name: str) -> PartitionKey | None:
    """None for a name that is no key of a topic partition."""
    found = _KEY.fullmatch(name)
    if found is None:
        return None
    partition = TopicPartition(found["topic"], int(found["partition"]))
    return PartitionKey(partition, int(found["generation"] or 0))


def find_positions(state: DatasetState, topic: str) -> dict[int, Position]:
    """By partition of the topic, the published position of its newest generation.

    A key without a watermark was left by an abandoned publication and has no position.
    """
    newest: dict[int, Position] = {}
    for name, partition in state.keys:
        key, watermark = parse_key(name), state.find_watermark(name, partition)
        if key is None or key.partition.topic != topic or watermark is None:
            continue
        if not isinstance(watermark.value, int):
            raise CorruptionError(f"the watermark of {key} is {watermark}, which is no offset")
        known = newest.get(key.partition.partition)
        if known is None or known.key.generation < key.generation:
            newest[key.partition.partition] = Position(key, watermark.value, watermark.history)
    return newest
