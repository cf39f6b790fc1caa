"""The sensors of a job of file sets: one asks for runs of sets that are ready and new, one finds sets and datasets.

Both look at the source within a bound, and end long before Dagster would end the tick. If the source can't be looked
at, the tick skips with that reason.
"""

import datetime as dt
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from gobblin_assets.dagster.file_set_news import (
    DueSets,
    RunEnd,
    SetMemory,
    WantedRun,
    decide_sets,
    go_on_with,
    name_set,
    read_set_memory,
    write_set_memory,
)
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.log_sensors import find_busy
from gobblin_assets.dagster.new_data import name_some
from gobblin_assets.dagster.ports import STORES_KEY
from gobblin_assets.dagster.run_config import ASKED_AGAIN_TAG
from gobblin_assets.dagster.sensors import UNFINISHED
from gobblin_assets.errors import GobblinError
from gobblin_assets.jobs.programs import FileSets, SetId, WatchRules
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.discovery import describe_changes
from gobblin_assets.spec.job_options import DatasetOptions

LOOK_S_MAX: Final = 10.0
"""No further set is looked at after this time of a tick; the next tick goes on with it."""

SETS_MAX: Final = 1_000
"""The sets with the newest keys that are watched: the cursor holds a line for each."""

FINDING_INTERVAL_S: Final = 60
KEYS_PER_TICK_MAX: Final = 1_000
_NOTHING_FOUND: Final = "The source has the job's datasets and file sets, and no others."
_RUN_KEY_TAG: Final = "dagster/run_key"


def build_set_sensors(
    layout: JobLayout, rules: WatchRules, jobs: Sequence[UnresolvedAssetJobDefinition]
) -> list[dg.SensorDefinition]:
    """``jobs``: the layout's, one for each of its ``group_by_partitions``."""
    sensors = [_build_finding_sensor(layout)] if rules.finds_datasets else []
    return [_build_new_files_sensor(layout, rules, jobs), *sensors] if jobs else sensors


def _build_new_files_sensor(
    layout: JobLayout, rules: WatchRules, jobs: Sequence[UnresolvedAssetJobDefinition]
) -> dg.SensorDefinition:
    """Asks for one run for each key of sets that changed. Stopped until a person turns it on, or the job does."""
    names = {
        urn: job.name
        for job, (_partitions, members) in zip(jobs, layout.group_by_partitions(), strict=True)
        for urn in members
    }

    @dg.sensor(
        name=f"{layout.job.job}_new_data_sensor",
        jobs=list(jobs),
        minimum_interval_seconds=rules.interval_s,
        default_status=dg.DefaultSensorStatus.RUNNING if rules.running else dg.DefaultSensorStatus.STOPPED,
        required_resource_keys={STORES_KEY},
        description=f"Asks for runs of the file sets of {layout.job.job} that are ready and have changed.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        stores: Stores = getattr(context.resources, STORES_KEY)
        memory = read_set_memory(context.cursor)
        try:
            found = layout.program.look_at_sets(layout.job)
            sets = _choose_sets(layout, found)
            marks, first, refused = _find_marks(found, go_on_with(sets, memory.first))
            states = stores.datasets.load(JobName(layout.job.job), list(layout.datasets))
            busy = find_busy(context.instance, layout, stores, states, {job.name for job in jobs})
        except GobblinError as error:
            return dg.SensorResult(skip_reason=_in_one_line(error))
        ends = find_ends(context.instance, [note.run_key for note in memory.notes.values() if note.run_key])
        now_s = dt.datetime.now(dt.UTC).timestamp()
        due = decide_sets(sets, marks, busy, memory, ends, names, now_s=now_s)
        requests = [_request_run(layout, each) for each in due.wanted]
        # Dagster refuses a whole tick for a key that it does not know, and the other sensor may be stopped.
        added = _add_keys(layout, [each for wanted in due.wanted for each in wanted.sets], context.instance)
        left_out = " ".join(filter(None, (_describe_left_out(due), refused)))
        if requests:
            context.log.info(f"{sum(len(each.sets) for each in due.wanted)} file sets are new. {left_out}".rstrip())
        return dg.SensorResult(
            run_requests=requests or None,
            dynamic_partitions_requests=added or None,
            skip_reason=None if requests else left_out or f"Nothing is new in {len(sets):,} file sets.",
            cursor=write_set_memory(SetMemory(due.notes, first)),
        )

    return look


def _build_finding_sensor(layout: JobLayout) -> dg.SensorDefinition:
    """Adds keys of new sets to dynamic partitions, and says once that datasets or other keys have changed."""

    @dg.sensor(
        name=f"{layout.job.job}_discovery_sensor",
        minimum_interval_seconds=FINDING_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Looks for datasets and file sets that {layout.job.job} should have, or has and are gone.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        try:
            found = layout.program.look_at_sets(layout.job)
        except GobblinError as error:
            return dg.SensorResult(skip_reason=_in_one_line(error))
        changes = describe_changes(_list_fixed(layout.datasets), _list_fixed(found.datasets))
        added = _add_keys(layout, found.list_sets(), context.instance)
        said = None
        if changes is not None:
            said = f"The file sets have changed ({changes}): reload the code location, and its assets follow."
            if changes != context.cursor:
                context.log.warning(said)
        return dg.SensorResult(
            dynamic_partitions_requests=added or None,
            skip_reason=_describe_added(added) or said or _NOTHING_FOUND,
            cursor=changes or "",
        )

    return look


def _list_fixed(datasets: Mapping[DatasetUrn, DatasetOptions]) -> list[str]:
    """The datasets and keys that only a new load of the definitions changes."""
    keys = [f"{urn} [{key}]" for urn, each in datasets.items() for key in each.partitions.keys]
    return [*datasets, *keys]


def _add_keys(
    layout: JobLayout, sets: Iterable[SetId], instance: dg.DagsterInstance
) -> list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest]:
    """Keys that dynamic partitions lack. Those of sets that are gone stay: they were published."""
    wanted: dict[str, set[str]] = {}
    for each in sets:
        partitions = layout.partitions.get(each.urn)
        if isinstance(partitions, dg.DynamicPartitionsDefinition) and partitions.name and each.key:
            wanted.setdefault(partitions.name, set()).add(each.key)
    requests: list[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest] = []
    for name, keys in wanted.items():
        new = sorted(keys - set(instance.get_dynamic_partitions(name)))[:KEYS_PER_TICK_MAX]
        if new:
            requests.append(dg.AddDynamicPartitionsRequest(name, new))
    return requests


def _describe_added(
    requests: Sequence[dg.AddDynamicPartitionsRequest | dg.DeleteDynamicPartitionsRequest],
) -> str:
    """Of the keys that are added; empty without any."""
    added = [f"{name_some(each.partition_keys)} to {each.partitions_def_name}" for each in requests]
    return f"Added {', '.join(added)}." if added else ""


def _choose_sets(layout: JobLayout, found: FileSets) -> list[SetId]:
    """The sets of the job's assets that are watched."""
    known = [each for each in found.list_sets() if _is_asset(layout, each)]
    return known[:SETS_MAX]


def _is_asset(layout: JobLayout, each: SetId) -> bool:
    if not layout.has_dataset(each.urn):
        return False
    spec = layout.datasets[each.urn].partitions
    # Of other static keys a reload of the definitions tells; windows and dynamic keys need none.
    return not spec.keys or each.key in spec.keys


def _find_marks(found: FileSets, sets: Sequence[SetId]) -> tuple[dict[SetId, str | None], str | None, str]:
    """The marks, the name of the first set that there was no time for, and why others have none."""
    end_s = time.monotonic() + LOOK_S_MAX
    marks: dict[SetId, str | None] = {}
    refused = ""
    for each in sets:
        if time.monotonic() > end_s:
            return marks, name_set(each), refused
        try:
            marks[each] = found.find_mark(each)
        except GobblinError as error:
            refused = _in_one_line(error)
    return marks, None, refused


def find_ends(instance: dg.DagsterInstance, run_keys: Iterable[str]) -> dict[str, RunEnd]:
    """What became of the runs of these keys."""
    ends = {}
    for run_key in set(run_keys):
        runs = instance.get_runs(dg.RunsFilter(tags={_RUN_KEY_TAG: run_key}), limit=1)
        status = runs[0].status if runs else dg.DagsterRunStatus.FAILURE
        if status in UNFINISHED:
            ends[run_key] = RunEnd.WORKING
        else:
            ends[run_key] = RunEnd.GOOD if status is dg.DagsterRunStatus.SUCCESS else RunEnd.FAILED
    return ends


def _request_run(layout: JobLayout, wanted: WantedRun) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=wanted.run_key,
        job_name=wanted.job,
        partition_key=wanted.sets[0].key or None,
        asset_selection=[layout.get_key(each.urn, role) for each in wanted.sets for role in layout.roles],
        tags={ASKED_AGAIN_TAG: "true"},
    )


def _describe_left_out(due: DueSets) -> str:
    reasons = (
        (due.busy, "at work or queued already"),
        (due.held, "waiting until the next try"),
        (due.unready, "not ready (the marker, the directory, or a file that a manifest names is missing)"),
    )
    return " ".join(f"{len(sets)} {why}: {name_some(list(map(_label, sets)))}." for sets, why in reasons if sets)


def _label(each: SetId) -> str:
    return f"{each.urn} [{each.key}]" if each.key else each.urn


def _in_one_line(error: GobblinError) -> str:
    return " ".join(str(error).split())
