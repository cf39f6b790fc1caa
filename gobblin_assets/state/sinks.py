"""The live workers of sinks, and the news of a sink for an orchestrator: which partitions have news, what they hold.

Each worker counts the workers, and so knows its fair share of the lanes. Nobody assigns lanes. Being counted protects
nothing: a lane's lease says who may publish.

A sink publishes many times a minute, so no publication is reported alone. The log remembers up to which version of the
dataset, and with how many rows, each partition was reported. Counts are those of the files that the partition has, so
that folding and compacting change nothing.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gobblin_assets.model.state import DatasetId, LaneId, RunId, SequenceId
from gobblin_assets.model.urn import JobName, Role


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
    """A partition ("": the whole dataset) with publications of a sink that were not reported.

    ``reported_version``: the version up to which it was reported; ``reported_row_count``: the rows of all roles then;
    ``reported_ago_s``: seconds since then. None: it was never reported.
    """

    partition: str
    version: int
    reported_version: int | None = None
    reported_row_count: int | None = None
    reported_ago_s: float | None = None


@dataclass(frozen=True, slots=True)
class DatasetLook:
    """A dataset of a sink. ``now`` is aware, by the log's clock. ``unfinished``: the partitions of sequences."""

    now: dt.datetime
    lanes: tuple[LaneLook, ...]
    unfinished: frozenset[str]
    news: tuple[WindowNews, ...]


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """The content of a partition at ``version`` of the dataset. ``sequence_id``: of its latest publication.

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

    def mark_reported(self, dataset_id: DatasetId, partition: str, *, version: int, row_count: int) -> None:
        """The partition is reported up to this version, unless it has as many rows as before.

        The version never goes back.
        """
        ...

    def claim_observations(self, dataset_ids: Sequence[DatasetId], *, every_s: float) -> frozenset[DatasetId]:
        """The datasets of which nobody claimed an observation for ``every_s``: each is the caller's to make, now."""
        ...


@dataclass(frozen=True, slots=True)
class SinkBackOff:
    """A lane that a worker leaves alone for a while after a failure; ``lane_id`` None: the whole dataset."""

    dataset_id: DatasetId
    lane_id: LaneId | None
    error: str


@dataclass(frozen=True, slots=True)
class SinkWorkerRow:
    """A live worker. ``configuration``: a digest of what the worker does to records; workers of one sink agree.

    ``is_drained``: somebody asked the worker to end behind a cut. ``looked_at``: by the worker's own clock, and aware;
    what it begins later belongs to a window that is open then, or to a later one. ``lags``: records that are not
    published, or bytes of a stream's log, of the vnodes that the worker reads. ``back_offs``: what it leaves alone now.
    ``dagster_run_id``: of the Dagster run that the worker is, if it is one; the log knows it by the worker's run.
    """

    run_id: RunId
    owner: str
    configuration: str
    is_drained: bool = False
    looked_at: dt.datetime | None = None
    lags: Mapping[DatasetId, int] = field(default_factory=dict)
    back_offs: Sequence[SinkBackOff] = ()
    dagster_run_id: str | None = None


def sum_lags(workers: Sequence[SinkWorkerRow], dataset_id: DatasetId) -> int | None:
    """What is not published of the dataset, as workers say it of the vnodes that they read; None: none says it."""
    lags = [worker.lags[dataset_id] for worker in workers if dataset_id in worker.lags]
    return sum(lags) if lags else None


class SinkWorkerStore(Protocol):
    """Implemented by ``state.postgres``."""

    def beat(self, job: JobName, worker: SinkWorkerRow, *, ttl_s: float) -> Sequence[SinkWorkerRow]:
        """Count the worker for ``ttl_s`` more; returns the job's live workers, itself included, in a fixed order.

        Its clock, its lags and its back-offs are kept.
        """
        ...

    def list_live(self, job: JobName) -> Sequence[SinkWorkerRow]: ...

    def drain(self, job: JobName) -> int:
        """Ask the workers that live now to end behind a cut; returns how many."""
        ...

    def leave(self, run_id: RunId) -> None: ...
