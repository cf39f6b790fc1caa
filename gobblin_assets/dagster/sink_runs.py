"""A Dagster run that is a worker of a sink for a while.

It works like every other worker, wherever they run. It logs no materialization: a worker has only some of the lanes, so
that no window is closed when it ends. The sink sensor tells of windows.
"""

from collections.abc import Mapping
from contextlib import closing
from typing import Final, cast

import dagster as dg

from gobblin_assets.dagster.instances import aware_moment
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.partitions import find_run_range
from gobblin_assets.dagster.ports import FILE_SYSTEMS_KEY, SPARK_KEY, STORES_KEY, FileSystems, connection_key
from gobblin_assets.dagster.progress import ProgressLog
from gobblin_assets.dagster.run_config import GobblinRunConfig, require_sink
from gobblin_assets.dagster.stopping import say_nothing, wait_until_over
from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.ingest.engine_port import Engine
from gobblin_assets.jobs.programs import RunResources
from gobblin_assets.jobs.sink.alike_workers import await_alike
from gobblin_assets.jobs.sink.running import find_spark_needs, open_worker
from gobblin_assets.jobs.sink.sink_rules import check_sink_dataset, check_sink_job
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.stop_signals import StopRequest, heed_stop_signals
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec

_FIELD: Final = "sink_s"


def work_on_sink(
    context: dg.AssetExecutionContext, layout: JobLayout, config: GobblinRunConfig, stop: StopRequest
) -> None:
    """Be a worker of the selected datasets until the time is over, or the run's termination asks for the end.

    A GobblinError as for a worker of the command line; a job or dataset that is no sink's is refused by its field.
    """
    specs = _plan_sink(context, layout, config)
    stores: Stores = getattr(context.resources, STORES_KEY)
    file_systems: FileSystems = getattr(context.resources, FILE_SYSTEMS_KEY)
    job = cast("JobSpec", layout.job)
    resources = RunResources(file_systems.open, getattr(context.resources, connection_key(job.source)))
    engine: Engine = getattr(context.resources, SPARK_KEY)
    if find_spark_needs(job, specs, resources):
        # Before the signals are ours: a classic session takes SIGINT for itself when it opens.
        engine.get_session(job)
    progress = ProgressLog(context.log.info)
    wait = wait_until_over(stop, config.sink_s or 0.0)
    with closing(progress), heed_stop_signals(say_nothing, stop):
        if await_alike(job, specs, stores, wait, progress):
            with open_worker(
                *(job, specs, stores, wait, progress, engine),
                resources=resources,
                dagster_run_id=context.run.run_id,
            ) as worker:
                worker.run()


def _plan_sink(
    context: dg.AssetExecutionContext, layout: JobLayout, config: GobblinRunConfig
) -> Mapping[DatasetUrn, DatasetSpec]:
    """The datasets of the run, checked. A run need not name a partition: workers publish into the open window."""
    if layout.source is None or not isinstance(layout.job, JobSpec):
        raise RejectedError(
            f"a sink follows a log, and {layout.job.job} reads none",
            field=_FIELD,
            hint="Leave it out; stream_s repeats copies.",
        )
    wanted, keys = find_run_range(context.run.tags), context.selected_asset_keys
    selection = {} if wanted is None else layout.plan_selection(keys, wanted, context.instance)
    record = context.instance.get_run_record_by_id(context.run.run_id)
    made_at = None if record is None else aware_moment(record.create_timestamp)
    require_sink(config, context.run.tags, layout, selection, made_at=made_at)
    check_sink_job(layout.job)
    chosen = dict.fromkeys(urn for (urn, _role), spec in layout.specs.items() if spec.key in keys)
    specs = {urn: cast("DatasetSpec", layout.datasets[urn]) for urn in sorted(chosen)}
    for urn, spec in specs.items():
        check_sink_dataset(urn, spec)
    return specs
