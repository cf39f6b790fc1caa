"""The body of a job's assets: turns Dagster's selection into a run, and the run's report into Dagster's events.

Nothing is written before every selected dataset is known to have the run's partitions. Publications are logged
as they happen; failures are raised after them, so that they never hide them.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Self

import dagster as dg

from gobblin_assets.dagster.instances import find_latest, find_made_at, reporting
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.metadata import build_evaluations, is_recovered
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
from gobblin_assets.dagster.sink_runs import catch_up, say_nothing, wait_until_over, work_on_sink
from gobblin_assets.dagster.source_observing import SourceObservations
from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.jobs.ingest.engine_port import AnnouncedEngine, Engine
from gobblin_assets.jobs.programs import RunResources
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.run.own_process import StopRequest, heed_stop_signals
from gobblin_assets.run.progress import unheard
from gobblin_assets.run.repeating import repeat_run
from gobblin_assets.run.run_values import DatasetReport, RunPorts, RunReport, RunRequest
from gobblin_assets.run.runner import run_request, stream_request
from gobblin_assets.run.stores import Stores
from gobblin_assets.run.streaming import SeldomAgain
from gobblin_assets.spec.job_parsing import find_datasets
from gobblin_assets.spec.selection import Datasets, Selection

_PAGES_READ_MAX: Final = 1_000

_Context = dg.AssetExecutionContext | dg.OpExecutionContext

ReportedEvent = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation
"""What a run writes into Dagster's log."""


@dataclass(frozen=True, slots=True)
class EventLog:
    """The log of the Dagster run at hand, for a job's reports. ``hear`` gets each event that is written.

    RetryableError where Dagster does not take an event: the publication stays, and is announced later.
    """

    layout: JobLayout
    context: _Context
    sources: SourceObservations
    hear: Callable[[ReportedEvent], None]

    @classmethod
    def of(cls, layout: JobLayout, context: _Context, hear: Callable[[ReportedEvent], None] = unheard) -> Self:
        return cls(layout, context, SourceObservations(layout), hear)

    def log_publication(self, report: DatasetReport) -> None:
        """One materialization for each role of a finished sequence, an observation of its source, its checks."""
        if not self.layout.has_dataset(report.urn):
            # It has left the job since its publication was sealed: there is no asset to report it for.
            self.context.log.warning("Published %s [%s], which is no asset of this job.", report.urn, report.partition)
            return
        for role in self.layout.roles:
            self.send(self.layout.build_materialization(report, role))
        for observation in self.sources.observe(report):
            self.send(observation)
        self.log_checks(report)

    def log_checks(self, report: DatasetReport) -> None:
        key = self.layout.get_key(report.urn)
        with reporting(key):
            latest = find_latest(self.context.instance, key, report.partition.key)
        for evaluation in build_evaluations(key, report, latest):
            self.send(evaluation)

    def send(self, event: ReportedEvent) -> None:
        with reporting(event.asset_key):
            # Dagster takes all three here; only its annotation does not say so.
            self.context.log_event(event)  # type: ignore[arg-type]  # see above
        self.hear(event)


def materialize(
    context: dg.AssetExecutionContext,
    layout: JobLayout,
    config: GobblinRunConfig,
    *,
    datasets: Collection[str] = (),
    hear: Callable[[ReportedEvent], None] = unheard,
) -> None:
    """Run what Dagster selected: assets, else checks alone. Raises as ``materialize_selection``.

    ``datasets``: of what is selected, these alone, by URN. ``hear`` gets each event after Dagster has it.
    """
    events = EventLog.of(layout, context, hear)
    try:
        chosen = find_datasets(layout.job.job, layout.datasets, list(datasets))
        if not context.selected_asset_keys:
            stores: Stores = getattr(context.resources, STORES_KEY)
            for event in evaluate_published(context, layout, chosen, stores, partial(_open_ports, events=events)):
                events.send(event)
            return
        if config.stream_s is None and (config.sink_s is not None or layout.is_one_stream):
            _require_all(datasets)
            _work_on_sink(context, layout, config)
            return
        keys = {layout.get_key(urn, role) for urn in chosen for role in layout.roles} & context.selected_asset_keys
        selection = layout.plan_selection(keys, find_run_range(context.run.tags), context.instance)
    except GobblinError as error:
        raise decide_error(error, retry_number=context.retry_number) from error
    if selection:
        materialize_selection(context, layout, config, selection, events)


def _require_all(datasets: Collection[str]) -> None:
    if datasets:
        raise RejectedError(
            "a worker of a sink follows all datasets that are selected, found a choice of them",
            field="datasets",
            hint="Leave datasets out.",
        )


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


def materialize_selection(
    context: _Context,
    layout: JobLayout,
    config: GobblinRunConfig,
    selection: Selection,
    events: EventLog | None = None,
) -> None:
    """Run the selection, also of a layout that was made at run time: the run needs the resources of ``ports`` alone.

    A connection that is no resource of the run is that of the environment. Raises Failure or RetryRequested after all
    that is good was logged. A stream that was asked to stop ends at a published boundary, and then raises what ends a
    run as CANCELED.
    """
    stop, events = StopRequest(), events or EventLog.of(layout, context)
    try:
        request = _plan_request(context, layout, config, selection)
        if not request.selection:
            context.log.info("All of this run's partitions were published by its earlier try.")
            return
        if config.stream_s is not None:
            report = _follow(request, events, stop, config.stream_s)
            _log_unpublished(report, events)
        else:
            report = run_logged(request, events)
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


def run_logged(
    request: RunRequest,
    events: EventLog,
    datasets: Datasets | None = None,
    hear: Callable[[DatasetReport], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> RunReport:
    """Run the request by the resources of the Dagster run, which gets the events. Raises as ``run_request``.

    ``datasets``: the job's, as its program reads them; None: those of the layout. ``hear`` gets each publication in
    place of ``events``, to which it passes it on. ``say`` None: lines go to the run's log, gathered.
    """
    opened = _open_ports(events.context, events.layout, say, events=events, datasets=datasets, on_publication=hear)
    with opened as ports:
        report = run_request(request, ports)
    _log_unpublished(report, events)
    return report


def _follow(request: RunRequest, events: EventLog, stop: StopRequest, stream_s: float) -> RunReport:
    if events.layout.program.repeats_runs:
        return _repeat(request, events, stop, stream_s)
    with _open_ports(events.context, events.layout, events=events) as ports:
        # Before the signals are heeded: a classic session takes SIGINT for itself when it opens.
        ports.kind.prepare()
        with heed_stop_signals(say_nothing, stop):
            return stream_request(request, ports, wait_until_over(stop, stream_s))


def _repeat(request: RunRequest, events: EventLog, stop: StopRequest, stream_s: float) -> RunReport:
    """Each run opens what it needs, and so finds anew what the source has of the selected datasets."""
    clock = SystemClock()
    progress = ProgressLog(events.context.log.info)
    seldom = SeldomAgain(progress, clock.monotonic)

    def run_once() -> RunReport:
        with _open_ports(events.context, events.layout, seldom, events=events) as ports:
            return run_request(replace(request, news_only=True), ports)

    with closing(progress), heed_stop_signals(say_nothing, stop):
        return repeat_run(
            *(run_once, wait_until_over(stop, stream_s)),
            every_s=request.job.stream.publish_every_s,
            clock=clock,
            say=seldom,
            report_dataset=events.log_checks,
        )


@contextmanager
def _open_ports(
    context: _Context,
    layout: JobLayout,
    say: Callable[[str], None] | None = None,
    *,
    events: EventLog,
    datasets: Datasets | None = None,
    on_publication: Callable[[DatasetReport], None] | None = None,
) -> Iterator[RunPorts]:
    """``say`` None: lines go to the run's log, gathered where there are many.

    ``datasets`` None: those of the layout; ``on_publication`` None: ``events`` alone get what is published.
    """
    file_systems: FileSystems = getattr(context.resources, FILE_SYSTEMS_KEY)
    engine: Engine = getattr(context.resources, SPARK_KEY)
    source = layout.source
    # A run of a layout that was made at run time may lack it; then it is the environment's.
    connection = None if source is None else getattr(context.resources, connection_key(source), None)
    progress = ProgressLog(context.log.info)
    say = say or progress
    opened = layout.program.open_run(
        layout.job,
        layout.datasets if datasets is None else datasets,
        lambda: AnnouncedEngine(engine, context.log.info),
        getattr(context.resources, STORES_KEY),
        say,
        on_publication or events.log_publication,
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
        # The window that the run was made for may be over.
        made_at = find_made_at(context.instance, context.run.run_id)
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


def _log_unpublished(report: RunReport, events: EventLog) -> None:
    for dataset in report.datasets:
        if dataset.publication is None:
            events.log_checks(dataset)
            for note in dataset.notes:
                events.context.log.info("%s [%s]: %s", dataset.urn, dataset.partition, note)
