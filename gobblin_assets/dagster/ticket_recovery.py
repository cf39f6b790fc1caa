"""Recovery for the jobs that tickets have brought into a log: one sensor and one job for all of them.

The sensor finds sequences that dead runs left, whoever ran them, and asks for runs of the recovery job. A run takes
several jobs, each with a recovery and a failure of its own. A job whose try died is tried alone, and later each time:
what kills a run of it takes no other job along. Jobs are left out that need a connection which this environment lacks;
an executor that has it recovers them. Job files have sensors of their own: if a job has both, its leases decide.

A layout is that of a job's last ticket. Of a job whose tickets are all forgotten there is none: the tick says so, and a
person recovers it by the command.
"""

import datetime as dt
import hashlib
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import dagster as dg
from pydantic import Field, TypeAdapter, ValidationError

from gobblin_assets.commit.driver import describe_ways_out
from gobblin_assets.commit.recovery import SweepBounds
from gobblin_assets.commit.sequence import SequenceRecord
from gobblin_assets.dagster.dead_runs import report_dead_runs, report_lost_runs
from gobblin_assets.dagster.job_assets import build_gobblin_assets
from gobblin_assets.dagster.maintenance_jobs import BOUNDS, NOT_FINISHED, raise_failures, sweep
from gobblin_assets.dagster.ports import FILE_SYSTEMS_KEY, SPARK_KEY, STORES_KEY
from gobblin_assets.dagster.progress import ProgressLog
from gobblin_assets.dagster.published_checks import BLOCKED_MAX, LOADED_MAX, find_unreported_blocks
from gobblin_assets.dagster.recovery_sensor import IDLE_MARGIN_S, RECOVERY_TAG, SEQUENCE_TAG
from gobblin_assets.dagster.reported_runs import ReportedJob, report_blocked
from gobblin_assets.dagster.reporter import REPORT_S_MAX, report_named
from gobblin_assets.dagster.sensor_ticks import EACH_LOOK_S, INTERVAL_S, UNFINISHED, decide_try_wait_s, name_some
from gobblin_assets.dagster.ticket_layouts import TicketLayout, TicketLayouts, find_lack
from gobblin_assets.errors import GobblinError
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.runner import WAITING_SAID_EVERY_S
from gobblin_assets.run.stores import Stores

TICKETS_RECOVERY_JOB: Final = "gobblin_service_recovery"
TICKETS_RECOVERY_SENSOR: Final = "gobblin_service_recovery_sensor"
TICKETS_REPORTING_SENSOR: Final = "gobblin_service_reporting_sensor"

JOBS_PER_RUN_MAX: Final = 50
"""A run costs seconds before it recovers anything, and a job less than one."""

_OP: Final = "recover_jobs"
_RUNS_READ_MAX: Final = 100
_LAPSED_MAX: Final = 1_000
_KEY_DIGITS: Final = 32


class TicketRecoveryConfig(dg.Config):
    """Run configuration of the recovery job of tickets. ``jobs``: their names; of a run that only reports, none."""

    jobs: list[str] = Field(default_factory=list)


def build_ticket_recovery_job() -> dg.JobDefinition:
    """One op in one process, without Spark."""

    @dg.op(
        name=_OP,
        required_resource_keys={STORES_KEY, FILE_SYSTEMS_KEY, SPARK_KEY},
        description="Finishes open publications of the named jobs, and announces those that were not announced.",
    )
    def recover_jobs(context: dg.OpExecutionContext, config: TicketRecoveryConfig) -> None:
        _recover_jobs(context, [JobName(each) for each in config.jobs])

    @dg.job(
        name=TICKETS_RECOVERY_JOB,
        executor_def=dg.in_process_executor,
        description="Recovery of jobs that came as tickets. A sensor asks for its runs.",
    )
    def recovery_job() -> None:
        recover_jobs()

    return recovery_job


def _recover_jobs(context: dg.OpExecutionContext, names: Sequence[JobName]) -> None:
    """Raises Failure for what could not be finished, after all else was. What time does not allow is asked again."""
    stores: Stores = getattr(context.resources, STORES_KEY)
    layouts = TicketLayouts()
    layouts.look(stores.tickets)
    found = layouts.find(stores.tickets, names)
    until_s = time.monotonic() + (BOUNDS.work_s_max or 0.0)
    failures: list[str] = []
    with closing(ProgressLog(context.log.info)) as progress:
        for name in names:
            left_s = until_s - time.monotonic()
            layout = None if name not in found else found[name].layout
            if layout is None:
                failures.append(f"- {name}: {found[name].refused if name in found else _say_forgotten([name])}")
                continue
            if left_s <= 0:
                break
            try:
                bounds = SweepBounds(BOUNDS.sequences_max, left_s)
                failures += [f"- {name}: {each}" for each in sweep(context, layout, progress, bounds)]
            except GobblinError as error:
                failures.append(f"- {name}: {error}")
    raise_failures(failures, NOT_FINISHED)


class AskedRecovery(NamedTuple):
    """A recovery that was asked for, of a job whose first due sequence was ``mark``: how often, and when last.

    ``at``: or when a run was last seen at work (Unix time, s).
    """

    mark: str
    tries: int
    at: float


@dataclass(frozen=True, slots=True)
class RecoveryMemory:
    """The sensor's cursor. ``idle``: as of ``report_dead_runs``; ``asked``: by job."""

    asked: Mapping[JobName, AskedRecovery] = field(default_factory=dict)
    idle: Mapping[str, float] = field(default_factory=dict)


_MEMORY: Final = TypeAdapter(RecoveryMemory)


def read_recovery_memory(cursor: str | None) -> RecoveryMemory:
    """A cursor that a person typed or cleared only loses the waits of tries."""
    try:
        return _MEMORY.validate_json(cursor) if cursor else RecoveryMemory()
    except ValidationError:
        return RecoveryMemory()


def decide_recoveries(
    due: Mapping[JobName, SequenceId], busy: Collection[JobName], asked: Mapping[JobName, AskedRecovery], now_s: float
) -> tuple[list[list[JobName]], dict[JobName, AskedRecovery]]:
    """The jobs of each run to ask for now, and what is remembered. ``due``: each job's first sequence, oldest first.

    ``busy``: the jobs that an unfinished run recovers.
    """
    kept: dict[JobName, AskedRecovery] = {}
    together: list[JobName] = []
    alone: list[list[JobName]] = []
    for name, sequence_id in due.items():
        before = asked.get(name)
        if before is not None and before.mark != str(sequence_id):
            before = None
        if name in busy:
            kept[name] = (before or AskedRecovery(str(sequence_id), 1, now_s))._replace(at=now_s)
        elif before is None:
            kept[name] = AskedRecovery(str(sequence_id), 1, now_s)
            together.append(name)
        elif now_s - before.at < decide_try_wait_s(before.tries):
            kept[name] = before
        else:
            kept[name] = AskedRecovery(before.mark, before.tries + 1, now_s)
            alone.append([name])
    pages = [together[first : first + JOBS_PER_RUN_MAX] for first in range(0, len(together), JOBS_PER_RUN_MAX)]
    return [*pages, *alone], kept


def build_ticket_recovery_sensor() -> dg.SensorDefinition:
    """Running unless it is stopped."""
    layouts, recovery = TicketLayouts(), build_ticket_recovery_job()

    @dg.sensor(
        name=TICKETS_RECOVERY_SENSOR,
        job_name=TICKETS_RECOVERY_JOB,
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={STORES_KEY},
        description="Finishes publications of jobs that came as tickets, and whose runs died.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        stores: Stores = getattr(context.resources, STORES_KEY)

        def warn(line: str) -> None:
            # Dagster makes a file of a tick whose log is only asked for, and keeps it for ever.
            context.log.warning(line)

        return _Tick(context.instance, stores, layouts, recovery, warn).look(context.cursor)

    return look


@dataclass(slots=True)
class _Tick:
    instance: dg.DagsterInstance
    stores: Stores
    layouts: TicketLayouts
    recovery: dg.JobDefinition
    warn: Callable[[str], None]
    _names: Collection[JobName] = ()
    _said: list[str] = field(default_factory=list)

    def look(self, cursor: str | None) -> dg.SensorResult:
        now = dt.datetime.now(dt.UTC)
        memory = read_recovery_memory(cursor)
        self._names = self.layouts.look(self.stores.tickets).keys()
        # In this order, as the sensor of a job file: a recovery takes leases, which then show no dead run any more.
        due = self._list_due()
        runs, asked = decide_recoveries(due, self._list_busy(), memory.asked, now.timestamp())
        idle = self._report_dead(memory.idle, now)
        self._report_blocked()
        requests = [self._request(names, asked) for names in runs]
        after = _MEMORY.dump_json(RecoveryMemory(asked, idle)).decode()
        if requests:
            return dg.SensorResult(run_requests=requests, cursor=after)
        said = " ".join(self._said) or "No publication of a ticket's job waits for recovery now."
        return dg.SensorResult(skip_reason=said, cursor=after)

    def _list_due(self) -> dict[JobName, SequenceId]:
        """The first sequence of each job that this environment can recover, the longest due first."""
        names, forgotten, lacks = set(self._names), list[JobName](), dict[JobName, str]()
        while True:
            page = self.stores.commits.list_recoverable(jobs=list(names), limit=LOADED_MAX)
            first: dict[JobName, SequenceId] = {}
            for each in page:
                first.setdefault(each.job, each.sequence_id)
            found = self.layouts.find(self.stores.tickets, first)
            left = {name for name in first if name not in found}
            forgotten += sorted(left)
            lacking = {name: lack for name, each in found.items() if (lack := _find_lack(each)) is not None}
            lacks |= lacking
            left |= lacking.keys()
            names -= left
            # What is left to others may fill whole pages.
            if len(page) < LOADED_MAX or not left:
                break
        if forgotten:
            self._said.append(_say_forgotten(forgotten))
        if lacks:
            self._said.append(
                f"Left to other executors: {name_some([f'{job}: {lack}' for job, lack in lacks.items()])}"
            )
        return {name: sequence_id for name, sequence_id in first.items() if name in names}

    def _list_busy(self) -> set[JobName]:
        working = dg.RunsFilter(job_name=TICKETS_RECOVERY_JOB, statuses=UNFINISHED)
        busy: set[JobName] = set()
        for run in self.instance.get_runs(working, limit=_RUNS_READ_MAX):
            busy.update(_jobs_of(run.run_config))
        return busy

    def _request(self, names: Sequence[JobName], asked: Mapping[JobName, AskedRecovery]) -> dg.RunRequest:
        tries = [f"{name} {asked[name].mark} {asked[name].tries}" for name in names]
        return dg.RunRequest(
            run_key=hashlib.sha256("\n".join(tries).encode()).hexdigest()[:_KEY_DIGITS],
            run_config={"ops": {_OP: {"config": {"jobs": list(names)}}}},
            tags={
                RECOVERY_TAG: "true",
                SEQUENCE_TAG: asked[names[0]].mark,
                "gobblin/recovery_try": str(asked[names[0]].tries),
            },
        )

    def _report_dead(self, seen: Mapping[str, float], now: dt.datetime) -> Mapping[str, float]:
        by_job = defaultdict(list)
        for run in self.stores.runs.list_lapsed(None, limit=_LAPSED_MAX):
            # A run of another instance on this log is that one's to report.
            if run.job in self._names and (run.is_command or self.instance.has_run(run.dagster_run_id)):
                by_job[run.job].append(run)
        found = self.layouts.find(self.stores.tickets, by_job)
        idle: dict[str, float] = {}
        for name, lapsed in by_job.items():
            layout = found[name].layout if name in found else None
            # A command waits without a word to Dagster.
            wait_s = WAITING_SAID_EVERY_S if layout is None else max(layout.job.lease.wait_s, WAITING_SAID_EVERY_S)
            idle |= report_dead_runs(self.instance, self.stores, lapsed, seen, now, idle_s_max=wait_s + IDLE_MARGIN_S)
        lost = report_lost_runs(
            self.instance,
            [TICKETS_RECOVERY_JOB],
            lambda key: key.path[0] in self._names,
            partial(self.stores.runs.list_working, None),
            now,
        )
        if lost:
            self.warn(f"Reported as failed, since their processes are gone: {', '.join(lost)}")
        return idle

    def _report_blocked(self) -> None:
        open_ones = self.stores.commits.list_open(None, limit=LOADED_MAX)
        blocked = [each for each in open_ones if each.state is SequenceState.BLOCKED and each.job in self._names]
        by_job: dict[JobName, list[SequenceRecord]] = defaultdict(list)
        for each in blocked[:BLOCKED_MAX]:
            by_job[each.job].append(each)
        for name, found in self.layouts.find(self.stores.tickets, by_job).items():
            layout = found.layout
            if layout is None:
                continue
            shown = [each for each in by_job[name] if layout.has_dataset(DatasetUrn(each.urn))]
            if unreported := find_unreported_blocks(layout, shown, self.instance):
                report_blocked(layout, unreported, self.instance, recovery=self.recovery)
        if blocked:
            first = blocked[0]
            ways = describe_ways_out(first.sequence_id)
            self._said.append(
                f"{len(blocked)} publications wait for a person, the first of {first.job}: {first.urn}. {ways}"
            )


def _find_lack(found: TicketLayout) -> str | None:
    return found.refused if found.layout is None else find_lack(found.layout, os.environ)


def _say_forgotten(names: Sequence[JobName]) -> str:
    return (
        f"The tickets of {name_some(names)} are forgotten, so that nothing says what these jobs are. Recover them by "
        f"the command: gobblin-assets commit recover --job {names[0]}."
    )


def _jobs_of(run_config: Mapping[str, object]) -> Iterable[JobName]:
    found: object = run_config
    for each in ("ops", _OP, "config", "jobs"):
        found = found.get(each) if isinstance(found, Mapping) else None
    return [JobName(str(each)) for each in found] if isinstance(found, list) else []


def build_ticket_reporting_sensor() -> dg.SensorDefinition:
    """Shows Dagster what processes and recovered publications of tickets' jobs left in the log; running, as above."""
    layouts, recovery = TicketLayouts(), build_ticket_recovery_job()

    @dg.sensor(
        name=TICKETS_REPORTING_SENSOR,
        minimum_interval_seconds=EACH_LOOK_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={STORES_KEY},
        description="Shows what executors outside of Dagster published of tickets' jobs, and what they could not.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        stores: Stores = getattr(context.resources, STORES_KEY)

        def find(name: JobName) -> ReportedJob | None:
            found = layouts.find(stores.tickets, [name]).get(name)
            layout = None if found is None else found.layout
            return (
                None
                if layout is None or not layout.specs
                else ReportedJob(layout, build_gobblin_assets(layout), None, recovery)
            )

        names = list(layouts.look(stores.tickets, every_s=INTERVAL_S))
        report_named(names, find, stores, context.instance, work_s_max=REPORT_S_MAX)
        return dg.SkipReason("What executors did is reported. No run is needed.")

    return look
