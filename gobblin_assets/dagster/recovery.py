"""The recovery job: finishes sequences that dead runs had sealed, and reports them to Dagster in its own run.

It is a plain op, not a materialization: it reads nothing, and a failed run must not mark a partition as failed
that the next run may finish.
"""

from typing import Final

import dagster as dg

from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.commit.recovery import SweepBounds, SweepReport
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.materialization import EventLog
from gobblin_assets.dagster.outcomes import RETRY_TRIES_MAX, decide_error
from gobblin_assets.dagster.ports import FILE_SYSTEMS_KEY, SPARK_KEY, STORES_KEY, FileSystems
from gobblin_assets.dagster.progress import ProgressLog
from gobblin_assets.dagster.published_checks import list_blocked
from gobblin_assets.errors import GobblinError
from gobblin_assets.jobs.ingest.engine_port import Engine
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.maintenance_run import MaintenanceRun
from gobblin_assets.run.runner import owner_text
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.leases import Holder

BOUNDS: Final = SweepBounds(sequences_max=10_000, work_s_max=600.0)
"""A recovery run ends at most this many sequences, in ten minutes; the sensor asks again for the rest. So its event log
stays readable, and a run that hangs is noticed.
"""


def recovery_job_name(job: str) -> str:
    return f"{job}_recovery"


def resume_job_name(job: str) -> str:
    return f"{job}_resume"


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


def build_recovery_job(layout: JobLayout) -> dg.JobDefinition:
    """One op in one process, without Spark: it starts in seconds."""
    name = recovery_job_name(layout.job.job)

    @dg.op(
        name=f"{name}_op",
        required_resource_keys={STORES_KEY, FILE_SYSTEMS_KEY, SPARK_KEY},
        description="Finishes open publications, and announces finished ones that were not announced.",
    )
    def recover_open_sequences(context: dg.OpExecutionContext) -> None:
        recover(context, layout)

    @dg.job(name=name, executor_def=dg.in_process_executor, description=f"Recovery of {layout.job.job}.")
    def recovery_job() -> None:
        recover_open_sequences()

    return recovery_job


def recover(context: dg.OpExecutionContext, layout: JobLayout) -> None:
    """Recover the job's datasets. Raises Failure for the rest, after all others were finished and logged."""
    stores: Stores = getattr(context.resources, STORES_KEY)
    holder = Holder(owner_text(), RunId(SystemClock().new_id()), context.run_id)
    progress = ProgressLog(context.log.info)
    operations = open_recovery_operations(context, layout, holder, progress)
    maintenance = MaintenanceRun(
        operations, stores, JobName(layout.job.job), EventLog.of(layout, context).log_publication
    )
    try:
        report = maintenance.recover(BOUNDS)
    except GobblinError as error:
        # Not retried in this run: the sensor asks again, and the log says when.
        raise decide_error(error, retry_number=RETRY_TRIES_MAX) from error
    finally:
        progress.close()
    _raise_failures(report)


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
    progress = ProgressLog(context.log.info)
    failures = []
    try:
        for each in chosen:
            # Each has a run of its own in the log, so that the results of one are not reported for another.
            holder = Holder(owner_text(), RunId(SystemClock().new_id()), context.run_id)
            operations = open_recovery_operations(context, layout, holder, progress)
            maintenance = MaintenanceRun(
                operations, stores, JobName(layout.job.job), EventLog.of(layout, context).log_publication
            )
            try:
                maintenance.resume(each.sequence_id)
            except GobblinError as error:
                failures.append(f"- {each.urn}: {error}")
    finally:
        progress.close()
    if failures:
        raise dg.Failure(
            description=f"{len(failures)} of {len(chosen)} publications could not be finished:\n" + "\n".join(failures),
            allow_retries=False,
        )


def open_recovery_operations(
    context: dg.OpExecutionContext, layout: JobLayout, holder: Holder, progress: ProgressLog
) -> LogOperations:
    """Operations on the log in the name of ``holder``, by the run's resources."""
    stores: Stores = getattr(context.resources, STORES_KEY)
    file_systems: FileSystems = getattr(context.resources, FILE_SYSTEMS_KEY)
    engine: Engine = getattr(context.resources, SPARK_KEY)
    return LogOperations(
        store=stores.commits,
        leases=stores.leases,
        open_file_system=file_systems.open,
        interrupt=engine.interrupt,
        clock=SystemClock(),
        holder=holder,
        say=progress,
        lease_ttl_s=layout.job.lease.ttl_s,
        tries_max=layout.job.publish_tries_max,
    )


def _raise_failures(report: SweepReport) -> None:
    if report.failures:
        lines = [f"- {each.sequence.urn}: {each.error}" for each in report.failures]
        raise dg.Failure(
            description=f"{len(lines)} publications could not be finished:\n" + "\n".join(lines),
            allow_retries=False,
        )
