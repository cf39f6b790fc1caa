"""A look at a sink: its workers and datasets by the log, and the answer of a stream's server."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from gobblin_assets.commit.driver import describe_ways_out
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.errors import GobblinError
from gobblin_assets.jobs.sink.sink_checks import judge_lanes, judge_sink_lag, judge_stream_lag
from gobblin_assets.jobs.sink.stream_status import DatasetStatus, StreamStatus, find_stream_status
from gobblin_assets.model.state import DatasetId, DatasetOutcome
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.job_kind import CheckResult
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.connection import OpensEpochs
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.state.sinks import DatasetLook, SinkWorkerRow, sum_lags

REPORT_EVERY_S: Final = 60.0
"""The time between two reports of one partition, and between two observations of one dataset."""


@dataclass(frozen=True, slots=True)
class SinkSight:
    """The state of a sink at one moment. ``workers``: the live ones, asked before the datasets were looked at.

    ``columns``: of each dataset's last publication that knew them, name to type text. ``stream_status``: of a stream
    whose server has answered; ``unanswered``: why it has not.
    """

    workers: Sequence[SinkWorkerRow]
    ids: Mapping[DatasetUrn, DatasetId]
    looks: Mapping[DatasetUrn, DatasetLook]
    columns: Mapping[DatasetUrn, Mapping[str, str]] = field(default_factory=dict)
    stream_status: StreamStatus | None = None
    unanswered: GobblinError | None = None

    def lag_of(self, urn: DatasetUrn) -> int | None:
        """What is not published: records, as far as workers read them; of a stream, bytes. None: not known."""
        if self.stream_status is not None:
            return self.stream_status.datasets.get(urn, DatasetStatus()).lag_bytes
        return sum_lags(self.workers, self.ids[urn])

    def find_trouble(self, urn: DatasetUrn) -> tuple[DatasetOutcome, str] | None:
        """Why rows of the dataset are not published now: a publication that waits for a person, else a failure that a
        worker reports. None: nothing is known to be in their way.
        """
        stuck = [lane.unfinished for lane in self.looks[urn].lanes if lane.unfinished is not None]
        for each in stuck:
            if each.is_blocked:
                ways = describe_ways_out(each.sequence_id)
                return DatasetOutcome.BLOCKED, f"{each.error or 'no reason was given'} {ways}"
        return next(self._list_failures(urn), None)

    def _list_failures(self, urn: DatasetUrn) -> Iterator[tuple[DatasetOutcome, str]]:
        for worker in self.workers:
            for each in worker.back_offs:
                if each.dataset_id == self.ids[urn]:
                    yield DatasetOutcome.FAILED, each.error


def look_at_sink(layout: JobLayout, stores: Stores, connection: OpensEpochs | None = None) -> SinkSight:
    """The job's datasets that a worker or a run has registered. Two statements, in the order that the rule asks for.

    ``connection``: of a stream, whose server is asked once.
    """
    job = JobName(layout.job.job)
    workers = stores.sink_workers.list_live(job)
    known = stores.datasets.load(job, list(layout.datasets))
    ids = {urn: state.dataset_id for urn, state in known.items()}
    columns = {urn: state.published_columns or {} for urn, state in known.items()}
    found = stores.sink_windows.look(list(ids.values()))
    looks = {urn: found[dataset_id] for urn, dataset_id in ids.items() if dataset_id in found}
    if connection is None:
        return SinkSight(workers, ids, looks, columns)
    states = stores.datasets.load(job, list(looks))
    specs = {urn: cast("DatasetSpec", spec) for urn, spec in layout.datasets.items()}
    try:
        stream_status = find_stream_status(cast("JobSpec", layout.job), specs, connection, states, looks)
    except GobblinError as error:
        # What the log says is reported without the server as well.
        return SinkSight(workers, ids, looks, columns, unanswered=error)
    return SinkSight(workers, ids, looks, columns, stream_status)


def judge_sink(layout: JobLayout, sight: SinkSight, urn: DatasetUrn) -> Iterator[CheckResult]:
    """The results of a dataset's checks of its sink."""
    job = cast("JobSpec", layout.job)
    yield judge_lanes(sight.looks[urn].lanes, worker_count=len(sight.workers))
    if sight.stream_status is not None:
        yield judge_stream_lag(sight.stream_status, urn, lag_max=job.sink.lag_max)
    elif sight.unanswered is None:
        yield judge_sink_lag(sight.lag_of(urn), lag_max=job.sink.lag_max)
