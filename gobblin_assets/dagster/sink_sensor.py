"""The sensor of a sink: it reports what the workers publish, and keeps as many of them alive as the job asks for.

Workers of all kinds count: processes of the command line, wherever they run, and runs of Dagster's. A run that ended
because its time was over is followed by another one at the next tick. Runs that died are spaced, as those of a
recovery: twice as long each time, until one has worked for a while.
"""

import datetime as dt
from collections.abc import Collection, Sequence
from typing import Final, cast

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from gobblin_assets.dagster.dead_runs import LAPSED_PER_TICK_MAX
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.ports import STORES_KEY, connection_key
from gobblin_assets.dagster.run_config import SINK_TAG
from gobblin_assets.dagster.sensor_ticks import (
    INTERVAL_S,
    TRIES_READ_MAX,
    UNFINISHED,
    decide_try,
    find_ended_at,
    in_one_line,
)
from gobblin_assets.dagster.sink_sight import SinkSight, look_at_sink
from gobblin_assets.dagster.sink_telling import tell_of_sink
from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.model.urn import JobName
from gobblin_assets.model.wording import count_of
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.state.sinks import SinkWorkerRow

ROUND_TAG: Final = "gobblin/sink_round"
"""Runs that one tick asked for."""

STEADY_S: Final = 600.0
"""A run that worked for so long before it died is no reason to wait."""

_RUNS_READ_MAX: Final = 1_000


def build_sink_sensor(layout: JobLayout, jobs: Sequence[UnresolvedAssetJobDefinition]) -> dg.SensorDefinition:
    """The sensor of a job that has a sink; it runs unless a person stops it. ``jobs``: the layout's.

    RejectedError if runs are asked for, and the datasets have partitions of several kinds: a worker has all of them.
    """
    job = cast("JobSpec", layout.job)
    if job.sink.workers and len(jobs) > 1:
        raise RejectedError(
            f"a worker has all datasets of {job.job}, and a Dagster run has datasets of one kind of partitions only",
            field="sink.workers",
            hint="Give all datasets the same partitions, or divide the job; or use `gobblin-assets sink run`.",
        )

    @dg.sensor(
        name=f"{job.job}_sink_sensor",
        jobs=list(jobs),
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={STORES_KEY, *([connection_key(job.source)] if layout.is_one_stream else [])},
        description=f"Reports what the workers of the sink {job.job} publish, and starts those that are missing.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        stores: Stores = getattr(context.resources, STORES_KEY)
        now = dt.datetime.now(dt.UTC)
        cursor = context.cursor
        try:
            asked = getattr(context.resources, connection_key(job.source)) if layout.is_one_stream else None
            sight = look_at_sink(layout, stores, asked)
            dead = {
                each.dagster_run_id for each in stores.runs.list_lapsed(JobName(job.job), limit=LAPSED_PER_TICK_MAX)
            }
            requests = _ask_for_workers(context.instance, layout, jobs, sight.workers, dead, now)
        except GobblinError as error:
            return dg.SensorResult(skip_reason=in_one_line(error))
        try:
            count, cursor = tell_of_sink(layout, stores, context.instance, sight, cursor, now)
            said = _describe_tick(sight, count, job.sink.workers)
        except GobblinError as error:
            # Workers do not wait for reports.
            said = in_one_line(error)
            context.log.warning(said)
        if requests:
            return dg.SensorResult(run_requests=requests, cursor=cursor)
        return dg.SensorResult(skip_reason=said, cursor=cursor)

    return look


def _describe_tick(sight: SinkSight, reported: int, wanted: int) -> str:
    kept = f", of {wanted} that are kept" if wanted else ""
    alive = "1 worker is" if len(sight.workers) == 1 else f"{len(sight.workers)} workers are"
    said = f"{alive} alive{kept}; {count_of(reported, 'partition was', 'partitions were')} reported."
    return said if sight.unanswered is None else f"{said} The source did not answer: {in_one_line(sight.unanswered)}"


def _ask_for_workers(
    instance: dg.DagsterInstance,
    layout: JobLayout,
    jobs: Sequence[UnresolvedAssetJobDefinition],
    workers: Sequence[SinkWorkerRow],
    dead: Collection[str],
    now: dt.datetime,
) -> list[dg.RunRequest]:
    """Runs in place of the workers that are missing; none while those that died last are to be waited for.

    ``dead``: Dagster runs that the log takes for dead, and that Dagster may still take for alive.
    """
    job = cast("JobSpec", layout.job)
    if not job.sink.workers:
        return []
    tag = {SINK_TAG: job.job}
    runs = instance.get_runs(dg.RunsFilter(tags=tag, statuses=UNFINISHED), limit=_RUNS_READ_MAX)
    ours = {run.run_id for run in runs}
    missing = job.sink.workers - len(ours.difference(dead)) - _count_others(instance, workers, ours)
    if missing <= 0:
        return []
    records = instance.get_run_records(dg.RunsFilter(tags=tag), limit=TRIES_READ_MAX)
    if decide_try(list_dead_rounds(records), now) is None:
        return []
    number = f"{now.timestamp():.3f}"
    return [
        dg.RunRequest(
            run_key=f"{job.job}:sink:{number}:{place}",
            job_name=jobs[0].name,
            asset_selection=[spec.key for spec in layout.specs.values()],
            # Those of the assets would wait for the end of the run, and no worker evaluates them.
            asset_check_keys=[],
            run_config={"ops": {job.job: {"config": {"sink_s": job.sink.worker_s}}}},
            tags={**tag, ROUND_TAG: number},
        )
        for place in range(missing)
    ]


def _count_others(instance: dg.DagsterInstance, workers: Sequence[SinkWorkerRow], ours: set[str]) -> int:
    """The live workers beside these runs. A worker whose run has ended does not count: it ends too, or is dead."""
    others = 0
    for worker in workers:
        if worker.dagster_run_id in ours:
            continue
        run = None if worker.dagster_run_id is None else instance.get_run_by_id(worker.dagster_run_id)
        others += run is None or not run.is_finished
    return others


def list_dead_rounds(records: Sequence[dg.RunRecord]) -> list[dt.datetime]:
    """When the runs of each round died, of rounds in which none has worked since. ``records``: the newest first.

    Runs that a person ended, and those that have not ended, say nothing.
    """
    ended: dict[str, dt.datetime] = {}
    for record in records:
        run = record.dagster_run
        if run.status in (*UNFINISHED, dg.DagsterRunStatus.CANCELED):
            continue
        end = find_ended_at(record)
        lived_s = 0.0 if record.start_time is None else end.timestamp() - record.start_time
        if run.status is dg.DagsterRunStatus.SUCCESS or lived_s >= STEADY_S:
            break
        number = run.tags.get(ROUND_TAG, run.run_id)
        ended[number] = max(end, ended.get(number, end))
    return list(ended.values())
