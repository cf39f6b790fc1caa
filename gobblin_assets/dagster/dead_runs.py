"""Reports runs in Dagster whose processes died: the log shows it by leases that ran out, and Dagster does not know."""

import datetime as dt
import json
from typing import Final

import dagster as dg
from pydantic import TypeAdapter, ValidationError

from gobblin_assets.dagster.instances import find_last_heard_s, telling
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.run_config import find_sink_s, find_stream_s
from gobblin_assets.model.state import WorkingState
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.datasets import LapsedRun
from gobblin_assets.state.leases import RAN_OUT

LAPSED_PER_TICK_MAX: Final = 50

_NAMED_STATES: Final = frozenset({
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
    # Of the command line.
    dg.DagsterRunStatus.MANAGED,
})  # fmt: skip
_FIRST_SEEN: Final = TypeAdapter(dict[str, float])


def report_dead_runs(
    instance: dg.DagsterInstance,
    stores: Stores,
    job: JobName,
    cursor: str | None,
    now: dt.datetime,
    *,
    idle_s_max: float,
) -> str:
    """Report runs as failed whose process died. Returns the cursor: by run, since when it holds no lease.

    A run that let a lease run out is dead at once. A run without any lease may be waiting for its turn, which it says
    every now and then: it counts as dead after it had no lease, and Dagster heard nothing of it, for ``idle_s_max``. A
    stream takes a lost lease again, and may wait for
    others as long as it runs. A worker of a sink takes others, too, and it says that it lives, also without a lease:
    the log lists it only when it has not said so for as long as leases last.
    """
    seen = _read_cursor(cursor)
    idle: dict[str, float] = {}
    for run in stores.runs.list_lapsed(job, limit=LAPSED_PER_TICK_MAX):
        dagster_run = instance.get_run_by_id(run.dagster_run_id)
        stream_s = None if dagster_run is None else find_stream_s(dagster_run.run_config, job)
        since_s = seen.get(str(run.run_id), now.timestamp())
        patience_s = idle_s_max if stream_s is None or run.lease_ran_out else idle_s_max + stream_s
        takes_again = dagster_run is not None and _takes_leases_again(dagster_run, job)
        if now.timestamp() - since_s > patience_s:
            record = instance.get_run_record_by_id(run.dagster_run_id)
            since_s = since_s if record is None else max(since_s, find_last_heard_s(instance, record))
        if (run.lease_ran_out and not takes_again) or now.timestamp() - since_s > patience_s:
            _report_dead(instance, stores, run, dagster_run)
        else:
            idle[str(run.run_id)] = since_s
    return json.dumps(idle, sort_keys=True)


def report_ended_runs(layout: JobLayout, instance: dg.DagsterInstance, stores: Stores) -> None:
    """Report the runs of this instance whose leases ran out as failed, for deployments without a running sensor.

    Streams and workers of sinks may take a lost lease again: they are left to the sensor, which waits longer.
    RetryableError if Dagster does not take the report.
    """
    job = JobName(layout.job.job)
    ended = [run for run in stores.runs.list_lapsed(job, limit=LAPSED_PER_TICK_MAX) if run.lease_ran_out]
    if not ended:
        return
    with telling(dg.AssetKey(job)):
        for run in ended:
            dagster_run = instance.get_run_by_id(run.dagster_run_id)
            if dagster_run is not None and not _takes_leases_again(dagster_run, job):
                _report_dead(instance, stores, run, dagster_run)


def _takes_leases_again(run: dg.DagsterRun, job: JobName) -> bool:
    return any(find(run.run_config, job) is not None for find in (find_stream_s, find_sink_s))


def _report_dead(instance: dg.DagsterInstance, stores: Stores, lapsed: LapsedRun, run: dg.DagsterRun | None) -> None:
    if run is not None and run.status in _NAMED_STATES:
        instance.report_run_failed(
            run, f"The process of this run ({lapsed.owner}) died: its lease ran out. What it had sealed is recovered."
        )
    stores.runs.end(lapsed.run_id, WorkingState.FAILED, error=RAN_OUT, figures={})


def _read_cursor(cursor: str | None) -> dict[str, float]:
    try:
        return _FIRST_SEEN.validate_json(cursor) if cursor else {}
    except ValidationError:
        # Somebody typed it into the UI; it only delays what it would have said.
        return {}
