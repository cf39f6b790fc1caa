"""Checks and publications in Dagster, compared with the log.

Checks alone are evaluated from the log's details of each publication, without reading data; audits compare anew.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final, NamedTuple

import dagster as dg
from dagster._core.event_api import PartitionKeyFilter

from gobblin_assets.commit.driver import describe_ways_out
from gobblin_assets.commit.sequence import SequenceRecord
from gobblin_assets.dagster.instances import find_evaluation, find_latest, reporting
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.metadata import DATA_VERSION_TAG, PUBLISHED_CHECK, build_evaluation, decide_published
from gobblin_assets.dagster.partitions import find_run_range, list_keys
from gobblin_assets.dagster.sink_sight import judge_sink, look_at_sink
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.announcements import report_of
from gobblin_assets.run.dry_run import plan_dry
from gobblin_assets.run.job_kind import CheckResult
from gobblin_assets.run.run_values import DatasetReport, RunPorts, RunRequest
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.partition_keys import asset_partition
from gobblin_assets.state.reports import describe_backlog, is_late

OpenPorts = Callable[[dg.AssetExecutionContext, JobLayout], AbstractContextManager[RunPorts]]

LOADED_MAX: Final = 1_000
BLOCKED_MAX: Final = 100


def load_latest(stores: Stores, layout: JobLayout) -> list[DatasetReport]:
    """The latest publication of each partition of the job's datasets."""
    ids = stores.commits.list_latest(JobName(layout.job.job))
    reports: list[DatasetReport] = []
    for first in range(0, len(ids), LOADED_MAX):
        reports += [report_of(each) for each in stores.commits.load_publications(*ids[first : first + LOADED_MAX])]
    return [each for each in reports if layout.has_dataset(each.urn)]


def list_blocked(stores: Stores, layout: JobLayout) -> list[SequenceRecord]:
    """The publications of the job's datasets that wait for a person, oldest first."""
    found = stores.commits.list_open(JobName(layout.job.job), limit=LOADED_MAX)
    blocked = [each for each in found if each.state is SequenceState.BLOCKED and layout.has_dataset(each.urn)]
    return blocked[:BLOCKED_MAX]


def judge_blocked(sequence: SequenceRecord) -> CheckResult:
    """The check ``gobblin_published`` of a publication that waits for a person."""
    said = f"BLOCKED: {sequence.last_error or 'no reason was given'} {describe_ways_out(sequence.sequence_id)}"
    return CheckResult(PUBLISHED_CHECK, passed=False, blocking=False, description=said)


def judge(name: str, report: DatasetReport | None, blocked: SequenceRecord | None) -> CheckResult:
    """One check of a partition, from its latest publication. Pure."""
    if name == PUBLISHED_CHECK and blocked is not None:
        return judge_blocked(blocked)
    if report is None:
        return CheckResult(name, passed=False, blocking=False, description="Nothing is published yet: materialize it.")
    if name == PUBLISHED_CHECK:
        return decide_published(report)
    for check in report.checks:
        if check.name == name:
            return check
    said = "The latest publication has no result of it, since it is older than this check: materialize it."
    return CheckResult(name, passed=False, blocking=False, description=said)


def evaluate_published(
    context: dg.AssetExecutionContext,
    layout: JobLayout,
    chosen: Collection[DatasetUrn],
    stores: Stores,
    open_ports: OpenPorts,
) -> Iterator[dg.AssetCheckEvaluation]:
    """The selected checks of the run's partitions, or of all published partitions, each as it is found.

    ``chosen``: the datasets whose checks are meant. ``open_ports``: what a run of a job needs, for checks that compare
    the source.
    """
    latest = {(each.urn, each.partition.key): each for each in load_latest(stores, layout)}
    late = [each for each in stores.reports.list_backlogs(JobName(layout.job.job)) if is_late(each)]
    blocked = {(each.urn, each.partition or None): each for each in list_blocked(stores, layout)}
    wanted = find_run_range(context.run.tags)
    urns = {layout.get_key(urn): urn for urn in chosen}
    audits: list[_Audit] = []
    for check in sorted(context.selected_asset_check_keys, key=lambda each: each.to_user_string()):
        if (urn := urns.get(check.asset_key)) is None:
            continue
        if any(each.name == check.name and each.of_sink for each in layout.list_checks(urn)):
            yield from _evaluate_sink_check(context, layout, stores, check, urn)
            continue
        keys: Sequence[str | None] = sorted({key for of, key in (*latest, *blocked) if of == urn}, key=str)
        if wanted is not None or layout.partitions[urn] is None:
            keys = list_keys(layout.partitions[urn], wanted, spec=layout.datasets[urn], instance=context.instance)
        if any(each.name == check.name and each.is_audit for each in layout.list_checks(urn)):
            audits += [_Audit(check, urn, key) for key in keys]
            continue
        for key in keys:
            found = judge(check.name, latest.get((urn, key)), blocked.get((urn, key)))
            if check.name == PUBLISHED_CHECK and late:
                found = replace(found, description=" ".join([found.description, *map(describe_backlog, late)]).strip())
            yield _evaluate(context, check, found, key)
    if audits:
        yield from _audit(context, layout, stores, audits, open_ports)


def _evaluate_sink_check(
    context: dg.AssetExecutionContext, layout: JobLayout, stores: Stores, check: dg.AssetCheckKey, urn: DatasetUrn
) -> Iterator[dg.AssetCheckEvaluation]:
    """A check of the sink as it is now; none of a dataset that neither a worker nor a run has registered."""
    sight = look_at_sink(layout, stores)
    for found in judge_sink(layout, sight, urn) if urn in sight.looks else ():
        if found.name == check.name:
            yield _evaluate(context, check, found, None)


class _Audit(NamedTuple):
    """A check of one partition that compares the source."""

    check: dg.AssetCheckKey
    urn: DatasetUrn
    partition: str | None


def _audit(
    context: dg.AssetExecutionContext,
    layout: JobLayout,
    stores: Stores,
    audits: Sequence[_Audit],
    open_ports: OpenPorts,
) -> Iterator[dg.AssetCheckEvaluation]:
    """Plan what a run would do, without leases or writes; the judgement of each."""
    job = layout.program.plan_audit(layout.job)
    selection = {
        urn: tuple(asset_partition(layout.datasets[urn], each.partition) for each in audits if each.urn == urn)
        for urn in dict.fromkeys(each.urn for each in audits)
    }
    request = RunRequest(layout.program.rules_of(job), selection, mode=Mode.APPEND)
    with open_ports(context, replace(layout, job=job)) as ports:
        planned = plan_dry(request, stores.datasets, ports.kind, ports.clock, ports.say)
    found = {(each.urn, each.partition): each for each in planned}
    for each in audits:
        result = layout.program.judge_audit(each.check.name, found[each.urn, each.partition])
        yield _evaluate(context, each.check, result, each.partition)


def find_unreported_blocks(
    layout: JobLayout, blocked: Sequence[SequenceRecord], instance: dg.DagsterInstance
) -> list[SequenceRecord]:
    """BLOCKED publications whose check does not fail yet: the run that blocked them was not Dagster's, or died."""
    unreported = []
    for sequence in blocked:
        check = dg.AssetCheckKey(layout.get_key(DatasetUrn(sequence.urn)), PUBLISHED_CHECK)
        key = sequence.partition or None
        with reporting(check.asset_key):
            # By the partition: of one that has none, the only one.
            found = instance.event_log_storage.get_asset_check_execution_history(
                check, limit=1, partition_filter=PartitionKeyFilter(key=key)
            )
        known = find_evaluation(found[0]) if found else None
        if known is None or str(sequence.sequence_id) not in (known.description or ""):
            unreported.append(sequence)
    return unreported


def _evaluate(
    context: dg.AssetExecutionContext, check: dg.AssetCheckKey, found: CheckResult, key: str | None
) -> dg.AssetCheckEvaluation:
    with reporting(check.asset_key):
        target = find_latest(context.instance, check.asset_key, key)
    return build_evaluation(check.asset_key, found, partition=key, target=target)


def find_unreported(
    layout: JobLayout, latest: Sequence[DatasetReport], instance: dg.DagsterInstance
) -> list[DatasetReport]:
    """The latest publications that are not the latest materialization of their partition in Dagster.

    A publication without a file, of a partition that Dagster knows, is no news.
    """
    known: dict[dg.AssetKey, Mapping[str | None, str | None]] = {}
    unreported = []
    for report in latest:
        key = layout.get_key(report.urn)
        if key not in known:
            with reporting(key):
                known[key] = _read_reported(instance, key)
        publication, shown = report.publication, known[key].get(report.partition.key)
        if publication is None or (shown is not None and not publication.file_count):
            continue
        if shown != str(publication.sequence_id):
            unreported.append(report)
    return unreported


def _read_reported(instance: dg.DagsterInstance, key: dg.AssetKey) -> Mapping[str | None, str | None]:
    """The sequence that Dagster shows for each partition."""
    shown: dict[str | None, str | None] = {}
    latest = instance.get_latest_materialization_event(key)
    if latest is not None and latest.asset_materialization is not None:
        event = latest.asset_materialization
        shown[event.partition] = (event.tags or {}).get(DATA_VERSION_TAG)
    by_partition = instance.event_log_storage.get_latest_tags_by_partition(
        key, dg.DagsterEventType.ASSET_MATERIALIZATION, [DATA_VERSION_TAG]
    )
    return shown | {partition: tags.get(DATA_VERSION_TAG) for partition, tags in by_partition.items()}
