"""The sensors of a job of logs: one asks for runs of logs with new records, one finds logs that were added or removed.

A tick sends the source one request, which ends by itself long before Dagster would end the tick. If the source or a
file refuses, the tick skips with that reason.

A run may fail and leave new records unread. So each request is remembered with a mark, which changes as soon as a run
gets further. Under the same mark each try waits longer than the one before, and other datasets don't wait. Dagster
never runs a run key twice, even if the run failed, so a key is made of the marks and the numbers of the tries.
"""

import datetime as dt
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, cast

import dagster as dg
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from pydantic import TypeAdapter, ValidationError

from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.metadata import build_evaluation
from gobblin_assets.dagster.ports import STORES_KEY, WatchedConnection, connection_key
from gobblin_assets.dagster.run_config import ASKED_AGAIN_TAG, MODE_TAG
from gobblin_assets.dagster.sensor_ticks import UNFINISHED, decide_try_wait_s, in_one_line, name_some
from gobblin_assets.errors import GobblinError, RetryableError
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import WHOLE
from gobblin_assets.model.state import DatasetId, DatasetState, LaneId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.job_kind import CheckResult
from gobblin_assets.run.quality_checks import LAG_CHECK, check_lag
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.connection import LogNews, LogWatch
from gobblin_assets.sources.discovery import describe_changes, select_tables, write_discovery
from gobblin_assets.sources.source_port import SourceRequest
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.partition_keys import open_partition
from gobblin_assets.spec.source_kind import kind_of
from gobblin_assets.spec.source_spec import LogSourceSpec, NewDataSpec

_REFUSED_MARK: Final = "refused"
_KEY_DIGITS: Final = 32

ANSWER_S_MAX: Final = 20.0
"""The source's time for a tick's question. Dagster ends a tick after 60 s, and forgets its cursor."""

DISCOVERY_INTERVAL_S: Final = 60
RUNS_READ_MAX: Final = 1_000
"""Of Dagster's unfinished runs. What one beyond them holds once it runs is known by its leases."""

EVALUATIONS_PER_TICK_MAX: Final = 100
"""Each takes Dagster's daemon about 8 ms, in which no other sensor gets on. The next tick reports the rest."""

_CHOICE_DIGITS: Final = 16


class Asked(NamedTuple):
    """Requests under ``mark``: how often, and when last, or when the dataset was last seen at work (Unix time, s)."""

    mark: str
    tries: int
    at: float


@dataclass(frozen=True, slots=True)
class Memory:
    """The sensor's cursor. ``waiting``: since when a dataset has had new records, but too few."""

    asked: Mapping[DatasetUrn, Asked] = field(default_factory=dict)
    waiting: Mapping[DatasetUrn, float] = field(default_factory=dict)


@dataclass(slots=True)
class Due:
    """The datasets with new records: those that are ``wanted`` now, and those left out. ``memory``: the new cursor."""

    wanted: dict[DatasetUrn, Asked] = field(default_factory=dict)
    busy: list[DatasetUrn] = field(default_factory=list)
    small: list[DatasetUrn] = field(default_factory=list)
    held: list[DatasetUrn] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)

    @property
    def run_key(self) -> str:
        """A new key for every try, and the same key if the same tick is evaluated again."""
        lines = [f"{urn} {asked.mark} {asked.tries}" for urn, asked in sorted(self.wanted.items())]
        return hashlib.sha256("\n".join(lines).encode("utf-8")).hexdigest()[:_KEY_DIGITS]


_MEMORY: Final = TypeAdapter(Memory)


def read_memory(cursor: str | None) -> Memory:
    """The cursor of the last tick. A cursor that a person typed or cleared only loses the waits of tries."""
    try:
        return _MEMORY.validate_json(cursor) if cursor else Memory()
    except ValidationError:
        return Memory()


def write_memory(memory: Memory) -> str:
    return _MEMORY.dump_json(memory).decode("utf-8")


def find_news(news: LogNews | GobblinError) -> LogNews | None:
    """The same news; None: the brokers gave no answer. A dataset that planning refuses is due: its run says why."""
    if isinstance(news, RetryableError):
        return None
    if isinstance(news, GobblinError):
        return LogNews({}, begins=True, mark=_REFUSED_MARK)
    return news


def decide_due(
    findings: Mapping[DatasetUrn, LogNews | None],
    busy: Collection[DatasetUrn],
    memory: Memory,
    rules: NewDataSpec,
    *,
    now_s: float,
) -> Due:
    """What to ask for now. ``findings`` has every dataset of the job; None for one that nobody knows about."""
    due = Due()
    asked: dict[DatasetUrn, Asked] = {}
    waiting: dict[DatasetUrn, float] = {}
    for urn, finding in findings.items():
        before, since = memory.asked.get(urn), memory.waiting.get(urn)
        if finding is None:
            asked |= {} if before is None else {urn: before}
            waiting |= {} if since is None else {urn: since}
            continue
        if before is not None and before.mark == finding.mark:
            asked[urn] = before
        if not finding.count and not finding.begins:
            asked.pop(urn, None)
        elif urn in busy:
            due.busy.append(urn)
            # A try ends with its run: only then the wait for the next begins.
            asked |= {urn: asked[urn]._replace(at=now_s)} if urn in asked else {}
        elif _is_too_little(finding, since, rules, now_s):
            due.small.append(urn)
            waiting[urn] = now_s if since is None else since
        elif urn in asked and now_s - asked[urn].at < decide_try_wait_s(asked[urn].tries):
            due.held.append(urn)
        else:
            tries = asked[urn].tries + 1 if urn in asked else 1
            asked[urn] = due.wanted[urn] = Asked(finding.mark, tries, now_s)
    due.memory = Memory(asked, waiting)
    return due


def describe_left_out(due: Due, unanswered: Sequence[DatasetUrn]) -> str:
    """A sentence for each reason; "" when nothing that is new is left out."""
    reasons = (
        (due.busy, "at work or queued already"),
        (due.small, "waiting for more records"),
        (due.held, "waiting until the next try, since the last run got no further"),
        (unanswered, "not answered for by the brokers"),
    )
    return " ".join(f"{len(urns)} {reason}: {name_some(urns)}." for urns, reason in reasons if urns)


def _is_too_little(finding: LogNews, since: float | None, rules: NewDataSpec, now_s: float) -> bool:
    if finding.begins or finding.count >= rules.records_min:
        return False
    return rules.wait_s_max is None or since is None or now_s - since < rules.wait_s_max


def build_new_data_sensor(
    layout: JobLayout, source: LogSourceSpec, jobs: Sequence[UnresolvedAssetJobDefinition]
) -> dg.SensorDefinition:
    """Asks for one run of the logs with new records, or for one of each kind of partitions, in the open windows.

    The sensor is stopped until a person turns it on, or the job does, because its runs read from a cluster and write to
    a lake. ``jobs``: the layout's jobs, one for each of its ``group_by_partitions``.
    """
    rules, nouns = source.new_data, f"{kind_of(source).noun}s"

    @dg.sensor(
        name=f"{layout.job.job}_new_data_sensor",
        jobs=list(jobs),
        minimum_interval_seconds=rules.interval_s,
        default_status=dg.DefaultSensorStatus.RUNNING if rules.running else dg.DefaultSensorStatus.STOPPED,
        required_resource_keys={STORES_KEY, connection_key(source)},
        description=f"Asks for runs of the {nouns} of {layout.job.job} that have something new.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        stores: Stores = getattr(context.resources, STORES_KEY)
        now = dt.datetime.now(dt.UTC)
        try:
            states = stores.datasets.load(JobName(layout.job.job), list(layout.datasets))
            news = _open_watch(context, layout).find_news(_make_requests(layout, states))
            busy = find_busy(context.instance, layout, stores, states, {job.name for job in jobs})
            findings = {urn: find_news(each) for urn, each in news.items()}
            due = decide_due(findings, busy, read_memory(context.cursor), rules, now_s=now.timestamp())
            requests = _request_runs(layout, jobs, due, now)
        except GobblinError as error:
            return dg.SensorResult(skip_reason=in_one_line(error))
        left_out = describe_left_out(due, [urn for urn, finding in findings.items() if finding is None])
        if requests:
            wanted = list(due.wanted)
            said = f"Something is new in {len(wanted)} {nouns}: {name_some(wanted)}. {left_out}"
            context.log.info(said.rstrip())
        return dg.SensorResult(
            run_requests=requests or None,
            skip_reason=None if requests else left_out or f"Nothing is new in the {len(news)} {nouns} of the job.",
            cursor=write_memory(due.memory),
            asset_events=_find_lag_changes(context.instance, layout, news, busy),
        )

    return look


def build_discovery_sensor(
    layout: JobLayout, source: LogSourceSpec, *, known: Collection[str], path: Path | None
) -> dg.SensorDefinition:
    """Reports once which logs were added or removed since the definitions were made from ``known``.

    It writes the state file ``path`` as `gobblin-assets discover` would; it runs unless a person stops it. No sensor
    can reload a code location, because its process does not know the web server. So the reload is left to a person.
    """
    nouns = f"{kind_of(source).noun}s"

    @dg.sensor(
        name=f"{layout.job.job}_discovery_sensor",
        minimum_interval_seconds=DISCOVERY_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={connection_key(source)},
        description=f"Looks for {nouns} that {layout.job.job} should have, or has and are gone.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        try:
            names = _open_watch(context, layout).list_names()
            chosen = select_tables(names, source)
            changes = describe_changes(known, chosen)
            choice = _digest(chosen)
            if changes is None:
                said = f"The source has the job's {len(chosen)} {nouns}, and no others for it."
                return dg.SensorResult(skip_reason=said, cursor=choice)
            if context.cursor == choice:
                return dg.SensorResult(
                    skip_reason=f"The {nouns} have changed; the code location is still to be reloaded."
                )
            said = _keep_discovery(path, names, chosen, source, changes)
        except GobblinError as error:
            return dg.SensorResult(skip_reason=in_one_line(error))
        context.log.warning(said)
        return dg.SensorResult(skip_reason=said, cursor=choice)

    return look


def find_busy(
    instance: dg.DagsterInstance,
    layout: JobLayout,
    stores: Stores,
    states: Mapping[DatasetUrn, DatasetState],
    job_names: Collection[str],
) -> set[DatasetUrn]:
    """The datasets that a process holds, or that an unfinished run of Dagster's will take."""
    urns = {spec.key: urn for (urn, _role), spec in layout.specs.items()}
    busy: set[DatasetUrn] = set()
    for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED), limit=RUNS_READ_MAX):
        if run.asset_selection is not None:
            busy.update(urns[key] for key in run.asset_selection if key in urns)
        elif run.job_name in (*job_names, IMPLICIT_ASSET_JOB_NAME):
            busy.update(layout.datasets)
    held = stores.leases.list_live([state.dataset_id for state in states.values()])
    return busy | {urn for urn, state in states.items() if state.dataset_id in held}


def _open_watch(context: dg.SensorEvaluationContext, layout: JobLayout) -> LogWatch:
    job = _job_of(layout)
    connection: WatchedConnection = getattr(context.resources, connection_key(job.source))
    return connection.open_watch(job, timeout_s_max=ANSWER_S_MAX)


def _job_of(layout: JobLayout) -> JobSpec:
    # Only ingestions have logs, and their layouts hold these two types.
    return cast("JobSpec", layout.job)


def _datasets_of(layout: JobLayout) -> Mapping[DatasetUrn, DatasetSpec]:
    return cast("Mapping[DatasetUrn, DatasetSpec]", layout.datasets)


def _make_requests(layout: JobLayout, states: Mapping[DatasetUrn, DatasetState]) -> list[SourceRequest]:
    job = JobName(layout.job.job)
    return [
        # A dataset that no run has seen yet has no number and no position.
        SourceRequest(
            urn=urn,
            partition=WHOLE,
            state=states.get(urn) or DatasetState(DatasetId(LaneId(0)), job, urn, 0),
            mode=Mode.APPEND,
            by_hand=False,
            spec=spec,
        )
        for urn, spec in _datasets_of(layout).items()
    ]


def _request_runs(
    layout: JobLayout, jobs: Sequence[UnresolvedAssetJobDefinition], due: Due, now: dt.datetime
) -> list[dg.RunRequest]:
    requests = []
    for job, (partitions, members) in zip(jobs, layout.group_by_partitions(), strict=True):
        wanted = [urn for urn in members if urn in due.wanted]
        if not wanted:
            continue
        requests.append(
            dg.RunRequest(
                run_key=due.run_key if len(jobs) == 1 else f"{due.run_key}:{job.name}",
                job_name=job.name,
                partition_key=None if partitions is None else open_partition(layout.datasets[wanted[0]], now).key,
                asset_selection=[layout.get_key(urn, role) for urn in wanted for role in layout.roles],
                tags={MODE_TAG: Mode.APPEND.value, ASKED_AGAIN_TAG: "true"},
            )
        )
    return requests


def _find_lag_changes(
    instance: dg.DagsterInstance,
    layout: JobLayout,
    news: Mapping[DatasetUrn, LogNews | GobblinError],
    busy: Collection[DatasetUrn],
) -> list[dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation]:
    """Evaluations of the check ``lag`` that differ from those in Dagster, failures first.

    A dataset at work is left out, because its run evaluates the check.
    """
    found: dict[dg.AssetCheckKey, CheckResult] = {}
    for urn, each in news.items():
        lag_max = _datasets_of(layout)[urn].quality.lag_max
        if lag_max is None or urn in busy or isinstance(each, GobblinError):
            continue
        lag = each.lag
        if lag is not None:
            found[dg.AssetCheckKey(layout.get_key(urn), LAG_CHECK)] = check_lag(lag, lag_max=lag_max)
    known = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(found))
    verdicts = {
        AssetCheckExecutionRecordStatus.SUCCEEDED: True,
        AssetCheckExecutionRecordStatus.FAILED: False,
    }
    changed = [
        (key, check)
        for key, check in sorted(found.items(), key=lambda each: each[1].passed)
        if key not in known or verdicts.get(known[key].status) is not check.passed
    ]
    return [build_evaluation(key.asset_key, check) for key, check in changed[:EVALUATIONS_PER_TICK_MAX]]


def _keep_discovery(
    path: Path | None, names: Sequence[str], chosen: Sequence[str], source: LogSourceSpec, changes: str
) -> str:
    """Write the state file, unless that would leave the job without logs. Returns the message."""
    nouns = f"{kind_of(source).noun}s"
    if not chosen:
        return (
            f"None of the {len(names)} {nouns} that the source shows is chosen by source.include ({changes}). Nothing "
            f"was written: look whether {nouns} were deleted, or this user may not see them any more."
        )
    if path is None:
        return f"The {nouns} have changed ({changes}). Run gobblin-assets discover, then reload the code location."
    write_discovery(path, names, source, dt.datetime.now(dt.UTC))
    return f"The {nouns} have changed ({changes}). {path} says so now: reload the code location, and its assets follow."


def _digest(names: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(names).encode("utf-8")).hexdigest()[:_CHOICE_DIGITS]
