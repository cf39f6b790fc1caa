"""The maintenance of a job as jobs of Dagster's: recovery, the resuming of BLOCKED publications, bases of change logs.

Each is a plain op in one process, and no materialization: it reads no source, and a failed run must not mark a
partition as failed that the next run may finish.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Final, cast

import dagster as dg

from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.commit.recovery import SweepBounds
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.materialization import EventLog
from gobblin_assets.dagster.outcomes import RETRY_TRIES_MAX, decide_error
from gobblin_assets.dagster.ports import FILE_SYSTEMS_KEY, SPARK_KEY, STORES_KEY, FileSystems
from gobblin_assets.dagster.progress import ProgressLog
from gobblin_assets.dagster.published_checks import list_blocked
from gobblin_assets.errors import GobblinError
from gobblin_assets.jobs.ingest.engine_port import Engine
from gobblin_assets.jobs.sink.base_writing import open_base_writing
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.maintenance_run import MaintenanceRun, Send
from gobblin_assets.run.runner import owner_text
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.state.leases import Holder

BOUNDS: Final = SweepBounds(sequences_max=10_000, work_s_max=600.0)
"""A recovery run ends at most this many sequences, in ten minutes; the sensor asks again for the rest. So its event log
stays readable, and a run that hangs is noticed.
"""

NOT_FINISHED: Final = "publications could not be finished"


def recovery_job_name(job: str) -> str:
    return f"{job}_recovery"


def resume_job_name(job: str) -> str:
    return f"{job}_resume"


def bases_job_name(job: str) -> str:
    return f"{job}_bases"


def build_recovery_job(layout: JobLayout) -> dg.JobDefinition:
    """One op in one process, without Spark: it starts in seconds."""
    return _build_job(
        recovery_job_name(layout.job.job),
        partial(recover, layout=layout),
        "Finishes open publications, and announces finished ones that were not announced.",
        f"Recovery of {layout.job.job}.",
    )


class ResumeConfig(dg.Config):
    """Run configuration of the resume job. ``sequence_id``: that publication only; default: all that are BLOCKED."""

    sequence_id: str | None = None


def build_resume_job(layout: JobLayout) -> dg.JobDefinition:
    """The job that a person launches after the cause of a BLOCKED publication is corrected. It runs without Spark."""
    name = resume_job_name(layout.job.job)

    @dg.op(
        name=f"{name}_op",
        required_resource_keys={STORES_KEY, FILE_SYSTEMS_KEY, SPARK_KEY},
        description="Tries BLOCKED publications again; their tries are counted from zero.",
    )
    def resume_blocked(context: dg.OpExecutionContext, config: ResumeConfig) -> None:
        resume(context, layout, config)

    @dg.job(
        name=name,
        executor_def=dg.in_process_executor,
        description=f"Try the BLOCKED publications of {layout.job.job} again: all, or `sequence_id`.",
    )
    def resume_job() -> None:
        resume_blocked()

    return resume_job


def build_bases_job(layout: JobLayout) -> dg.JobDefinition:
    """``sink compact`` as a run of Dagster's, in one process."""
    return _build_job(
        bases_job_name(layout.job.job),
        partial(write_bases, layout=layout),
        "Writes the current rows of change logs with many changes behind their last base.",
        f"Bases of the change logs of {layout.job.job}, from which read_current goes on.",
    )


def _build_job(name: str, work: Callable[[dg.OpExecutionContext], None], of_op: str, of_job: str) -> dg.JobDefinition:
    """A job without configuration. ``of_op``, ``of_job``: what people read of both."""

    @dg.op(name=f"{name}_op", required_resource_keys={STORES_KEY, FILE_SYSTEMS_KEY, SPARK_KEY}, description=of_op)
    def carry_out(context: dg.OpExecutionContext) -> None:
        work(context)

    @dg.job(name=name, executor_def=dg.in_process_executor, description=of_job)
    def maintenance_job() -> None:
        carry_out()

    return maintenance_job


def build_bases_schedule(layout: JobLayout, job: dg.JobDefinition) -> list[dg.ScheduleDefinition]:
    """The schedule of the job file, running unless it is stopped; none if it asks for none."""
    bases = cast("JobSpec", layout.job).sink.bases
    if bases is None or bases.cron is None:
        return []
    return [
        dg.ScheduleDefinition(
            name=f"{job.name}_schedule",
            job=job,
            cron_schedule=bases.cron,
            default_status=dg.DefaultScheduleStatus.RUNNING,
        )
    ]


def recover(context: dg.OpExecutionContext, layout: JobLayout) -> None:
    """Recover the job's datasets. Raises Failure for the rest, after all others were finished and logged."""
    with closing(ProgressLog(context.log.info)) as progress:
        try:
            failures = sweep(context, layout, progress, BOUNDS)
        except GobblinError as error:
            # Not retried in this run: the sensor asks again, and the log says when.
            raise decide_error(error, retry_number=RETRY_TRIES_MAX) from error
    raise_failures([f"- {each}" for each in failures], NOT_FINISHED)


def sweep(context: dg.OpExecutionContext, layout: JobLayout, progress: ProgressLog, bounds: SweepBounds) -> list[str]:
    """Recover what is due of the job, and tell Dagster. Returns what could not be finished, each with its error."""
    send = EventLog.of(layout, context).log_publication
    report = _open_maintenance(context, layout, progress, send).recover(bounds)
    return [f"{each.sequence.urn}: {each.error}" for each in report.failures]


def resume(context: dg.OpExecutionContext, layout: JobLayout, config: ResumeConfig) -> None:
    """Resume BLOCKED publications. Raises Failure for the rest, after all others were finished and logged."""
    stores: Stores = getattr(context.resources, STORES_KEY)
    blocked = list_blocked(stores, layout)
    chosen = [each for each in blocked if config.sequence_id in (None, str(each.sequence_id))]
    if not chosen:
        ids = ", ".join(str(each.sequence_id) for each in blocked) or "none"
        raise dg.Failure(
            f"expected a BLOCKED publication of {layout.job.job}, found {config.sequence_id or 'none'}; BLOCKED: {ids}",
            allow_retries=False,
        )
    failures = []
    with closing(ProgressLog(context.log.info)) as progress:
        for each in chosen:
            try:
                # Each has a run of its own in the log, so that the results of one are not reported for another.
                send = EventLog.of(layout, context).log_publication
                _open_maintenance(context, layout, progress, send).resume(each.sequence_id)
            except GobblinError as error:
                failures.append(f"- {each.urn}: {error}")
    raise_failures(failures, f"of {len(chosen)} publications could not be finished")


def write_bases(context: dg.OpExecutionContext, layout: JobLayout) -> None:
    """Raises Failure for logs whose base could not be written, after those of all others were."""
    stores: Stores = getattr(context.resources, STORES_KEY)
    file_systems: FileSystems = getattr(context.resources, FILE_SYSTEMS_KEY)
    engine: Engine = getattr(context.resources, SPARK_KEY)
    job = cast("JobSpec", layout.job)
    specs = {urn: cast("DatasetSpec", spec) for urn, spec in sorted(layout.datasets.items())}
    with closing(ProgressLog(context.log.info)) as progress:
        try:
            writing = open_base_writing(job, specs, stores, engine, progress, file_systems.open)
            _done, failures = writing.carry_out(_open_maintenance(context, layout, progress, None), list(specs))
        except GobblinError as error:
            raise decide_error(error, retry_number=RETRY_TRIES_MAX) from error
    raise_failures([f"- {urn}: {error}" for urn, error in failures.items()], "bases could not be written")


def _open_maintenance(
    context: dg.OpExecutionContext, layout: JobLayout, progress: ProgressLog, send: Send | None
) -> MaintenanceRun:
    """A run of the log's own, by the resources of the Dagster run. ``send`` None: nothing of it is an asset's."""
    stores: Stores = getattr(context.resources, STORES_KEY)
    file_systems: FileSystems = getattr(context.resources, FILE_SYSTEMS_KEY)
    engine: Engine = getattr(context.resources, SPARK_KEY)
    operations = LogOperations(
        store=stores.commits,
        leases=stores.leases,
        open_file_system=file_systems.open,
        interrupt=engine.interrupt,
        clock=SystemClock(),
        holder=Holder(owner_text(), RunId(SystemClock().new_id()), context.run_id),
        say=progress,
        lease_ttl_s=layout.job.lease.ttl_s,
        tries_max=layout.job.publish_tries_max,
    )
    return MaintenanceRun(operations, stores, JobName(layout.job.job), send)


def raise_failures(lines: Sequence[str], said: str) -> None:
    """Failure without retries, if there are any."""
    if lines:
        raise dg.Failure(description=f"{len(lines)} {said}:\n" + "\n".join(lines), allow_retries=False)
