"""The live workers of sinks. Who counts them knows its fair share of the lanes; nobody assigns lanes.

Being counted protects nothing: a lane's lease says who may publish.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gobblin_assets.model.state import DatasetId, LaneId, RunId
from gobblin_assets.model.urn import JobName


@dataclass(frozen=True, slots=True)
class SinkBackOff:
    """What a worker leaves alone for a while after a failure, and why. ``lane_id`` None: the whole dataset."""

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
