"""The recovery sensor: finds sequences that dead runs left in the log, and asks for a run that finishes them.

If a sequence is open and its lease free, a tick asks for one run of the recovery job, which takes all such sequences.
(The reporting sensor handles sequences that are finished and were never announced.) A tick also finds dead runs of
Dagster's, by their leases or by their processes (``dead_runs``), and reports them as failed. Nothing else does that if
a code server or a machine went down with them. The log lists due sequences, by indexed queries with limits, and puts
off tries that failed with an error. Dagster's runs show tries that died. Dagster never runs a run key twice, even if
the run failed, so a key has the number of the try.
"""

import datetime as dt
import json
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

import dagster as dg

from gobblin_assets.commit.driver import describe_ways_out
from gobblin_assets.commit.sequence import SequenceRecord
from gobblin_assets.dagster.dead_runs import LAPSED_PER_TICK_MAX, report_dead_runs, report_lost_runs
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.maintenance_jobs import recovery_job_name, resume_job_name
from gobblin_assets.dagster.ports import STORES_KEY
from gobblin_assets.dagster.published_checks import find_unreported_blocks, list_blocked
from gobblin_assets.dagster.reported_runs import report_blocked
from gobblin_assets.dagster.sensor_ticks import (
    INTERVAL_S,
    TRIES_READ_MAX,
    UNFINISHED,
    decide_try,
    find_ended_at,
    read_times,
)
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.runner import WAITING_SAID_EVERY_S
from gobblin_assets.run.stores import Stores

SEQUENCE_TAG: Final = "gobblin/sequence_id"
RECOVERY_TAG: Final = "gobblin/recovery"
"""A tag for a separate limit on concurrent runs: ``resources/dagster.yaml`` leaves half of the slots to new work."""

# What a run does without a lease, besides waiting for a busy dataset, takes it seconds.
IDLE_MARGIN_S: Final = 120.0


def build_recovery_sensor(
    layout: JobLayout, job_names: Collection[str] = (), *, interval_s: int = INTERVAL_S
) -> dg.SensorDefinition:
    """The job's recovery sensor, running unless it is stopped. ``job_names``: those of its assets in Dagster."""
    job = JobName(layout.job.job)
    names = {*job_names, recovery_job_name(job), resume_job_name(job)}
    keys = {spec.key for spec in layout.specs.values()}

    @dg.sensor(
        name=f"{job}_recovery_sensor",
        job_name=recovery_job_name(job),
        minimum_interval_seconds=interval_s,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={STORES_KEY},
        description=f"Finishes publications of {job} whose runs died.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        stores: Stores = getattr(context.resources, STORES_KEY)
        now = dt.datetime.now(dt.UTC)
        # A command waits without a word to Dagster.
        idle_s_max = max(layout.job.lease.wait_s, WAITING_SAID_EVERY_S) + IDLE_MARGIN_S
        # In this order: if a lease ran out between the two looks, the recovery run would take it over, and the lease
        # would no longer show that the earlier run is dead.
        request = _find_request(context.instance, stores, job, now)
        lapsed = stores.runs.list_lapsed(job, limit=LAPSED_PER_TICK_MAX)
        seen = read_times(context.cursor)
        idle = report_dead_runs(context.instance, stores, lapsed, seen, now, idle_s_max=idle_s_max)
        cursor = json.dumps(idle, sort_keys=True)
        lost = report_lost_runs(context.instance, names, keys.__contains__, partial(stores.runs.list_working, job), now)
        if lost:
            context.log.warning("Reported as failed, since their processes are gone: %s", ", ".join(lost))
        blocked = list_blocked(stores, layout)
        if unreported := find_unreported_blocks(layout, blocked, context.instance):
            report_blocked(layout, unreported, context.instance)
        if request is None:
            return dg.SensorResult(skip_reason=_describe_rest(job, blocked), cursor=cursor)
        return dg.SensorResult(run_requests=[request], cursor=cursor)

    return look


def _describe_rest(job: JobName, blocked: Sequence[SequenceRecord]) -> str:
    """Why a tick asks for nothing."""
    if not blocked:
        return f"No publication of {job} waits for recovery now."
    ways = f"Launch the job {resume_job_name(job)}, or: {describe_ways_out(blocked[0].sequence_id)}"
    return f"{len(blocked)} publications of {job} wait for a person, the first of {blocked[0].urn}. {ways}"


def _find_request(instance: dg.DagsterInstance, stores: Stores, job: JobName, now: dt.datetime) -> dg.RunRequest | None:
    first = _find_due(stores, job)
    if first is None:
        return None
    working = dg.RunsFilter(job_name=recovery_job_name(job), statuses=UNFINISHED)
    if instance.get_runs_count(working) > 0:
        return None
    records = instance.get_run_records(dg.RunsFilter(tags={SEQUENCE_TAG: str(first)}), limit=TRIES_READ_MAX)
    number = decide_try([find_ended_at(record) for record in records], now)
    if number is None:
        return None
    return dg.RunRequest(
        run_key=f"{first}:{number}",
        tags={RECOVERY_TAG: "true", SEQUENCE_TAG: str(first), "gobblin/recovery_try": str(number)},
    )


def _find_due(stores: Stores, job: JobName) -> SequenceId | None:
    """The first sequence that needs a recovery run."""
    for sequence in stores.commits.list_recoverable(jobs=[job], limit=1):
        return sequence.sequence_id
    return None
