"""Delivers to the sinks of a job the events they lack: from the log, in batches, each marked after it was sent."""

import datetime as dt
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gobblin_assets.commit.name_changes import list_removed
from gobblin_assets.commit.sequence import Publication
from gobblin_assets.commit.store import CommitLogReader
from gobblin_assets.errors import GobblinError
from gobblin_assets.events.sinks import Event, EventSink, open_sink
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.state import DatasetId
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.job_kind import FIGURES
from gobblin_assets.run.run_values import NO_SINKS, Events
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_options import EventSinkSpec, JobOptions
from gobblin_assets.state.events import EventStore, UndeliveredFailure, UndeliveredPublication

BATCH_EVENTS: Final = 500
PAGE: Final = 100
"""Publications or failures that are listed at once."""

RUN_DELIVERS_S_MAX: Final = 60.0
"""A run goes on after this time; a publication that was begun is sent to its end. The rest waits for the next run."""

REST_S: Final = 60.0
"""A stream does not wait in each round for a receiver that does not answer."""

_FIGURES_SENT: Final = ("replaced", "removed", "waiting", "waiting_bytes")
"""Those of a publication's figures that receivers may rely on, where the publication has them."""


@dataclass(slots=True)
class _Batch:
    """Events that wait to be sent, and the versions that are delivered once they are."""

    sink: EventSink
    events: list[Event] = field(default_factory=list)
    versions: list[tuple[DatasetId, int]] = field(default_factory=list)
    sent: int = 0

    def add(self, event: Event) -> None:
        self.events.append(event)
        if len(self.events) >= BATCH_EVENTS:
            self.flush()

    def flush(self) -> None:
        if self.events:
            self.sink.send(self.events)
            self.sent += len(self.events)
            self.events = []


@dataclass(frozen=True, slots=True)
class Outbox:
    """``Events`` of one job. ``work_s_max`` None: until everything is delivered.

    ``_resting``: until when sinks that failed are left alone.
    """

    job: JobName
    sinks: Sequence[EventSinkSpec]
    store: EventStore
    commits: CommitLogReader
    clock: Clock
    say: Callable[[str], None]
    work_s_max: float | None = RUN_DELIVERS_S_MAX
    _resting: dict[str, float] = field(default_factory=dict, init=False)

    def begin(self, dataset_ids: Collection[DatasetId]) -> None:
        try:
            self.store.begin(sorted(dataset_ids), [each.known_as for each in self.sinks])
        except GobblinError as error:
            self.say(f"events of new sinks begin with a later run: {error}")

    def deliver(self) -> None:
        for spec in self.sinks:
            if self.clock.monotonic() < self._resting.get(spec.known_as, 0.0):
                continue
            try:
                self.deliver_to(spec)
            except GobblinError as error:
                self._resting[spec.known_as] = self.clock.monotonic() + REST_S
                self.say(f"events for {spec.known_as} wait for the next run: {error}")

    def deliver_to(self, spec: EventSinkSpec) -> int:
        """Deliver to one sink; returns how many events it took. Errors of the sink and of the log are raised."""
        batch = _Batch(open_sink(spec))
        started_s = self.clock.monotonic()
        while publications := self.store.list_undelivered(self.job, spec.known_as, limit=PAGE):
            for each in publications:
                self._add_publication(batch, spec, each)
                if self._is_over(started_s):
                    break
            self._settle(batch, spec)
            if self._is_over(started_s):
                self.say(f"events for {spec.known_as}: the rest waits for the next run")
                return batch.sent
        while failures := self.store.list_undelivered_failures(self.job, spec.known_as, limit=PAGE):
            for failure in failures:
                # A stream fails again every few seconds.
                if not failure.repeats:
                    batch.add(_describe_failure(self.job, failure))
            batch.flush()
            reach(Failpoint.EVENTS_SENT)
            self.store.mark_failures(spec.known_as, failures)
        return batch.sent

    def _is_over(self, started_s: float) -> bool:
        return self.work_s_max is not None and self.clock.monotonic() - started_s > self.work_s_max

    def _add_publication(self, batch: _Batch, spec: EventSinkSpec, undelivered: UndeliveredPublication) -> None:
        (publication,) = self.commits.load_publications(undelivered.sequence_id)
        if spec.files:
            for event in self._list_files(publication, undelivered.done_at):
                batch.add(event)
        batch.add(_describe_dataset(publication, undelivered.done_at))
        batch.versions.append((undelivered.dataset_id, undelivered.version))

    def _settle(self, batch: _Batch, spec: EventSinkSpec) -> None:
        batch.flush()
        reach(Failpoint.EVENTS_SENT)
        self.store.mark_delivered(spec.known_as, batch.versions)
        batch.versions = []

    def _list_files(self, publication: Publication, done_at: dt.datetime) -> Iterator[Event]:
        """A few segments at a time, whatever the number of files."""
        for segment in self.commits.read_segments(publication.sequence_id):
            for path, identity, row_count in segment.files():
                yield {
                    **_name("FilePublished", publication, done_at),
                    "path": path,
                    "bytes": identity.size_bytes,
                    "rows": row_count,
                }
            for path in list_removed(segment.payload, segment.digest):
                yield {**_name("FileRemoved", publication, done_at), "path": path}


def _name(event: str, publication: Publication, done_at: dt.datetime) -> dict[str, object]:
    return {
        "event": event,
        "sequence_id": str(publication.sequence_id),
        "job": publication.job,
        "dataset": publication.urn,
        "partition": publication.partition or None,
        "version": publication.version,
        "at": done_at.astimezone(dt.UTC).isoformat(),
    }


def _describe_dataset(publication: Publication, done_at: dt.datetime) -> Event:
    details: Mapping[str, Any] = publication.details
    figures = details.get(FIGURES, {})
    return {
        **_name("DatasetPublished", publication, done_at),
        "mode": publication.mode.value,
        "complete": publication.complete,
        "files": publication.file_count,
        "bytes": publication.file_bytes,
        "rows": publication.row_count,
        **{name: figures[name] for name in _FIGURES_SENT if name in figures},
    }


def _describe_failure(job: JobName, failure: UndeliveredFailure) -> Event:
    """``sequence_id`` is None where no sequence had begun; then ``at`` tells two failures of a dataset apart."""
    return {
        "event": "DatasetPublishFailed",
        "sequence_id": None if failure.sequence_id is None else str(failure.sequence_id),
        "job": job,
        "dataset": failure.urn,
        "partition": failure.partition or None,
        "at": failure.failed_at.astimezone(dt.UTC).isoformat(),
        "error": failure.error,
    }


def open_events(job: JobOptions, stores: Stores, clock: Clock, say: Callable[[str], None]) -> Events:
    """The events of a run of the job."""
    if not job.events:
        return NO_SINKS
    return Outbox(JobName(job.job), job.events, stores.events, stores.commits, clock, say)
