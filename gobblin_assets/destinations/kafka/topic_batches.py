"""Loads of a topic, as values. Pure."""

from dataclasses import dataclass
from typing import Final

from gobblin_assets.destinations.lane_marks import MarkPlace

TRANSACTIONAL_PREFIX: Final = "gobblin-"
"""Of the transactional ids of all lanes."""


@dataclass(frozen=True, slots=True)
class LoadedTopic:
    """A topic on the brokers of a connection. ``key``: the columns that make a record's key; none: it has no key.

    ``partitions``, ``replication_factor``: of a topic that is made; -1: as the brokers have it by default.
    """

    name: str
    key: tuple[str, ...] = ()
    partitions: int = -1
    replication_factor: int = -1

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class TopicBatch:
    """The ``LoadBatch`` of a topic. The place of its mark names a topic. ``byte_count``: of the staged files."""

    topic: LoadedTopic
    mark: MarkPlace
    version: int
    sequence_id: str
    row_count: int
    byte_count: int
    is_marked: bool = False

    @property
    def transactional_id(self) -> str:
        """Of the lane's producers. No option changes it: whoever goes on must fence off whoever came before."""
        mark = self.mark
        return f"{TRANSACTIONAL_PREFIX}{mark.destination}/{mark.job}/{mark.dataset}/{mark.lane}"
