"""Workers of a sink, from the environment, as the command line runs them: one, or a group of processes."""

import datetime as dt
import gc
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.events.outbox import open_events
from gobblin_assets.jobs.programs import FROM_ENVIRONMENT, RunResources
from gobblin_assets.jobs.rows_places import open_job_destination, rows_place_of
from gobblin_assets.jobs.sink.alike_workers import await_alike, digest_configuration
from gobblin_assets.jobs.sink.dataset_sink import DatasetSink
from gobblin_assets.jobs.sink.event_directories import EventDirectories, find_need_of_times
from gobblin_assets.jobs.sink.lane_files import LaneFormat
from gobblin_assets.jobs.sink.sink_ports import SinkPorts, SinkSpark
from gobblin_assets.jobs.sink.sink_rules import (
    RollPolicy,
    check_sink_dataset,
    check_sink_job,
    check_spark_dataset,
    choose_compression,
    find_need_of_spark,
    is_one_stream,
)
from gobblin_assets.jobs.sink.sink_worker import SinkWorker
from gobblin_assets.model.clock import Clock, SystemClock
from gobblin_assets.model.files import FileFormat
from gobblin_assets.model.state import DatasetId, RunId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.rows.arrow_types import arrow_schema
from gobblin_assets.run.destination import DestinationRequest
from gobblin_assets.run.log import open_log
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.connection import OpensEpochs
from gobblin_assets.sources.discovery import discovery_of
from gobblin_assets.sources.environment import read_connection
from gobblin_assets.spec.job_parsing import find_datasets, resolve_datasets
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec

_Opened = Callable[[DatasetId], DatasetSink]
"""A dataset of a sink, checked; it lacks the id that the log gives it."""

_LOOK_S: Final = 0.5
_BACK_OFF_S: Final = 1.0
_BACK_OFF_S_MAX: Final = 60.0
REFUSED: Final = 2
"""The exit code of a worker whose job was refused: another try would be refused as well."""


def read_sink_datasets(job: JobSpec, urns: Sequence[str] = ()) -> Mapping[DatasetUrn, DatasetSpec]:
    """The datasets of a sink, checked. RejectedError names the field and the fix."""
    check_sink_job(job)
    found = discovery_of(job)
    specs = resolve_datasets(job, None if found is None else found.selected(job.source))
    if urns and is_one_stream(job):
        raise RejectedError("the tables of a change log are followed together", field="--dataset", hint="Leave it out.")
    chosen = find_datasets(job.job, specs, urns) if urns else list(specs)
    for urn in chosen:
        check_sink_dataset(urn, specs[urn])
    rows_place_of(job, {urn: specs[urn] for urn in chosen})
    return {urn: specs[urn] for urn in chosen}


def find_spark_needs(
    job: JobSpec, specs: Mapping[DatasetUrn, DatasetSpec], resources: RunResources = FROM_ENVIRONMENT
) -> Mapping[DatasetUrn, str]:
    """Why Spark makes the rows of these datasets, as a clause; the others' are made by Arrow. Nothing is connected to.

    RejectedError names an option that they can't have.
    """
    connection = open_log_connection(job, resources)
    found = {}
    for urn, spec in specs.items():
        need = find_need_of_spark(spec, connection.open_spans(job, urn, spec).spark_need)
        if need is None and spec.writer.event_time is not None:
            columns = arrow_schema(connection.open_epochs(job, urn, spec).decoder.columns)
            need = find_need_of_times(spec.writer.event_time, columns)
        if need is not None:
            check_spark_dataset(job, urn, need)
            found[urn] = need
    return found


def run_worker(
    job: JobSpec,
    wait: Callable[[float], bool],
    *,
    datasets: Sequence[str] = (),
    spark: SinkSpark,
    say: Callable[[str], None],
) -> None:
    """Work as one of the sink's workers until ``wait(seconds)`` returns true, as ``threading.Event().wait`` does.

    ``spark`` is used only if a dataset needs it.
    """
    specs = read_sink_datasets(job, datasets)
    with open_log(say) as log:
        work_beside_others(job, specs, log.stores, wait, say, spark)


def work_beside_others(
    job: JobSpec,
    specs: Mapping[DatasetUrn, DatasetSpec],
    stores: Stores,
    wait: Callable[[float], bool],
    say: Callable[[str], None],
    spark: SinkSpark,
    *,
    resources: RunResources = FROM_ENVIRONMENT,
    dagster_run_id: str | None = None,
    run_id: RunId | None = None,
) -> None:
    """Be a worker of these datasets, once no worker of another configuration lives. Arguments as of ``open_worker``."""
    if await_alike(job, specs, stores, wait, say):
        with open_worker(
            *(job, specs, stores, wait, say, spark), resources=resources, dagster_run_id=dagster_run_id, run_id=run_id
        ) as worker:
            # Records by the thousand make full collections, and each would look at all that was imported: with it,
            # a quarter of the processor time of a worker that reads bytes.
            gc.collect()
            gc.freeze()
            worker.run()


@contextmanager
def open_worker(
    job: JobSpec,
    specs: Mapping[DatasetUrn, DatasetSpec],
    stores: Stores,
    wait: Callable[[float], bool],
    say: Callable[[str], None],
    spark: SinkSpark,
    *,
    resources: RunResources = FROM_ENVIRONMENT,
    dagster_run_id: str | None = None,
    run_id: RunId | None = None,
) -> Iterator[SinkWorker]:
    """A worker over the job's destination, which is bound. ``dagster_run_id``: of the Dagster run that it is.

    ``run_id`` as of ``RunRequest``.
    """
    open_file_system = resources.open_file_system
    fs, root = open_file_system(job.destination, umask=job.umask)
    clock = SystemClock()
    ports = SinkPorts(
        job=job,
        stores=stores,
        destination=open_job_destination(
            job,
            specs,
            DestinationRequest(JobName(job.job), job.destination, fs, root, stores, open_file_system, clock.new_id),
        ),
        open_file_system=open_file_system,
        fs=fs,
        interrupt=spark.interrupt,
        clock=clock,
        say=say,
        wait=wait,
        configuration=digest_configuration(job, specs),
        events=open_events(job, stores, clock, say),
        spark=spark,
        dagster_run_id=dagster_run_id,
        run_id=run_id,
    )
    connection = open_log_connection(job, resources)
    needs = find_spark_needs(job, specs, resources)
    for urn, need in needs.items():
        say(f"{urn}: rows by Spark, since {need}")
    policy = check_sink_job(job)
    sinks = {
        urn: _open_by_spark(connection, job, urn, spec, policy)
        if urn in needs
        else _open_by_arrow(connection, job, urn, spec, policy, clock.now)
        for urn, spec in specs.items()
    }
    ports.destination.bind()
    ids = stores.datasets.register(JobName(job.job), sorted(specs))
    if not is_one_stream(job):
        make_first_lanes(job, stores, list(ids.values()))
    ports.events.begin(ids.values())
    yield SinkWorker(ports, {ids[urn]: opened(ids[urn]) for urn, opened in sinks.items()})


def _open_by_spark(
    connection: OpensEpochs, job: JobSpec, urn: DatasetUrn, spec: DatasetSpec, policy: RollPolicy
) -> _Opened:
    source, spans = connection.open_epochs(job, urn, spec), connection.open_spans(job, urn, spec)
    return lambda dataset_id: DatasetSink(
        urn=urn, dataset_id=dataset_id, spec=spec, source=source, policy=policy, spans=spans
    )


def _open_by_arrow(
    connection: OpensEpochs,
    job: JobSpec,
    urn: DatasetUrn,
    spec: DatasetSpec,
    policy: RollPolicy,
    now: Callable[[], dt.datetime],
) -> _Opened:
    source = connection.open_epochs(job, urn, spec)
    columns = {
        Role.DATA: arrow_schema(source.decoder.columns),
        Role.DEAD_LETTER: arrow_schema(source.decoder.dead_letter_columns),
    }
    event_time = spec.writer.event_time
    places = None if event_time is None else EventDirectories(event_time, columns, dataset=urn, now=now)
    lane_format = LaneFormat(
        columns=columns,
        file_format=FileFormat(job.sink.format),
        compression=choose_compression(job, spec),
        # A copy is one epoch, however large the table is.
        file_bytes_max=spec.writer.file_bytes_max if source.decoder.may_change else None,
    )
    return lambda dataset_id: DatasetSink(
        urn=urn,
        dataset_id=dataset_id,
        spec=spec,
        source=source,
        policy=policy,
        lane_format=lane_format,
        place_rows=places,
    )


def open_log_connection(job: JobSpec, resources: RunResources = FROM_ENVIRONMENT) -> OpensEpochs:
    """The connection of a sink's log. RejectedError for a source that is no log."""
    connection = resources.connection or read_connection(job.source, os.environ)
    if not isinstance(connection, OpensEpochs):
        raise RejectedError("expected a log", field="source.type", hint="A sink follows a log.")
    return connection


def make_first_lanes(job: JobSpec, stores: Stores, dataset_ids: Sequence[DatasetId]) -> None:
    """The lanes of datasets that have only lane 0 and were never scaled: as many as the job says."""
    for dataset_id, found in stores.lanes.load(*dataset_ids).items():
        if len(found.lanes) == 1 and found.count < job.sink.lanes:
            stores.lanes.spread(dataset_id, job.sink.lanes)


@dataclass(slots=True)
class WorkerGroup:
    """A group of worker processes of one machine: those that die are started again, and all end together.

    ``start`` starts one.
    """

    start: Callable[[], "subprocess.Popen[bytes]"]
    count: int
    say: Callable[[str], None]
    clock: Clock = field(default_factory=SystemClock)

    def run(self, wait: Callable[[float], bool]) -> bool:
        """Keep so many processes alive until ``wait`` says to stop, or all have ended well; whether they ended well.

        False, and the others are stopped, if a process says that its job is refused.
        """
        processes = [self.start() for _number in range(self.count)]
        failures = 0
        back_off_until_s = 0.0
        is_refused = False
        while not wait(_LOOK_S) and not is_refused and any(process.poll() != 0 for process in processes):
            now_s = self.clock.monotonic()
            for place, process in enumerate(processes):
                code = process.poll()
                if code is None or code == 0:
                    continue
                if code == REFUSED:
                    is_refused = True
                elif now_s >= back_off_until_s:
                    failures += 1
                    back_off_until_s = now_s + min(_BACK_OFF_S_MAX, _BACK_OFF_S * 2 ** min(failures, 6))
                    self.say(f"worker {process.pid} ended with {code}; another one is started")
                    processes[place] = self.start()
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        codes = [process.wait() for process in processes]
        return not is_refused and all(code == 0 for code in codes)
