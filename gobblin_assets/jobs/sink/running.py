"""A worker of a sink, from the environment, as the command line runs it."""

import datetime as dt
import gc
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from gobblin_assets import __version__
from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.destinations.registry import DestinationRequest, open_destination
from gobblin_assets.errors import RejectedError
from gobblin_assets.events.outbox import open_events
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.sink.dataset_sink import DatasetSink
from gobblin_assets.jobs.sink.event_directories import EventDirectories
from gobblin_assets.jobs.sink.lane_files import LaneFormat
from gobblin_assets.jobs.sink.roll_policy import RollPolicy
from gobblin_assets.jobs.sink.sink_ports import SinkPorts
from gobblin_assets.jobs.sink.sink_rules import check_sink_dataset, check_sink_job, choose_compression
from gobblin_assets.jobs.sink.sink_worker import SinkWorker
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.file_formats import FileFormat
from gobblin_assets.model.state import DatasetId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.rows.arrow_types import arrow_schema
from gobblin_assets.run.log import open_log
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.connection import LogConnection
from gobblin_assets.sources.discovery import discovery_of
from gobblin_assets.sources.environment import read_connection
from gobblin_assets.sources.epoch_source import EpochSource
from gobblin_assets.spec.job_parsing import find_datasets, resolve_datasets
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec


def read_sink_datasets(job: JobSpec, urns: Sequence[str] = ()) -> Mapping[DatasetUrn, DatasetSpec]:
    """The datasets of a sink, checked. RejectedError names the field and the fix."""
    check_sink_job(job)
    found = discovery_of(job)
    specs = resolve_datasets(job, None if found is None else found.selected(job.source))
    chosen = find_datasets(job.job, specs, urns) if urns else list(specs)
    for urn in chosen:
        check_sink_dataset(urn, specs[urn])
    return {urn: specs[urn] for urn in chosen}


def run_worker(
    job: JobSpec, wait: Callable[[float], bool], *, datasets: Sequence[str] = (), say: Callable[[str], None]
) -> None:
    """Work as one of the sink's workers until ``wait(seconds)`` returns true, as ``threading.Event().wait`` does."""
    specs = read_sink_datasets(job, datasets)
    with open_log(say) as log, open_worker(job, specs, log.stores, wait, say) as worker:
        # Records by the thousand make full collections, and each would look at all that was imported: with it, a
        # quarter of the processor time of a worker that reads bytes.
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
) -> Iterator[SinkWorker]:
    """A worker over the job's destination and the connection of the environment. The destination is bound."""
    fs, root = open_file_system(job.destination, umask=job.umask)
    clock = SystemClock()
    ports = SinkPorts(
        job=job,
        stores=stores,
        destination=open_destination(
            DestinationRequest(JobName(job.job), job.destination, fs, root, stores, open_file_system, clock.new_id)
        ),
        open_file_system=open_file_system,
        fs=fs,
        interrupt=_interrupt,
        clock=clock,
        say=say,
        wait=wait,
        configuration=digest_configuration(job, specs),
        events=open_events(job, stores, clock, say),
    )
    connection = read_connection(job.source, os.environ)
    if not isinstance(connection, LogConnection):
        raise RejectedError("expected a log", field="source.type", hint="A sink follows a log.")
    sources = {urn: connection.open_epochs(job, urn, spec) for urn, spec in specs.items()}
    ports.destination.bind()
    ids = stores.datasets.register(JobName(job.job), sorted(specs))
    make_first_lanes(job, stores, list(ids.values()))
    ports.events.begin(ids.values())
    policy = check_sink_job(job)
    sinks = {
        ids[urn]: _open_sink(job, urn, ids[urn], spec, sources[urn], policy, clock.now) for urn, spec in specs.items()
    }
    yield SinkWorker(ports, sinks)


def _open_sink(
    job: JobSpec,
    urn: DatasetUrn,
    dataset_id: DatasetId,
    spec: DatasetSpec,
    source: EpochSource,
    policy: RollPolicy,
    now: Callable[[], dt.datetime],
) -> DatasetSink:
    columns = {
        Role.DATA: arrow_schema(source.decoder.columns),
        Role.DEAD_LETTER: arrow_schema(source.decoder.dead_letter_columns),
    }
    event_time = spec.writer.event_time
    return DatasetSink(
        urn=urn,
        dataset_id=dataset_id,
        spec=spec,
        source=source,
        policy=policy,
        lane_format=LaneFormat(
            columns=columns, file_format=FileFormat(job.sink.format), compression=choose_compression(job, spec)
        ),
        place_rows=None if event_time is None else EventDirectories(event_time, columns, dataset=urn, now=now),
    )


def make_first_lanes(job: JobSpec, stores: Stores, dataset_ids: Sequence[DatasetId]) -> None:
    """The lanes of datasets that have only lane 0 and were never scaled: as many as the job says."""
    for dataset_id, found in stores.lanes.load(*dataset_ids).items():
        if len(found.lanes) == 1 and found.count < job.sink.lanes:
            stores.lanes.spread(dataset_id, job.sink.lanes)


def digest_configuration(job: JobSpec, specs: Mapping[DatasetUrn, DatasetSpec]) -> str:
    """Of what a worker does to records. How many lanes there are at first is no part of it."""
    said = {
        "release": __version__,
        "source": job.source.model_dump(mode="json"),
        "destination": job.destination,
        "sink": job.sink.model_dump(mode="json", exclude={"lanes"}),
        "datasets": {urn: spec.model_dump(mode="json") for urn, spec in sorted(specs.items())},
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _interrupt(attempt: AttemptRecord) -> None:
    """A worker's writes end with its process; an attempt of Spark's on a server is left to its own next run."""
    del attempt
