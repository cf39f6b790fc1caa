"""The assets of a job as one definition of Dagster's, whoever wrote the function that runs them."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

import dagster as dg

from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.materialization import materialize
from gobblin_assets.dagster.run_config import GobblinRunConfig

_SAID_OF_OUTPUTS: Final = "did not yield or return expected outputs"

RunAssets = Callable[[dg.AssetExecutionContext, JobLayout, GobblinRunConfig], Iterator[Any]]
"""Runs what Dagster selected, and gives what Dagster gets besides what is in its log already."""

# By the op, which stays the same object when Dagster makes another definition of the assets.
_layouts: Final[WeakKeyDictionary[object, JobLayout]] = WeakKeyDictionary()


class _WithoutExpectedOutputs(logging.Filter):
    def __init__(self, op_name: str) -> None:
        super().__init__()
        self._begins = f"op '{op_name}' {_SAID_OF_OUTPUTS}"

    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(self._begins)


def leave_out_expected_outputs(context: dg.AssetExecutionContext) -> None:
    """Keep that line out of this step's log, which ends with the step."""
    context.log.addFilter(_WithoutExpectedOutputs(str(context.op_execution_context.node_handle)))


def _run_alone(context: dg.AssetExecutionContext, layout: JobLayout, config: GobblinRunConfig) -> Iterator[Any]:
    # A generator that yields nothing: a result of the step would stand for the whole range of partitions.
    materialize(context, layout, config)
    yield from ()


def build_gobblin_assets(
    layout: JobLayout,
    run: RunAssets = _run_alone,
    *,
    description: str | None = None,
    config_class: type[GobblinRunConfig] = GobblinRunConfig,
    resource_keys: Collection[str] = (),
    op_tags: Mapping[str, str] | None = None,
    pool: str | None = None,
    retry_policy: dg.RetryPolicy | None = None,
) -> dg.AssetsDefinition:
    """All datasets of the job as one definition that can be subset: a run plans once and shares its session.

    ``resource_keys``: of the resources that ``run`` takes besides those of the job. The op has the job's name: by it,
    sensors find what a run is asked for.
    """
    deps = dict.fromkeys(dep.asset_key for spec in layout.specs.values() for dep in spec.deps)
    # The job's source is no input: it is in no run, so no run has to wait for it.
    inner = {spec.key for spec in (*layout.specs.values(), *layout.sources.values())}
    outer = [key for key in deps if key not in inner]
    inputs = {f"upstream_{number}": key for number, key in enumerate(outer)}

    def run_assets(context: dg.AssetExecutionContext, config: GobblinRunConfig) -> Iterator[Any]:
        leave_out_expected_outputs(context)
        yield from run(context, layout, config)

    # Dagster makes the schema of the run's configuration from the annotation.
    run_assets.__annotations__["config"] = config_class
    op = dg.op(
        name=layout.job.job,
        description=description or layout.job.description,
        ins={name: dg.In(dg.Nothing) for name in inputs},
        out=layout.build_outs(),
        required_resource_keys={*layout.resource_keys, *resource_keys},
        tags=op_tags,
        pool=pool,
        retry_policy=retry_policy,
    )(run_assets)
    _layouts[op] = layout
    return dg.AssetsDefinition(
        node_def=op,
        keys_by_input_name=inputs,
        keys_by_output_name=layout.build_keys_by_output(),
        specs=list(layout.specs.values()),
        can_subset=True,
        check_specs_by_output_name=layout.build_checks(),
        backfill_policy=(
            dg.BackfillPolicy.single_run()
            if layout.job.backfill == "single_run"
            else dg.BackfillPolicy.multi_run(max_partitions_per_run=1)
        ),
    )


def find_layout(assets: dg.AssetsDefinition) -> JobLayout | None:
    """The layout that the assets were built from; None where they were not built here, or have got other keys since."""
    layout = _layouts.get(assets.node_def) if assets.is_executable else None
    if layout is None or set(assets.keys) != {spec.key for spec in layout.specs.values()}:
        return None
    return layout
