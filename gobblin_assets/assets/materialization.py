"""The body of a job's assets: from what Dagster selected to a run, and from its report back to Dagster's events.

Nothing is written before every selected dataset is known to have the run's partitions. Good publications are
logged as they happen; what failed is raised after them, so that it never hides them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData

from gobblin_assets.assets.layout import JobLayout
from gobblin_assets.assets.metadata import build_evaluations, build_materialization, is_recovered
from gobblin_assets.assets.outcomes import decide_error, decide_failed
from gobblin_assets.assets.partitions import find_run_range
from gobblin_assets.assets.ports import (
    FILE_SYSTEMS_KEY,
    SPARK_KEY,
    STORES_KEY,
    Connection,
    Engine,
    FileSystems,
    connection_key,
)
from gobblin_assets.assets.progress import ProgressLog
from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.ingest.extraction import Extractor
from gobblin_assets.ingest.run_values import DatasetReport, RunPorts, RunReport, RunRequest, Stores
from gobblin_assets.ingest.runner import run_job
from gobblin_assets.ingest.sources.port import PlanSession, Restart, StartAt
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.urn import DatasetUrn, Role

MODE_TAG: Final = "gobblin/mode"

# A run with one of these was asked for by a rule. A backfill of a person carries none of them.
_AUTOMATION_TAGS: Final = frozenset({
    "dagster/sensor_name",
    "dagster/schedule_name",
    "dagster/auto_materialize",
    "dagster/from_automation_condition",
})  # fmt: skip

_PAGES_READ_MAX: Final = 1_000


class GobblinRunConfig(dg.Config):
    """Run configuration of a job's assets. ``mode``: append, refresh or auto; default: the tag, else auto.

    ``restart``, of topics, this once: start_over (as if they had never been read) or move_to_latest (leave out what
    is in them now). ``start_at``, of one topic, this once: the offsets to go on from, by number of partition.
    """

    mode: str | None = None
    restart: str | None = None
    start_at: dict[str, int] | None = None


def is_by_hand(tags: Mapping[str, str]) -> bool:
    """Whether a person, or a backfill that a person started, asked for the run."""
    return _AUTOMATION_TAGS.isdisjoint(tags)


def decide_restart(config: GobblinRunConfig, layout: JobLayout, *, topic_count: int) -> Restart | StartAt | None:
    """What run config asks of topics. RejectedError when it is nothing that there is, or the job reads tables."""
    if config.restart is None and config.start_at is None:
        return None
    field = "restart" if config.start_at is None else "start_at"
    if layout.job.source.type != "kafka":
        raise RejectedError(
            f"is for topics, and {layout.job.job} reads tables", field=field, hint="Use mode: refresh for tables."
        )
    if config.start_at is not None:
        return _read_starts(config.start_at, is_alone=config.restart is None and topic_count == 1)
    try:
        return Restart(config.restart or "")
    except ValueError:
        raise RejectedError(
            f"expected one of {', '.join(each.value for each in Restart)}, found {config.restart!r}",
            field=field,
            hint="Correct it, or leave it out.",
        ) from None


def _read_starts(given: Mapping[str, int], *, is_alone: bool) -> StartAt:
    if not is_alone:
        raise RejectedError(
            "offsets are those of one topic, and nothing else is asked of it",
            field="start_at",
            hint="Select one topic, and leave restart out.",
        )
    wrong = [name for name, offset in given.items() if not name.isdecimal() or offset < 0]
    if wrong or not given:
        raise RejectedError(
            f"expected offsets by numbers of partitions, found {dict(given)!r}",
            field="start_at",
            hint='Write it like {"0": 1500, "1": 0}.',
        )
    return StartAt({int(name): offset for name, offset in given.items()})


def decide_mode(configured: str | None, tags: Mapping[str, str]) -> Mode:
    """The mode that run config or tag ask for. RejectedError when it is none, or when they contradict each other."""
    tagged = tags.get(MODE_TAG)
    if configured is not None and tagged is not None and configured != tagged:
        raise RejectedError(
            f"the run config says {configured!r} and the tag {MODE_TAG} says {tagged!r}",
            field="mode",
            hint="Give one of them.",
        )
    text = configured or tagged or Mode.AUTO.value
    try:
        return Mode(text)
    except ValueError:
        raise RejectedError(
            f"expected one of {', '.join(mode.value for mode in Mode)}, found {text!r}",
            field="mode",
            hint=f"Correct the run config's `mode`, or the tag {MODE_TAG}.",
        ) from None


@dataclass(frozen=True, slots=True)
class EventLog:
    """Writes a job's reports into the log of the Dagster run at hand."""

    layout: JobLayout
    context: dg.AssetExecutionContext | dg.OpExecutionContext

    def log_publication(self, report: DatasetReport) -> None:
        """One materialization for each role of a finished sequence, then its checks."""
        if not self.layout.has_dataset(report.urn):
            # It has left the job since its publication was sealed: there is no asset to tell of it.
            self.context.log.warning("Published %s [%s], which is no asset of this job.", report.urn, report.partition)
            return
        for role in self.layout.roles:
            uri = report.uri if role is Role.DATA and report.uri else self.layout.uri_of(report.urn, role)
            key = self.layout.get_key(report.urn, role)
            self.context.log_event(build_materialization(key, report, role, uri=uri))
        self.log_checks(report)

    def log_checks(self, report: DatasetReport) -> None:
        key = self.layout.get_key(report.urn)
        for evaluation in build_evaluations(key, report, self._find_latest(key, report.partition)):
            # Dagster takes it here; only its annotation of what it takes has not been told.
            self.context.log_event(evaluation)  # type: ignore[arg-type]  # see above

    def _find_latest(
        self, key: dg.AssetKey, partition: AssetPartition
    ) -> AssetCheckEvaluationTargetMaterializationData | None:
        """The partition's latest materialization, which the checks are about."""
        wanted = dg.AssetRecordsFilter(key, asset_partitions=None if partition.key is None else [partition.key])
        for record in self.context.instance.fetch_materializations(wanted, limit=1).records:
            return AssetCheckEvaluationTargetMaterializationData(
                storage_id=record.storage_id, run_id=record.event_log_entry.run_id, timestamp=record.timestamp
            )
        return None


def materialize(context: dg.AssetExecutionContext, layout: JobLayout, config: GobblinRunConfig) -> None:
    """Run what was selected. Raises Failure or RetryRequested after all that is good was logged."""
    try:
        request = _plan_request(context, layout, config)
        if not request.selection:
            context.log.info("All of this run's partitions were published by its earlier try.")
            return
        report = _run(context, layout, request)
    except GobblinError as error:
        raise decide_error(error, retry_number=context.retry_number) from error
    events = EventLog(layout, context)
    for dataset in report.datasets:
        if dataset.publication is None:
            _log_unpublished(context, events, dataset)
    failed = report.failed
    outcome = decide_failed(failed, good_count=len(report.datasets) - len(failed), retry_number=context.retry_number)
    if outcome is not None:
        raise outcome


def _run(context: dg.AssetExecutionContext, layout: JobLayout, request: RunRequest) -> RunReport:
    job = layout.job
    stores: Stores = getattr(context.resources, STORES_KEY)
    file_systems: FileSystems = getattr(context.resources, FILE_SYSTEMS_KEY)
    engine: Engine = getattr(context.resources, SPARK_KEY)
    connection: Connection = getattr(context.resources, connection_key(job))
    fs, root = file_systems.open(job.destination, umask=job.umask)
    progress = ProgressLog(context.log.info)

    def open_extractor(session: PlanSession) -> Extractor:
        # Around what takes a new process many seconds, and says nothing itself.
        context.log.info("Spark starts, or the session that runs already is taken.")
        extractor = engine.open_extractor(job, stores, session)
        context.log.info("Spark is ready.")
        return extractor

    ports = RunPorts(
        stores=stores,
        fs=fs,
        root=root,
        open_file_system=file_systems.open,
        source=connection.open_source(job),
        open_extractor=open_extractor,
        interrupt=engine.interrupt,
        spark=engine.get_session,
        clock=SystemClock(),
        report=progress,
        on_publication=EventLog(layout, context).log_publication,
    )
    try:
        return run_job(request, ports)
    finally:
        progress.close()


def _plan_request(context: dg.AssetExecutionContext, layout: JobLayout, config: GobblinRunConfig) -> RunRequest:
    if not context.selected_asset_keys:
        raise RejectedError(
            "only checks were selected, and they are evaluated while their asset is published",
            field="selection",
            hint="Materialize the asset instead; its checks come with it.",
        )
    tags = context.run.tags
    mode = decide_mode(config.mode, tags)
    selection = layout.plan_selection(context.selected_asset_keys, find_run_range(tags), context.instance)
    if context.retry_number > 0:
        selection = _leave_out_published(context, layout, selection)
    return RunRequest(
        job=layout.job,
        datasets=layout.datasets,
        selection=selection,
        mode=mode,
        by_hand=is_by_hand(tags),
        dagster_run_id=context.run.run_id,
        restart=decide_restart(config, layout, topic_count=len(selection)),
    )


def _leave_out_published(
    context: dg.AssetExecutionContext, layout: JobLayout, selection: Mapping[DatasetUrn, tuple[AssetPartition, ...]]
) -> dict[DatasetUrn, tuple[AssetPartition, ...]]:
    """What an earlier try of this run has not published yet: a retry must not refresh what went well."""
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


def _log_unpublished(context: dg.AssetExecutionContext, events: EventLog, report: DatasetReport) -> None:
    events.log_checks(report)
    for note in report.notes:
        context.log.info("%s [%s]: %s", report.urn, report.partition, note)
    if report.outcome.is_good:
        reason = report.error or "no reason"
        context.log.warning("%s [%s]: %s: %s", report.urn, report.partition, report.outcome.value, reason)
