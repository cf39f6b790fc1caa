"""A worker of a stream that works until all that was committed when it began is published."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.errors import (
    FencedError,
    GobblinError,
    OutcomeUnknownError,
    RejectedError,
    RetryableError,
    error_of,
    family_of,
)
from gobblin_assets.jobs.sink.dataset_sink import DatasetSink
from gobblin_assets.jobs.sink.sink_log import ask_starts
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.state import DatasetState
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.connection import OpensEpochs
from gobblin_assets.sources.log_port import CopiedLog, EpochSource
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec

LOOK_EVERY_S: Final = 1.0
FAILURES_MAX: Final = 3
"""So often a failure that may pass is waited for."""

_PASSING: Final = (RetryableError, OutcomeUnknownError, FencedError)


@dataclass(slots=True)
class CatchingUp:
    """A worker's end, once it has caught up.

    ``wait`` is the worker's: it ends when every dataset has come up to ``end``, a place in the stream's log, or has
    stopped for good. ``errors``: of those that have, as of the last look.

    The records that this worker has read count, since it publishes them when it ends. Of other workers, only published
    records count. ``stop(seconds)`` waits, and says whether somebody asks for the end. Call ``require_published``
    behind the worker.
    """

    job: JobName
    stores: Stores
    sources: Mapping[DatasetUrn, CopiedLog]
    end: int
    clock: Clock
    stop: Callable[[float], bool]
    sinks: Iterable[DatasetSink] = ()
    errors: Mapping[DatasetUrn, GobblinError] = field(default_factory=dict)
    _look_at_s: float = field(default=0.0)
    _is_done: bool = field(default=False)

    def wait(self, seconds: float) -> bool:
        """Wait, and say whether the work is over.

        Then it stays so: a worker that idles does not look at each answer.
        """
        self._is_done = self._is_done or self._wait(seconds)
        return self._is_done

    def _wait(self, seconds: float) -> bool:
        if self.stop(seconds):
            return True
        now_s = self.clock.monotonic()
        if now_s < self._look_at_s:
            return False
        self._look_at_s = now_s + LOOK_EVERY_S
        sinks = {sink.urn: sink for sink in self.sinks if sink.urn in self.sources}
        # What stops one dataset keeps the others from nothing.
        self.errors = {
            urn: sink.error for urn, sink in sinks.items() if sink.error is not None and _is_final(sink, sink.error)
        }
        going = [urn for urn in self.sources if urn not in self.errors]
        unread = [urn for urn in going if urn not in sinks or not self._has_read(sinks[urn])]
        try:
            return not (unread and self._find_behind(unread))
        except _PASSING:
            # The worker waits for the commit log as well.
            return False

    def require_published(self) -> None:
        """Raise what ended the work, or RetryableError if it ended too early."""
        if len(self.errors) == 1:
            raise next(iter(self.errors.values()))
        if self.errors:
            said = "; ".join(f"{urn}: {error}" for urn, error in self.errors.items())
            raise error_of(family_of(next(iter(self.errors.values()))), said)
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
    """Catching up to where the log ends now. RejectedError if none of these datasets can go on from where it is."""
    opened = {urn: connection.open_epochs(job, urn, spec) for urn, spec in specs.items()}
    sources = {urn: source for urn, source in opened.items() if isinstance(source, CopiedLog)}
    if not sources or len(sources) < len(opened):
        raise RejectedError("expected a change log", field="source.type", hint="Topics are read by runs.")
    end = next(iter(sources.values())).look_at_stream().end
    if end is None:
        raise RejectedError("the server is a standby", field="source.connection", hint="Name the primary.")
    _require_starts(JobName(job.job), opened, stores)
    return CatchingUp(JobName(job.job), stores, sources, end, clock, stop)


def _require_starts(job: JobName, sources: Mapping[DatasetUrn, EpochSource], stores: Stores) -> None:
    """RejectedError if none of the datasets can go on from where it is; some are stopped by the worker, one by one.

    A worker may publish between the two looks, and the log is then ahead of what the state said.
    """
    states = stores.datasets.load(job, list(sources))
    stopped: dict[DatasetUrn, GobblinError] = {}
    while states:
        found = ask_starts({urn: sources[urn] for urn in states}, states)
        failed = {urn: answer for urn, answer in found.items() if isinstance(answer, GobblinError)}
        newer = stores.datasets.load(job, list(failed)) if failed else {}
        stopped |= {
            urn: error
            for urn, error in failed.items()
            if not isinstance(error, RejectedError) or newer[urn] == states[urn]
        }
        states = {urn: state for urn, state in newer.items() if urn not in stopped}
    if len(stopped) == len(sources):
        raise next(iter(stopped.values()))


def _is_final(sink: DatasetSink, error: GobblinError) -> bool:
    if isinstance(error, RetryableError) and error.passes:
        return False
    return not isinstance(error, _PASSING) or sink.failures >= FAILURES_MAX
