"""The parts that a run of an ingestion job needs, from the environment. Dagster's assets take them from resources.

from gobblin_assets import run_stream
report = run_stream("topics.yaml", threading.Event().wait)
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from gobblin_assets.errors import RejectedError
from gobblin_assets.events.outbox import open_events
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.ingest.arrow_worker import ArrowWorker
from gobblin_assets.jobs.ingest.engine_port import Connection, Engine
from gobblin_assets.jobs.ingest.ingest_kind import IngestKind
from gobblin_assets.jobs.ingest.spark_engine import SparkEngine
from gobblin_assets.jobs.programs import OpenFiles
from gobblin_assets.jobs.rows_places import open_job_destination
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.destination import DestinationRequest
from gobblin_assets.run.log import open_log
from gobblin_assets.run.own_process import look_for_garbage_seldom
from gobblin_assets.run.progress import unheard
from gobblin_assets.run.run_values import DatasetReport, RunPorts, RunReport, RunRequest
from gobblin_assets.run.runner import stream_request
from gobblin_assets.run.stores import Stores
from gobblin_assets.run.streaming import WaitForStop
from gobblin_assets.sources.discovery import discovery_of
from gobblin_assets.sources.environment import read_connection
from gobblin_assets.sources.source_port import Source
from gobblin_assets.spec.job_files import read_job_file
from gobblin_assets.spec.job_parsing import parse_job, resolve_datasets
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.selection import select_open_partitions
from gobblin_assets.spec.source_kind import kind_of, require_connection
from gobblin_assets.spec.source_spec import LogSourceSpec

Job = JobSpec | Mapping[str, object] | str | Path
"""A job, its options, or the path of its file."""

_Say = Callable[[str], None]


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


def run_stream(
    job: Job,
    wait_for_stop: WaitForStop,
    *,
    datasets: Sequence[str] = (),
    spark: SparkEngine | None = None,
    say: _Say = unheard,
    on_publication: Callable[[DatasetReport], None] = unheard,
) -> RunReport:
    """Publish new records of the job's logs, at the job's pace, until ``wait_for_stop`` returns true.

    ``wait_for_stop(seconds)`` waits at most so long and returns whether to stop, as ``threading.Event().wait`` does.
    The rest is as in ``run_job``; a job that copies files is refused.
    """
    spec = plan_stream_job(read_job(job))
    specs = read_job_datasets(spec)
    selection = select_open_partitions(spec, specs, urns=datasets)
    engine = spark or SparkEngine(say=say)
    with open_log(say) as log, open_run(spec, specs, engine, log.stores, say, on_publication) as ports:
        return stream_request(RunRequest(spec, selection, mode=Mode.APPEND, by_hand=False), ports, wait_for_stop)


def read_job(job: Job) -> JobSpec:
    """RejectedError names the file, or the field in it."""
    return read_job_file(job) if isinstance(job, str | Path) else parse_job(job)


def read_job_datasets(job: JobSpec) -> Mapping[DatasetUrn, DatasetSpec]:
    """Every dataset of the job. Patterns choose from the names that `gobblin-assets discover` found."""
    return resolve_datasets(job, find_discovered(job))


def find_discovered(job: JobSpec) -> Sequence[str] | None:
    """The discovered names that the job's patterns choose; None without patterns or discovery."""
    found = discovery_of(job)
    return None if found is None else found.selected(job.source)


def open_source(job: JobSpec) -> Source:
    """The job's source, from the environment variables of its connection. It does not connect yet."""
    return read_connection(job.source, os.environ).open_source(job)


@contextmanager
def open_run(
    job: JobSpec,
    datasets: Mapping[DatasetUrn, DatasetSpec],
    engine: Engine,
    stores: Stores,
    say: _Say,
    on_publication: Callable[[DatasetReport], None],
    *,
    open_files: OpenFiles = open_file_system,
    connection: Connection | None = None,
) -> Iterator[RunPorts]:
    """The ports of a run of ``job``. ``connection`` None: that of the environment."""
    fs, root = open_files(job.destination, umask=job.umask)
    clock = SystemClock()
    ports = RunPorts(
        stores=stores,
        destination=open_job_destination(
            job,
            datasets,
            DestinationRequest(JobName(job.job), job.destination, fs, root, stores, open_files, clock.new_id),
        ),
        open_file_system=open_files,
        kind=IngestKind(
            datasets,
            open_source(job) if connection is None else connection.open_source(job),
            lambda: engine.get_session(job),
            lambda: engine.open_extractor(job, stores),
            lambda: engine.open_rewriter(job, datasets),
            lambda: ArrowWorker(fs),
            engine.count_slots,
        ),
        interrupt=engine.interrupt,
        clock=clock,
        say=say,
        on_publication=on_publication,
        events=open_events(job, stores, clock, say),
    )
    with look_for_garbage_seldom():
        yield ports
