"""The sensors of a job of file sets: one asks for runs of sets that are ready and new, one finds sets and datasets.

Both look at the source within a bound, and end long before Dagster would end the tick. If the source can't be looked
at, the tick skips with that reason.

A set is due when its mark is another than that of its last good run. A run that failed is asked for again under the
same mark, each time after a longer wait. One set of a dataset is asked for at a time, since a run holds the dataset.
"""

import datetime as dt
import hashlib
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from pydantic import TypeAdapter, ValidationError

from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.log_sensors import find_busy
from gobblin_assets.dagster.ports import STORES_KEY
from gobblin_assets.dagster.run_config import ASKED_AGAIN_TAG
from gobblin_assets.dagster.sensor_ticks import UNFINISHED, decide_try_wait_s, in_one_line, name_some
from gobblin_assets.errors import GobblinError
from gobblin_assets.jobs.programs import FileSets, SetId, WatchRules
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.discovery import describe_changes
from gobblin_assets.spec.job_options import DatasetOptions

_KEY_DIGITS: Final = 32
_SEPARATOR: Final = "\n"

LOOK_S_MAX: Final = 10.0
"""No further set is looked at after this time of a tick; the next tick goes on with it."""

SETS_MAX: Final = 1_000
"""The sets with the newest keys that are watched: the cursor holds a line for each."""

FINDING_INTERVAL_S: Final = 60
KEYS_PER_TICK_MAX: Final = 1_000
_NOTHING_FOUND: Final = "The source has the job's datasets and file sets, and no others."
_RUN_KEY_TAG: Final = "dagster/run_key"


class RunEnd(StrEnum):
    """The end of a run. FAILED: also of a run that is not there."""

    WORKING = "WORKING"
    GOOD = "GOOD"
    FAILED = "FAILED"


class SetNote(NamedTuple):
    """The last run that was asked for under ``mark``, at ``at`` (Unix time, s); no ``run_key`` once it was good."""

    mark: str
    tries: int
    at: float
    run_key: str | None


@dataclass(frozen=True, slots=True)
class SetMemory:
    """The sensor's cursor: a note for each set, and the set that a tick without enough time goes on with."""

    notes: Mapping[str, SetNote] = field(default_factory=dict)
    first: str | None = None


class WantedRun(NamedTuple):
    """A run of Dagster's job ``job``."""

    job: str
    run_key: str
    sets: Sequence[SetId]


class _Chosen(NamedTuple):
    """A set to ask for. ``salt``: the time of its last request, so that a mark that comes back makes a new run key."""

    id: SetId
    mark: str
    tries: int
    salt: float


@dataclass(slots=True)
class DueSets:
    """The sets that are due. ``wanted``: those of each run, all of one job and key. The others are left out for now.

    ``busy`` and ``held`` are due too; those of ``unready`` have no mark.
    """

    wanted: list[WantedRun] = field(default_factory=list)
    busy: list[SetId] = field(default_factory=list)
    held: list[SetId] = field(default_factory=list)
    unready: list[SetId] = field(default_factory=list)
    notes: dict[str, SetNote] = field(default_factory=dict)


_MEMORY: Final = TypeAdapter(SetMemory)


def read_set_memory(cursor: str | None) -> SetMemory:
    """The cursor of the last tick. Without it, each set is due once more."""
    try:
        return _MEMORY.validate_json(cursor) if cursor else SetMemory()
    except ValidationError:
        return SetMemory()


def write_set_memory(memory: SetMemory) -> str:
    return _MEMORY.dump_json(memory).decode("utf-8")


def name_set(each: SetId) -> str:
    """The set's name in a cursor."""
    return f"{each.urn}{_SEPARATOR}{each.key}"


def go_on_with(sets: Sequence[SetId], first: str | None) -> list[SetId]:
    """The same sets, beginning with the one of this name."""
    start = next((number for number, each in enumerate(sets) if name_set(each) == first), 0)
    return [*sets[start:], *sets[:start]]


def decide_sets(
    sets: Sequence[SetId],
    marks: Mapping[SetId, str | None],
    busy: Collection[str],
    memory: SetMemory,
    ends: Mapping[str, RunEnd],
    jobs: Mapping[DatasetUrn, str],
    *,
    now_s: float,
) -> DueSets:
    """What to ask for now. ``marks``: of the sets that were looked at; None: the set is not ready.

    ``busy``: datasets at work. ``ends``: what became of the runs in ``memory``, by run key. ``jobs``: by dataset.
    """
    due = DueSets()
    chosen: dict[tuple[str, str], list[_Chosen]] = {}
    taken = set(busy)
    for each in sets:
        note = _settle(memory.notes.get(name_set(each)), ends)
        if note is not None:
            due.notes[name_set(each)] = note
        mark = marks.get(each)
        if mark is None and each in marks:
            due.unready.append(each)
        is_known = note is not None and note.mark == mark
        if mark is None or (note is not None and is_known and note.run_key is None):
            continue
        if each.urn in taken or (note is not None and note.run_key and ends.get(note.run_key) is RunEnd.WORKING):
            due.busy.append(each)
            continue
        tries = note.tries if note is not None and is_known else 0
        if note is not None and tries and now_s - note.at < decide_try_wait_s(tries):
            due.held.append(each)
            continue
        taken.add(each.urn)
        salt = now_s if note is None else note.at
        chosen.setdefault((jobs[each.urn], each.key), []).append(_Chosen(each, mark, tries + 1, salt))
    for (job, _key), members in chosen.items():
        run_key = _make_run_key(job, members)
        due.wanted.append(WantedRun(job, run_key, [each.id for each in members]))
        due.notes |= {name_set(each.id): SetNote(each.mark, each.tries, now_s, run_key) for each in members}
    return due


def _settle(note: SetNote | None, ends: Mapping[str, RunEnd]) -> SetNote | None:
    """The note, without its run if that was good."""
    if note is None or note.run_key is None or ends.get(note.run_key) is not RunEnd.GOOD:
        return note
    return note._replace(run_key=None)


def _make_run_key(job: str, members: Sequence[_Chosen]) -> str:
    """A new key for every try, and the same if the same tick is evaluated again, but for sets that are seen first."""
    lines = [job, *(f"{name_set(each.id)} {each.mark} {each.tries} {each.salt}" for each in sorted(members))]
    return hashlib.sha256("\n".join(lines).encode("utf-8")).hexdigest()[:_KEY_DIGITS]


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
            return dg.SensorResult(skip_reason=in_one_line(error))
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
            return dg.SensorResult(skip_reason=in_one_line(error))
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
            refused = in_one_line(error)
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
