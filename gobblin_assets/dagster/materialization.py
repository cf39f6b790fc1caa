"""The body of a job's assets: turns Dagster's selection into a run, and the run's report into Dagster's events.

Nothing is written before every selected dataset is known to have the run's partitions. Publications are logged
as they happen; failures are raised after them, so that they never hide them.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Final, Self

import dagster as dg

from gobblin_assets.dagster.instances import aware_moment, find_latest, telling
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.metadata import build_evaluations, build_materialization, is_recovered
from gobblin_assets.dagster.outcomes import decide_error, decide_failed
from gobblin_assets.dagster.partitions import find_run_range
from gobblin_assets.dagster.ports import FILE_SYSTEMS_KEY, SPARK_KEY, STORES_KEY, FileSystems, connection_key
from gobblin_assets.dagster.progress import ProgressLog
from gobblin_assets.dagster.published_checks import evaluate_published
from gobblin_assets.dagster.run_config import (
    GobblinRunConfig,
    decide_confirmation,
    decide_restart,
    decide_run_mode,
    is_by_hand,
    require_stream,
    waits_for_turn,
)
from gobblin_assets.dagster.sink_runs import catch_up, work_on_sink
from gobblin_assets.dagster.source_observing import SourceObservations
from gobblin_assets.dagster.stopping import say_nothing, wait_until_over
from gobblin_assets.errors import GobblinError
from gobblin_assets.jobs.ingest.engine_port import Engine
from gobblin_assets.jobs.ingest.told_engine import ToldEngine
from gobblin_assets.jobs.programs import RunResources
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.urn import Role
from gobblin_assets.run.repeating import repeat_run
from gobblin_assets.run.run_values import DatasetReport, RunPorts, RunReport, RunRequest
from gobblin_assets.run.runner import run_request, stream_request
from gobblin_assets.run.stop_signals import StopRequest, heed_stop_signals
from gobblin_assets.run.streaming import SeldomAgain
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
    sources: SourceObservations

    @classmethod
    def of(cls, layout: JobLayout, context: _Context) -> Self:
        return cls(layout, context, SourceObservations(layout))

    def log_publication(self, report: DatasetReport) -> None:
        """One materialization for each role of a finished sequence, an observation of its source, its checks."""
        if not self.layout.has_dataset(report.urn):
            # It has left the job since its publication was sealed: there is no asset to tell of it.
            self.context.log.warning("Published %s [%s], which is no asset of this job.", report.urn, report.partition)
            return
        for role in self.layout.roles:
            uri = report.uri if role is Role.DATA and report.uri else self.layout.uri_of(report.urn, role)
            key = self.layout.get_key(report.urn, role)
            self._send(build_materialization(key, report, role, uri=uri))
        for observation in self.sources.observe(report):
            self._send(observation)
        self.log_checks(report)

    def log_checks(self, report: DatasetReport) -> None:
        key = self.layout.get_key(report.urn)
        with telling(key):
            latest = find_latest(self.context.instance, key, report.partition.key)
        for evaluation in build_evaluations(key, report, latest):
            self._send(evaluation)

    def _send(self, event: dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation) -> None:
        with telling(event.asset_key):
            # Dagster takes both here; only its annotation of what it takes has not been told.
            self.context.log_event(event)  # type: ignore[arg-type]  # see above


def materialize(context: dg.AssetExecutionContext, layout: JobLayout, config: GobblinRunConfig) -> None:
    """Run what Dagster selected: assets, else checks alone. Raises as ``materialize_selection``."""
    try:
        if not context.selected_asset_keys:
            evaluate_published(context, layout, getattr(context.resources, STORES_KEY), _open_ports)
            return
        if config.stream_s is None and (config.sink_s is not None or layout.is_one_stream):
            _work_on_sink(context, layout, config)
            return
        selection = layout.plan_selection(
            context.selected_asset_keys, find_run_range(context.run.tags), context.instance
        )
    except GobblinError as error:
        raise decide_error(error, retry_number=context.retry_number) from error
    materialize_selection(context, layout, config, selection)


def _work_on_sink(context: dg.AssetExecutionContext, layout: JobLayout, config: GobblinRunConfig) -> None:
    """A worker that was asked to stop ends behind a cut, and then raises what ends a run as CANCELED."""
    stop = StopRequest()
    try:
        if config.sink_s is None:
            catch_up(context, layout, config, stop)
        else:
            work_on_sink(context, layout, config, stop)
    except GobblinError as error:
        if stop.is_made:
            raise dg.DagsterExecutionInterruptedError from error
        raise
    if stop.is_made:
        raise dg.DagsterExecutionInterruptedError


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
        if config.stream_s is not None:
            report = _follow(context, layout, request, stop, config.stream_s)
        else:
            with _open_ports(context, layout) as ports:
                report = run_request(request, ports)
        events = EventLog.of(layout, context)
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


def _follow(context: _Context, layout: JobLayout, request: RunRequest, stop: StopRequest, stream_s: float) -> RunReport:
    if layout.program.repeats_runs:
        return _repeat(context, layout, request, stop, stream_s)
    with _open_ports(context, layout) as ports:
        # Before the signals are heeded: a classic session takes SIGINT for itself when it opens.
        ports.kind.prepare()
        with heed_stop_signals(say_nothing, stop):
            return stream_request(request, ports, wait_until_over(stop, stream_s))


def _repeat(context: _Context, layout: JobLayout, request: RunRequest, stop: StopRequest, stream_s: float) -> RunReport:
    """Each run opens what it needs, and so finds anew what the source has of the selected datasets."""
    clock = SystemClock()
    progress = ProgressLog(context.log.info)
    seldom = SeldomAgain(progress, clock.monotonic)
    events = EventLog.of(layout, context)

    def run_once() -> RunReport:
        with _open_ports(context, layout, seldom, events) as ports:
            return run_request(replace(request, news_only=True), ports)

    with closing(progress), heed_stop_signals(say_nothing, stop):
        return repeat_run(
            *(run_once, wait_until_over(stop, stream_s)),
            every_s=request.job.stream.publish_every_s,
            clock=clock,
            say=seldom,
            tell=events.log_checks,
        )


@contextmanager
def _open_ports(
    context: _Context,
    layout: JobLayout,
    say: Callable[[str], None] | None = None,
    events: EventLog | None = None,
) -> Iterator[RunPorts]:
    """``say`` None: lines go to the run's log, gathered where there are many. ``events`` None: of these ports alone."""
    file_systems: FileSystems = getattr(context.resources, FILE_SYSTEMS_KEY)
    engine: Engine = getattr(context.resources, SPARK_KEY)
    source = layout.source
    # A run of a layout that was made at run time may lack it; then it is the environment's.
    connection = None if source is None else getattr(context.resources, connection_key(source), None)
    progress = ProgressLog(context.log.info)
    say = say or progress
    opened = layout.program.open_run(
        layout.job,
        layout.datasets,
        lambda: ToldEngine(engine, context.log.info),
        getattr(context.resources, STORES_KEY),
        say,
        (events or EventLog.of(layout, context)).log_publication,
        RunResources(file_systems.open, connection),
    )
    try:
        with opened as ports:
            yield ports
    finally:
        progress.close()


def _plan_request(context: _Context, layout: JobLayout, config: GobblinRunConfig, selection: Selection) -> RunRequest:
    tags = context.run.tags
    mode = decide_run_mode(config.mode, tags)
    if config.stream_s is not None:
        job = layout.program.plan_stream(layout.job)
        record = context.instance.get_run_record_by_id(context.run.run_id)
        # A run may have waited in the queue, or be tried again, when the window that it was made for is over.
        made_at = None if record is None else aware_moment(record.create_timestamp)
        require_stream(config, tags, layout, selection, made_at=made_at)
        return RunRequest(
            job=layout.program.rules_of(job),
            selection=selection,
            mode=Mode.APPEND,
            by_hand=False,
            dagster_run_id=context.run.run_id,
        )
    if context.retry_number > 0:
        selection = _leave_out_published(context, layout, selection)
    return RunRequest(
        job=layout.program.rules_of(layout.job),
        selection=selection,
        mode=mode,
        by_hand=is_by_hand(tags),
        dagster_run_id=context.run.run_id,
        restart=decide_restart(config, layout, topic_count=len(selection)),
        waits_for_turn=waits_for_turn(tags),
        confirm_deletes=decide_confirmation(config, tags, layout),
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
