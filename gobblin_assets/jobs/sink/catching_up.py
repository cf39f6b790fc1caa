"""A worker of a stream that works until all that was committed when it began is published."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.errors import FencedError, GobblinError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.jobs.sink.dataset_sink import DatasetSink
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.state import DatasetState
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.connection import OpensEpochs
from gobblin_assets.sources.epoch_source import CopiedLog, EpochSource
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec

LOOK_EVERY_S: Final = 1.0
FAILURES_MAX: Final = 3
"""So often a failure that may pass is waited for."""

_PASSING: Final = (RetryableError, OutcomeUnknownError, FencedError)


@dataclass(slots=True)
class CatchingUp:
    """``wait`` is the worker's: it ends when every dataset has come up to ``end``, a place in the stream's log.

    What this worker has read counts, since it publishes it when it ends; of other workers, what they have published.
    ``stop(seconds)`` waits, and says whether somebody asks for the end. Call ``require_published`` behind the worker.
    """

    job: JobName
    stores: Stores
    sources: Mapping[DatasetUrn, CopiedLog]
    end: int
    clock: Clock
    stop: Callable[[float], bool]
    sinks: Iterable[DatasetSink] = ()
    error: GobblinError | None = None
    _look_at_s: float = field(default=0.0)

    def wait(self, seconds: float) -> bool:
        if self.stop(seconds) or self.error is not None:
            return True
        now_s = self.clock.monotonic()
        if now_s < self._look_at_s:
            return False
        self._look_at_s = now_s + LOOK_EVERY_S
        sinks = {sink.urn: sink for sink in self.sinks if sink.urn in self.sources}
        self.error = next((sink.error for sink in sinks.values() if sink.error and _is_final(sink, sink.error)), None)
        if self.error is not None:
            return True
        unread = [urn for urn in self.sources if urn not in sinks or not self._has_read(sinks[urn])]
        try:
            return not (unread and self._find_behind(unread))
        except _PASSING:
            # The worker waits for the commit log as well.
            return False

    def require_published(self) -> None:
        """Raise what ended the work, or RetryableError if it ended too early."""
        if self.error is not None:
            raise self.error
        behind = self._find_behind(list(self.sources))
        if behind:
            raise RetryableError(
                f"{', '.join(behind)}: not all that was committed when the run began is published",
                hint="The worker was asked to end before. Run it again, or have workers follow the log.",
            )

    def _has_read(self, sink: DatasetSink) -> bool:
        places = [place for lane in sink.lanes.values() for place in lane.read_to.values()]
        return bool(places) and min(places) >= self.end

    def _find_behind(self, urns: list[DatasetUrn]) -> list[DatasetUrn]:
        states = self.stores.datasets.load(self.job, urns)
        return [urn for urn in urns if urn not in states or not self._is_published(urn, states[urn])]

    def _is_published(self, urn: DatasetUrn, state: DatasetState) -> bool:
        place = self.sources[urn].find_place(state)
        return place is not None and place.position is not None and place.position >= self.end


def plan_catching_up(
    job: JobSpec,
    specs: Mapping[DatasetUrn, DatasetSpec],
    connection: OpensEpochs,
    stores: Stores,
    clock: Clock,
    stop: Callable[[float], bool],
) -> CatchingUp:
    """Up to where the log ends now, for these datasets. RejectedError if one of them can't go on from where it is."""
    opened = {urn: connection.open_epochs(job, urn, spec) for urn, spec in specs.items()}
    sources = {urn: source for urn, source in opened.items() if isinstance(source, CopiedLog)}
    if not sources or len(sources) < len(opened):
        raise RejectedError("expected a change log", field="source.type", hint="Topics are read by runs.")
    end = next(iter(sources.values())).look_at_stream().end
    if end is None:
        raise RejectedError("the server is a standby", field="source.connection", hint="Name the primary.")
    for urn in sources:
        _require_start(JobName(job.job), urn, opened[urn], stores)
    return CatchingUp(JobName(job.job), stores, sources, end, clock, stop)


def _require_start(job: JobName, urn: DatasetUrn, source: EpochSource, stores: Stores) -> None:
    """RejectedError if the dataset can't go on from where it is.

    A worker may publish between the two looks, and the log is then ahead of what the state said.
    """
    state = stores.datasets.load(job, [urn]).get(urn)
    while state is not None:
        try:
            source.find_start(state)
        except RejectedError:
            newer = stores.datasets.load(job, [urn])[urn]
            if newer == state:
                raise
            state = newer
        else:
            return


def _is_final(sink: DatasetSink, error: GobblinError) -> bool:
    return not isinstance(error, _PASSING) or sink.failures >= FAILURES_MAX
