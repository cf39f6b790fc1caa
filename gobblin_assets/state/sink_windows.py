"""News of a sink for an orchestrator: which partitions have news, what they hold, who works on them.

A sink publishes many times a minute, so nobody is told of each publication. The log remembers up to which version of
the dataset, and of how many rows, each partition was told. Counts are those of the files that the partition has, so
that folding and compacting change nothing.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gobblin_assets.model.state import DatasetId, RunId, SequenceId
from gobblin_assets.model.urn import Role


@dataclass(frozen=True, slots=True)
class UnfinishedSequence:
    """A sequence of a sink that is neither done nor given up. ``error``: of its last try."""

    sequence_id: SequenceId
    partition: str
    is_blocked: bool
    error: str | None


@dataclass(frozen=True, slots=True)
class LaneLook:
    """A lane now. ``holder``: the run that holds it; None: nobody does. ``epoch``: the last one that it published."""

    number: int
    holder: RunId | None
    vnode_count: int
    epoch: int | None
    unfinished: UnfinishedSequence | None


@dataclass(frozen=True, slots=True)
class WindowNews:
    """A partition ("": the whole dataset) with publications of a sink that nobody was told of.

    ``told_version``: up to which version it was told; ``told_row_count``: of how many rows of all roles;
    ``told_ago_s``: seconds since then. None: it was never told.
    """

    partition: str
    version: int
    told_version: int | None = None
    told_row_count: int | None = None
    told_ago_s: float | None = None


@dataclass(frozen=True, slots=True)
class DatasetLook:
    """A dataset of a sink. ``now`` is aware, by the log's clock. ``unfinished``: the partitions of sequences."""

    now: dt.datetime
    lanes: tuple[LaneLook, ...]
    unfinished: frozenset[str]
    news: tuple[WindowNews, ...]


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """What a partition has at ``version`` of the dataset. ``sequence_id``: of its latest publication.

    ``row_counts`` has only roles with files. ``file_count`` and ``file_bytes``: of all roles. ``epoch``: the last one.
    """

    version: int
    sequence_id: SequenceId
    row_counts: Mapping[Role, int]
    file_count: int
    file_bytes: int
    publication_count: int
    epoch: int | None

    @property
    def row_count(self) -> int:
        """Of all roles."""
        return sum(self.row_counts.values())


class SinkWindowStore(Protocol):
    """Implemented by ``state.postgres``. Each method is one transaction."""

    def look(self, dataset_ids: Sequence[DatasetId]) -> Mapping[DatasetId, DatasetLook]:
        """The datasets as they are now. News are in the order of partitions.

        Lanes and unfinished sequences are read before the news: what is not unfinished any more is among the news.
        """
        ...

    def count(self, dataset_id: DatasetId, partition: str) -> WindowCounts | None:
        """None: nothing is published into the partition."""
        ...

    def mark_told(self, dataset_id: DatasetId, partition: str, *, version: int, row_count: int) -> None:
        """Somebody was told of the partition up to this version, unless it has as many rows as before.

        The version never goes back.
        """
        ...

    def claim_observations(self, dataset_ids: Sequence[DatasetId], *, every_s: float) -> frozenset[DatasetId]:
        """The datasets of which nobody claimed an observation for ``every_s``: each is the caller's to make, now."""
        ...
