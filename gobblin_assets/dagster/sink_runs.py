"""A Dagster run that is a worker of a sink for a while.

It works like every other worker, wherever they run. It logs no materialization: a worker has only some of the lanes, so
that no window is closed when it ends. The sink sensor reports windows.
"""

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Final, cast

import dagster as dg

from gobblin_assets.dagster.instances import find_made_at
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.partitions import find_run_range
from gobblin_assets.dagster.ports import FILE_SYSTEMS_KEY, SPARK_KEY, STORES_KEY, FileSystems, connection_key
from gobblin_assets.dagster.progress import ProgressLog
from gobblin_assets.dagster.run_config import GobblinRunConfig, RequireOptions, require_follows, require_sink
from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.ingest.engine_port import Engine
from gobblin_assets.jobs.programs import RunResources
from gobblin_assets.jobs.sink.alike_workers import await_alike
from gobblin_assets.jobs.sink.catching_up import plan_catching_up
from gobblin_assets.jobs.sink.running import find_spark_needs, open_log_connection, open_worker, work_beside_others
from gobblin_assets.jobs.sink.sink_rules import check_sink_dataset, check_sink_job, is_one_stream
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.own_process import StopRequest, heed_stop_signals
from gobblin_assets.run.stores import Stores
from gobblin_assets.run.streaming import WaitForStop
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec

_FIELD: Final = "sink_s"


def say_nothing(_line: str) -> None:
    """Nothing is said from inside a signal's handler, which may have come between any two steps of a log."""


def wait_until_over(stop: StopRequest, seconds: float) -> WaitForStop:
    """Until the time is over, or the run's termination asks for it."""
    end_s = time.monotonic() + seconds

    def wait(wait_s: float) -> bool:
        left_s = end_s - time.monotonic()
        return left_s <= 0 or stop.wait(min(wait_s, left_s)) or time.monotonic() >= end_s

    return wait


def work_on_sink(
    context: dg.AssetExecutionContext, layout: JobLayout, config: GobblinRunConfig, stop: StopRequest
) -> None:
    """Be a worker of the selected datasets until the time is over, or the run's termination asks for the end.

    A GobblinError as for a worker of the command line; a job or dataset that is no sink's is refused by its field.
    """
    specs = _plan_sink(context, layout, config)
    stores: Stores = getattr(context.resources, STORES_KEY)
    job, resources = cast("JobSpec", layout.job), _find_resources(context, layout)
    engine: Engine = getattr(context.resources, SPARK_KEY)
    if find_spark_needs(job, specs, resources):
        # Before the signals are ours: a classic session takes SIGINT for itself when it opens.
        engine.get_session(job)
    progress = ProgressLog(context.log.info)
    wait = wait_until_over(stop, config.sink_s or 0.0)
    with closing(progress), heed_stop_signals(say_nothing, stop):
        work_beside_others(
            *(job, specs, stores, wait, progress, engine), resources=resources, dagster_run_id=context.run.run_id
        )


def catch_up(context: dg.AssetExecutionContext, layout: JobLayout, config: GobblinRunConfig, stop: StopRequest) -> None:
    """Be a worker until all is published that was committed to the selected tables when the run began.

    Another worker may hold the tables: then this one waits until that has published so much. A GobblinError as for a
    worker, or RetryableError if it was asked to end before.
    """
    job, stores = cast("JobSpec", layout.job), cast("Stores", getattr(context.resources, STORES_KEY))
    selected = _plan_catching_up(context, layout, config)
    specs, resources = _list_all(layout), _find_resources(context, layout)
    progress = ProgressLog(context.log.info)
    clock = SystemClock()
    with closing(progress), heed_stop_signals(say_nothing, stop):
        connection = open_log_connection(job, resources)
        catching = plan_catching_up(job, selected, connection, stores, clock, stop.wait)
        if not await_alike(job, specs, stores, stop.wait, progress):
            return
        with open_worker(
            *(job, specs, stores, catching.wait, progress, cast("Engine", getattr(context.resources, SPARK_KEY))),
            resources=resources,
            dagster_run_id=context.run.run_id,
        ) as worker:
            catching.sinks = list(worker.sinks.values())
            worker.run()
        if not stop.is_made:
            catching.require_published()
    context.log.info(
        "Published is all that was committed when the run began, of: %s. The sink's sensor reports it.",
        ", ".join(selected),
    )


def _find_resources(context: dg.AssetExecutionContext, layout: JobLayout) -> RunResources:
    file_systems: FileSystems = getattr(context.resources, FILE_SYSTEMS_KEY)
    source = cast("JobSpec", layout.job).source
    return RunResources(file_systems.open, getattr(context.resources, connection_key(source)))


def _plan_catching_up(
    context: dg.AssetExecutionContext, layout: JobLayout, config: GobblinRunConfig
) -> Mapping[DatasetUrn, DatasetSpec]:
    """The selected datasets. RejectedError if the run asks for something that a worker does not do."""
    _require_open_window(context, layout, config, require_follows)
    keys = context.selected_asset_keys
    chosen = dict.fromkeys(urn for (urn, _role), spec in layout.specs.items() if spec.key in keys)
    return {urn: cast("DatasetSpec", layout.datasets[urn]) for urn in sorted(chosen)}


def _list_all(layout: JobLayout) -> Mapping[DatasetUrn, DatasetSpec]:
    return {urn: cast("DatasetSpec", layout.datasets[urn]) for urn in sorted(layout.datasets)}


def _require_open_window(
    context: dg.AssetExecutionContext, layout: JobLayout, config: GobblinRunConfig, require: RequireOptions
) -> None:
    """A run need not name a partition: workers publish into the open window."""
    wanted, keys = find_run_range(context.run.tags), context.selected_asset_keys
    selection = {} if wanted is None else layout.plan_selection(keys, wanted, context.instance)
    made_at = find_made_at(context.instance, context.run.run_id)
    require(config, context.run.tags, layout, selection, made_at=made_at)


def _plan_sink(
    context: dg.AssetExecutionContext, layout: JobLayout, config: GobblinRunConfig
) -> Mapping[DatasetUrn, DatasetSpec]:
    """The datasets of the run, checked. Those of a stream are followed together, whatever is selected."""
    if layout.source is None or not isinstance(layout.job, JobSpec):
        raise RejectedError(
            f"a sink follows a log, and {layout.job.job} reads none",
            field=_FIELD,
            hint="Leave it out; stream_s repeats copies.",
        )
    _require_open_window(context, layout, config, require_sink)
    check_sink_job(layout.job)
    keys = context.selected_asset_keys
    chosen = dict.fromkeys(urn for (urn, _role), spec in layout.specs.items() if spec.key in keys)
    specs = {urn: cast("DatasetSpec", layout.datasets[urn]) for urn in sorted(chosen)}
    if is_one_stream(layout.job):
        specs = dict(_list_all(layout))
    for urn, spec in specs.items():
        check_sink_dataset(urn, spec)
    return specs
