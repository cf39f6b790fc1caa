"""Exactly-once data ingestion: partitioned Dagster assets, read by Spark, published through a log in Postgres.

These are the public names; docs/PYTHON.md has an example of each. A name is imported when it is first used: errors and
jobs do not import Spark, and only ``gobblin_assets.dagster`` imports Dagster.
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gobblin_assets.commit.step_kinds import register_step
    from gobblin_assets.commit.steps import CommitStep, StepKind
    from gobblin_assets.destinations.registry import register_destination
    from gobblin_assets.errors import (
        ConflictError,
        CorruptionError,
        FencedError,
        GobblinError,
        OutcomeUnknownError,
        RejectedError,
        RetryableError,
    )
    from gobblin_assets.events.sinks import FunctionSink, register_event_sink
    from gobblin_assets.fs.registry import register_file_system
    from gobblin_assets.jobs.ingest.foreach_batches import foreach_batch
    from gobblin_assets.jobs.ingest.running import run_stream
    from gobblin_assets.jobs.ingest.spark_engine import SparkEngine
    from gobblin_assets.jobs.job_runs import run_job
    from gobblin_assets.model.urn import Role
    from gobblin_assets.rows.current_reader import read_current
    from gobblin_assets.rows.dataset_reader import read_dataset
    from gobblin_assets.run.log import Log, open_log
    from gobblin_assets.run.run_values import DatasetReport, RunReport
    from gobblin_assets.spec.destination_kind import DestinationKind, register_destination_kind
    from gobblin_assets.spec.job_files import load_job
    from gobblin_assets.spec.job_files import load_job as read_any_job  # noqa: F401  an earlier name of it
    from gobblin_assets.spec.job_files import read_job_file as read_job_file
    from gobblin_assets.spec.job_kinds import register_job_kind
    from gobblin_assets.spec.job_options import JobOptions
    from gobblin_assets.spec.job_parsing import parse_job as parse_job
    from gobblin_assets.spec.job_spec import JobSpec
    from gobblin_assets.spec.source_kind import SourceKind, register_source

__version__ = "0.1.0"

__all__ = [
    "CommitStep",
    "ConflictError",
    "CorruptionError",
    "DatasetReport",
    "DestinationKind",
    "FencedError",
    "FunctionSink",
    "GobblinError",
    "JobOptions",
    "JobSpec",
    "Log",
    "OutcomeUnknownError",
    "RejectedError",
    "RetryableError",
    "Role",
    "RunReport",
    "SourceKind",
    "SparkEngine",
    "StepKind",
    "foreach_batch",
    "load_job",
    "open_log",
    "read_current",
    "read_dataset",
    "register_destination",
    "register_destination_kind",
    "register_event_sink",
    "register_file_system",
    "register_job_kind",
    "register_source",
    "register_step",
    "run_job",
    "run_stream",
]

_MODULES = {
    "CommitStep": "commit.steps",
    "ConflictError": "errors",
    "CorruptionError": "errors",
    "DatasetReport": "run.run_values",
    "DestinationKind": "spec.destination_kind",
    "FencedError": "errors",
    "FunctionSink": "events.sinks",
    "GobblinError": "errors",
    "JobOptions": "spec.job_options",
    "JobSpec": "spec.job_spec",
    "Log": "run.log",
    "OutcomeUnknownError": "errors",
    "RejectedError": "errors",
    "RetryableError": "errors",
    "Role": "model.urn",
    "RunReport": "run.run_values",
    "SourceKind": "spec.source_kind",
    "SparkEngine": "jobs.ingest.spark_engine",
    "StepKind": "commit.steps",
    "foreach_batch": "jobs.ingest.foreach_batches",
    "load_job": "spec.job_files",
    "open_log": "run.log",
    "read_current": "rows.current_reader",
    "read_dataset": "rows.dataset_reader",
    "register_destination": "destinations.registry",
    "register_destination_kind": "spec.destination_kind",
    "register_event_sink": "events.sinks",
    "register_file_system": "fs.registry",
    "register_job_kind": "spec.job_kinds",
    "register_source": "spec.source_kind",
    "register_step": "commit.step_kinds",
    "run_job": "jobs.job_runs",
    "run_stream": "jobs.ingest.running",
}

# Earlier names of ``load_job``, each with the module and the name of what it stands for.
_DEPRECATED = {
    "parse_job": ("spec.job_parsing", "parse_job"),
    "read_any_job": ("spec.job_files", "load_job"),
    "read_job_file": ("spec.job_files", "read_job_file"),
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    if name not in _DEPRECATED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        f"{__name__}.{name} is deprecated: use {__name__}.load_job, which takes options or a path of a job of any kind",
        DeprecationWarning,
        stacklevel=2,
    )
    module, meant = _DEPRECATED[name]
    # Kept here, so that the warning comes once: Python asks no second time for what the module has.
    globals()[name] = found = getattr(import_module(f"{__name__}.{module}"), meant)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
