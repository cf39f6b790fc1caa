"""A job as a stream runs it."""

from gobblin_assets.errors import RejectedError
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.source_kind import kind_of, require_connection
from gobblin_assets.spec.source_spec import LogSourceSpec


def plan_stream_job(job: JobSpec) -> JobSpec:
    """The job as a stream runs it: no batch is larger than ``stream.records_max``. RejectedError without a log."""
    source = job.source
    require_connection(kind_of(source))
    if not isinstance(source, LogSourceSpec):
        raise RejectedError(
            f"a stream follows a log, and {job.job} reads tables",
            field="source.type",
            hint="Have a schedule or a sensor run it instead.",
        )
    if source.is_one_stream:
        raise RejectedError(
            f"a stream is a sequence of runs, and the change log of {job.job} is followed by workers of a sink",
            field="source.type",
            hint="Run gobblin-assets sink run JOB_FILE; in Dagster, write sink: {workers: 1}, or leave stream_s out.",
        )
    records_max = min(job.stream.records_max, source.records_per_run_max or job.stream.records_max)
    return job.model_copy(update={"source": source.model_copy(update={"records_per_run_max": records_max})})
