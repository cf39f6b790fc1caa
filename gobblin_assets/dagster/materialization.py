"""The body of a job's assets: turns Dagster's selection into a run, and the run's report into Dagster's events.

Nothing is written before every selected dataset is known to have the run's partitions. Publications are logged
as they happen; failures are raised after them, so that they never hide them.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import dagster as dg
from pyspark.sql import SparkSession

from gobblin_assets.dagster.instances import aware_moment, find_latest, telling
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.metadata import build_evaluations, build_materialization, is_recovered
from gobblin_assets.dagster.outcomes import decide_error, decide_failed
from gobblin_assets.dagster.partitions import find_run_range
from gobblin_assets.dagster.ports import (
    FILE_SYSTEMS_KEY,
    SPARK_KEY,
    STORES_KEY,
    Connection,
    Engine,
    FileSystems,
    connection_key,
)
from gobblin_assets.dagster.progress import ProgressLog
from gobblin_assets.dagster.published_checks import evaluate_published
from gobblin_assets.dagster.run_config import (
    GobblinRunConfig,
    decide_restart,
    decide_run_mode,
    is_by_hand,
    require_stream,
)
from gobblin_assets.destinations.registry import DestinationRequest, open_destination
from gobblin_assets.errors import GobblinError
from gobblin_assets.jobs.ingest.arrow_worker import ArrowWorker
from gobblin_assets.jobs.ingest.kind import IngestKind
from gobblin_assets.jobs.ingest.stream_job import plan_stream_job
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.urn import JobName, Role
from gobblin_assets.run.job_kind import Worker
from gobblin_assets.run.run_values import DatasetReport, RunPorts, RunReport, RunRequest
from gobblin_assets.run.runner import run_request, stream_request
from gobblin_assets.run.stop_signals import StopRequest, heed_stop_signals
from gobblin_assets.run.stores import Stores
from gobblin_assets.run.streaming import WaitForStop
from gobblin_assets.sources.environment import read_connection
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.selection import Selection

_PAGES_READ_MAX: Final = 1_000

_Context = dg.AssetExecutionContext | dg.OpExecutionContext


@dataclass(frozen=True, slots=True)
class EventLog:
    """Writes a job's reports into the log of the Dagster run at hand.

    RetryableError where Dagster does not take an event: the publication stays, and is announced later.
    """

    layout: JobLayout
    context: _Context

    def log_publication(self, report: DatasetReport) -> None:
        """One materialization for each role of a finished sequence, then its checks."""
        if not self.layout.has_dataset(report.urn):
            # It has left the job since its publication was sealed: there is no asset to tell of it.
            self.context.log.warning("Published %s [%s], which is no asset of this job.", report.urn, report.partition)
            return
        for role in self.layout.roles:
            uri = report.uri if role is Role.DATA and report.uri else self.layout.uri_of(report.urn, role)
            key = self.layout.get_key(report.urn, role)
            self._send(build_materialization(key, report, role, uri=uri))
        self.log_checks(report)

    def log_checks(self, report: DatasetReport) -> None:
        key = self.layout.get_key(report.urn)
        with telling(key):
            latest = find_latest(self.context.instance, key, report.partition.key)
        for evaluation in build_evaluations(key, report, latest):
            self._send(evaluation)

    def _send(self, event: dg.AssetMaterialization | dg.AssetCheckEvaluation) -> None:
        with telling(event.asset_key):
            # Dagster takes both here; only its annotation of what it takes has not been told.
            self.context.log_event(event)  # type: ignore[arg-type]  # see above


def materialize(context: dg.AssetExecutionContext, layout: JobLayout, config: GobblinRunConfig) -> None:
    """Run what Dagster selected: assets, else checks alone. Raises as ``materialize_selection``."""
    try:
        if not context.selected_asset_keys:
            evaluate_published(context, layout, getattr(context.resources, STORES_KEY))
            return
        selection = layout.plan_selection(
            context.selected_asset_keys, find_run_range(context.run.tags), context.instance
        )
    except GobblinError as error:
        raise decide_error(error, retry_number=context.retry_number) from error
    materialize_selection(context, layout, config, selection)


def materialize_selection(context: _Context, layout: JobLayout, config: GobblinRunConfig, selection: Selection) -> None:
    """Run the selection, also of a layout that was made at run time: the run needs the resources of ``ports`` alone.

    A connection that is no resource of the run is that of the environment. Raises Failure or RetryRequested after all
    that is good was logged. A stream that was asked to stop ends at a published boundary, and then raises what ends a
    run as CANCELED.
    """
    stop = StopRequest()
    try:
        request = _plan_request(context, layout, config, selection)
        if not request.selection:
            context.log.info("All of this run's partitions were published by its earlier try.")
            return
        with _open_ports(context, layout) as ports:
            if config.stream_s is None:
                report = run_request(request, ports)
            else:
                report = _follow(request, ports, stop, config.stream_s)
        events = EventLog(layout, context)
        for dataset in report.datasets:
            if dataset.publication is None:
                _log_unpublished(context, events, dataset)
    except GobblinError as error:
        if stop.is_made:
            raise dg.DagsterExecutionInterruptedError from error
        raise decide_error(error, retry_number=context.retry_number) from error
    if stop.is_made:
        raise dg.DagsterExecutionInterruptedError
    failed = report.failed
    outcome = decide_failed(failed, good_count=len(report.datasets) - len(failed), retry_number=context.retry_number)
    if outcome is not None:
        raise outcome


def _follow(request: RunRequest, ports: RunPorts, stop: StopRequest, stream_s: float) -> RunReport:
    # Before the signals are heeded: a classic session takes SIGINT for itself when it opens.
    ports.kind.prepare()
    # Nothing is said from inside a signal's handler, which may have come between any two steps of a log.
    with heed_stop_signals(lambda _line: None, stop):
        return stream_request(request, ports, _until(stop, stream_s))


def _until(stop: StopRequest, stream_s: float) -> WaitForStop:
    """Until the time is over, or the run's termination asks for it."""
    end_s = time.monotonic() + stream_s

    def wait(seconds: float) -> bool:
        left_s = end_s - time.monotonic()
        return left_s <= 0 or stop.wait(min(seconds, left_s)) or time.monotonic() >= end_s

    return wait


@contextmanager
def _open_ports(context: _Context, layout: JobLayout) -> Iterator[RunPorts]:
    job = layout.job
    stores: Stores = getattr(context.resources, STORES_KEY)
    file_systems: FileSystems = getattr(context.resources, FILE_SYSTEMS_KEY)
    engine: Engine = getattr(context.resources, SPARK_KEY)
    connection = _find_connection(context, job)
    fs, root = file_systems.open(job.destination, umask=job.umask)
    progress = ProgressLog(context.log.info)
    is_ready = threading.Event()

    @contextmanager
    def starting() -> Iterator[None]:
        """Wraps a start that takes a new process many seconds without any message of its own."""
        is_first = not is_ready.is_set()
        if is_first:
            context.log.info("Spark starts, or the session that runs already is taken.")
        yield
        if is_first:
            context.log.info("Spark is ready.")
        is_ready.set()

    def get_session() -> SparkSession:
        with starting():
            return engine.get_session(job)

    def open_extractor() -> Worker:
        with starting():
            return engine.open_extractor(job, stores)

    ports = RunPorts(
        stores=stores,
        destination=open_destination(
            DestinationRequest(
                JobName(job.job), job.destination, fs, root, stores, file_systems.open, SystemClock().new_id
            )
        ),
        open_file_system=file_systems.open,
        kind=IngestKind(
            layout.datasets,
            connection.open_source(job),
            get_session,
            open_extractor,
            lambda: engine.open_rewriter(job, layout.datasets),
            lambda: ArrowWorker(fs),
        ),
        interrupt=engine.interrupt,
        clock=SystemClock(),
        say=progress,
        on_publication=EventLog(layout, context).log_publication,
    )
    try:
        yield ports
    finally:
        progress.close()


def _find_connection(context: _Context, job: JobSpec) -> Connection:
    found: Connection | None = getattr(context.resources, connection_key(job), None)
    return read_connection(job.source, os.environ) if found is None else found


def _plan_request(context: _Context, layout: JobLayout, config: GobblinRunConfig, selection: Selection) -> RunRequest:
    tags = context.run.tags
    mode = decide_run_mode(config.mode, tags)
    if config.stream_s is not None:
        job = plan_stream_job(layout.job)
        record = context.instance.get_run_record_by_id(context.run.run_id)
        # A run may have waited in the queue, or be tried again, when the window that it was made for is over.
        made_at = None if record is None else aware_moment(record.create_timestamp)
        require_stream(config, tags, layout, selection, made_at=made_at)
        return RunRequest(
            job=job,
            selection=selection,
            mode=Mode.APPEND,
            by_hand=False,
            dagster_run_id=context.run.run_id,
        )
    if context.retry_number > 0:
        selection = _leave_out_published(context, layout, selection)
    return RunRequest(
        job=layout.job,
        selection=selection,
        mode=mode,
        by_hand=is_by_hand(tags),
        dagster_run_id=context.run.run_id,
        restart=decide_restart(config, layout, topic_count=len(selection)),
    )


def _leave_out_published(context: _Context, layout: JobLayout, selection: Selection) -> Selection:
    """The partitions that an earlier try of this run has not published: a retry must not refresh published ones."""
    done: set[tuple[dg.AssetKey | None, str | None]] = set()
    cursor = None
    for _page in range(_PAGES_READ_MAX):
        records = context.instance.get_records_for_run(
            context.run.run_id, cursor=cursor, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION
        )
        events = [r.event_log_entry.asset_materialization for r in records.records]
        done.update((event.asset_key, event.partition) for event in events if event and not is_recovered(event))
        cursor = records.cursor
        if not records.has_more:
            break
    left = {
        urn: tuple(p for p in partitions if (layout.get_key(urn), p.key) not in done)
        for urn, partitions in selection.items()
    }
    return {urn: partitions for urn, partitions in left.items() if partitions}


def _log_unpublished(context: _Context, events: EventLog, report: DatasetReport) -> None:
    events.log_checks(report)
    for note in report.notes:
        context.log.info("%s [%s]: %s", report.urn, report.partition, note)
    if report.outcome.is_good:
        reason = report.error or "no reason"
        context.log.warning("%s [%s]: %s: %s", report.urn, report.partition, report.outcome.value, reason)
