"""The job that writes base generations of change logs, and the schedule that the job file asks for.

It is a plain op, as a recovery is: no row of an asset is new. Workers of the sink go on meanwhile.
"""

from contextlib import closing
from typing import cast

import dagster as dg

from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.outcomes import RETRY_TRIES_MAX, decide_error
from gobblin_assets.dagster.ports import FILE_SYSTEMS_KEY, SPARK_KEY, STORES_KEY, FileSystems
from gobblin_assets.dagster.progress import ProgressLog
from gobblin_assets.dagster.recovery import open_recovery_operations
from gobblin_assets.errors import GobblinError
from gobblin_assets.jobs.ingest.engine_port import Engine
from gobblin_assets.jobs.sink.base_writing import open_base_writing
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.maintenance_run import MaintenanceRun
from gobblin_assets.run.runner import owner_text
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.state.leases import Holder


def bases_job_name(job: str) -> str:
    return f"{job}_bases"


def build_bases_job(layout: JobLayout) -> dg.JobDefinition:
    """``sink compact`` as a run of Dagster's, in one process."""
    name = bases_job_name(layout.job.job)

    @dg.op(
        name=f"{name}_op",
        required_resource_keys={STORES_KEY, FILE_SYSTEMS_KEY, SPARK_KEY},
        description="Writes the current rows of change logs with many changes behind their last base.",
    )
    def write_bases(context: dg.OpExecutionContext) -> None:
        _write_bases(context, layout)

    @dg.job(
        name=name,
        executor_def=dg.in_process_executor,
        description=f"Bases of the change logs of {layout.job.job}, from which read_current goes on.",
    )
    def bases_job() -> None:
        write_bases()

    return bases_job


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


def _write_bases(context: dg.OpExecutionContext, layout: JobLayout) -> None:
    """Raises Failure for logs whose base could not be written, after those of all others were."""
    stores: Stores = getattr(context.resources, STORES_KEY)
    file_systems: FileSystems = getattr(context.resources, FILE_SYSTEMS_KEY)
    engine: Engine = getattr(context.resources, SPARK_KEY)
    job = cast("JobSpec", layout.job)
    specs = {urn: cast("DatasetSpec", spec) for urn, spec in sorted(layout.datasets.items())}
    holder = Holder(owner_text(), RunId(SystemClock().new_id()), context.run_id)
    progress = ProgressLog(context.log.info)
    with closing(progress):
        try:
            writing = open_base_writing(job, specs, stores, engine, progress, file_systems.open)
            operations = open_recovery_operations(context, layout, holder, progress)
            _done, failures = writing.carry_out(MaintenanceRun(operations, stores, JobName(job.job)), list(specs))
        except GobblinError as error:
            raise decide_error(error, retry_number=RETRY_TRIES_MAX) from error
    if failures:
        lines = "\n".join(f"- {urn}: {error}" for urn, error in failures.items())
        raise dg.Failure(f"{len(failures)} bases could not be written:\n{lines}", allow_retries=False)
