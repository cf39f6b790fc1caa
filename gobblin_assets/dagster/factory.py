"""Dagster definitions of a job by a Python function; the YAML component builds the same.

Nothing connects while definitions load. A connection is a name, which a resource resolves when a run starts. Patterns
choose from the tables in a state file, which `gobblin-assets discover` writes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import dagster as dg
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from gobblin_assets.dagster.file_set_sensors import build_set_sensors
from gobblin_assets.dagster.job_assets import build_gobblin_assets, find_layout
from gobblin_assets.dagster.layout import JobLayout, build_layout
from gobblin_assets.dagster.log_sensors import build_discovery_sensor, build_new_data_sensor
from gobblin_assets.dagster.maintenance_jobs import (
    bases_job_name,
    build_bases_job,
    build_bases_schedule,
    build_recovery_job,
    build_resume_job,
    recovery_job_name,
    resume_job_name,
)
from gobblin_assets.dagster.naming import GobblinTranslator
from gobblin_assets.dagster.recovery_sensor import build_recovery_sensor
from gobblin_assets.dagster.reported_runs import ReportedJob
from gobblin_assets.dagster.reporter import build_reporting_sensor
from gobblin_assets.dagster.sink_sensor import build_sink_sensor
from gobblin_assets.dagster.source_observing import build_source_observer
from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.jobs.sink.sink_rules import has_sink
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.job_options import JobOptions
from gobblin_assets.spec.job_parsing import parse_any_job
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.source_spec import LogSourceSpec

_UNPARTITIONED_NAME: Final = "whole"
_NAMED_MAX: Final = 20

_declared: Final[dict[dg.AssetKey, str]] = {}


def build_gobblin_layout(
    spec: JobOptions | Mapping[str, object],
    *,
    discovered: Sequence[str] | None = None,
    translator: GobblinTranslator | None = None,
    database: str | None = None,
) -> JobLayout:
    """Read and check a job's specification. ``discovered``: the table names that its patterns choose from.

    ``database``: the kind of database of the connection, such as postgres, for Dagster to show.
    RejectedError names the field, what was expected and the fix.
    """
    job = spec if isinstance(spec, JobOptions) else parse_any_job(spec)
    datasets = program_of(job).declare_datasets(job, discovered, searches=not is_run())
    return build_layout(job, datasets, translator or GobblinTranslator(), database=database)


def is_run() -> bool:
    """Whether this process loads the definitions for a run: it then has the assets that its server had found."""
    if not DefinitionsLoadContext.is_set():
        return False
    return DefinitionsLoadContext.get().load_type is DefinitionsLoadType.RECONSTRUCTION


def build_gobblin_source_specs(layout: JobLayout) -> list[dg.AssetSpec]:
    """The tables or topics that the job reads, as external assets: nothing materializes them."""
    return list({spec.key: spec for spec in layout.sources.values()}.values())


def build_gobblin_jobs(layout: JobLayout) -> list[UnresolvedAssetJobDefinition]:
    """A Dagster job for each distinct partitions definition, since a run has partitions of one only.

    In one process: a process for each step would be a JVM for each step.
    """
    jobs = []
    names = _JobNames(layout.job.job)
    for partitions, urns in layout.group_by_partitions():
        keys = [layout.get_key(urn, role) for urn in urns for role in layout.roles]
        jobs.append(
            dg.define_asset_job(
                names.pick(partitions),
                selection=dg.AssetSelection.assets(*keys),
                description=_describe_job(layout, partitions, urns),
                executor_def=dg.in_process_executor,
            )
        )
    return jobs


def build_gobblin_sensors(
    layout: JobLayout,
    jobs: Sequence[UnresolvedAssetJobDefinition],
    *,
    discovered: Sequence[str] | None = None,
    discovery_path: Path | None = None,
) -> list[dg.SensorDefinition]:
    """The recovery sensor; for logs and file sets also a sensor for new data and, if they are found, for discovery.

    A job whose file has a ``sink`` has a sensor that reports it. Change logs are followed by a sink alone.

    ``jobs``: the same objects of ``build_gobblin_jobs`` that are in the definitions beside the sensors.
    """
    names = {*(job.name for job in jobs), bases_job_name(layout.job.job)}
    sensors, source = [build_recovery_sensor(layout, names)], layout.source
    if isinstance(source, LogSourceSpec):
        if not source.is_one_stream:
            sensors.append(build_new_data_sensor(layout, source, jobs))
        if source.include:
            sensors.append(build_discovery_sensor(layout, source, known=discovered or (), path=discovery_path))
    if isinstance(layout.job, JobSpec) and has_sink(layout.job):
        sensors.append(build_sink_sensor(layout, jobs))
    if (rules := layout.program.find_watch_rules(layout.job)) is not None:
        sensors += build_set_sensors(layout, rules, jobs)
    return sensors


@dataclass(frozen=True, slots=True)
class BuiltJob:
    """The definitions of one job, without the sensor that reports its commands; ``reported`` is for that sensor."""

    definitions: dg.Definitions
    reported: ReportedJob


def build_gobblin_definitions(
    spec: JobOptions | Mapping[str, object] | dg.AssetsDefinition,
    *,
    discovered: Sequence[str] | None = None,
    discovery_path: Path | None = None,
    translator: GobblinTranslator | None = None,
    executor: dg.ExecutorDefinition | None = dg.in_process_executor,
    database: str | None = None,
) -> dg.Definitions:
    """Assets, their sources, checks, jobs, the jobs for recovery, resuming and bases, and the sensors of one job.

    ``spec``: the job, or a function under ``@gobblin_assets``, which has the job's translator and database itself.
    Merge it with the resources that a code location shares: ``resources.gobblin_resources``. ``executor`` is the
    code location's, and what the UI's own runs use; None where the location has another (each run then has one
    process more). ``database`` is as for ``build_gobblin_layout``. ``discovery_path`` is the state file that
    ``discovered`` was read from, for the sensor that keeps it.
    """
    own = None
    if isinstance(spec, dg.AssetsDefinition):
        own, layout = spec, layout_of_assets(spec)
    else:
        layout = build_gobblin_layout(spec, discovered=discovered, translator=translator, database=database)
    built = build_job(layout, own, discovered=discovered, discovery_path=discovery_path, executor=executor)
    sensor = build_reporting_sensor([built.reported], name=f"{layout.job.job}_reporting_sensor")
    return dg.Definitions.merge(built.definitions, dg.Definitions(sensors=[sensor]))


def layout_of_assets(assets: dg.AssetsDefinition) -> JobLayout:
    """RejectedError for assets that are no job's, or whose keys have been changed since they were built."""
    layout = find_layout(assets)
    if layout is None:
        raise RejectedError(
            f"expected the assets of a function under @gobblin_assets, found {assets!r}",
            field="jobs",
            hint="Hand over what the decorator made, as it is. For other keys, give the decorator a translator.",
        )
    return layout


def build_job(
    layout: JobLayout,
    own_assets: dg.AssetsDefinition | None = None,
    *,
    discovered: Sequence[str] | None = None,
    discovery_path: Path | None = None,
    executor: dg.ExecutorDefinition | None = dg.in_process_executor,
) -> BuiltJob:
    """What ``build_gobblin_definitions`` builds, for a code location with one reporting sensor for all of its jobs.

    ``own_assets``: in place of those that are built here.
    """
    assets = build_gobblin_assets(layout) if layout.specs else None
    shown = own_assets or assets
    jobs = build_gobblin_jobs(layout)
    bases = [build_bases_job(layout)] if layout.is_one_stream else []
    definitions = dg.Definitions(
        assets=[*([] if shown is None else [shown]), *_build_sources(layout)],
        jobs=[*jobs, build_recovery_job(layout), build_resume_job(layout), *bases],
        schedules=[schedule for each in bases for schedule in build_bases_schedule(layout, each)],
        sensors=build_gobblin_sensors(layout, jobs, discovered=discovered, discovery_path=discovery_path),
        executor=executor,
    )
    return BuiltJob(definitions, ReportedJob(layout, assets, jobs))


def build_reported_job(layout: JobLayout) -> ReportedJob:
    """A job for reports from outside of a code location."""
    return ReportedJob(layout, build_gobblin_assets(layout) if layout.specs else None, build_gobblin_jobs(layout))


def _build_sources(layout: JobLayout) -> list[dg.AssetsDefinition]:
    chosen = _choose_declared(layout)
    return [build_source_observer(layout, chosen)] if chosen else []


def _choose_declared(layout: JobLayout) -> list[dg.AssetSpec]:
    """The sources that no other job of this process has declared; the others are only dependencies of this job."""
    job = layout.job.job
    return [spec for spec in build_gobblin_source_specs(layout) if _declared.setdefault(spec.key, job) == job]


class _JobNames:
    """One name for each partitions definition, in Dagster's letters, none of them the op's or another's."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._taken = {job, recovery_job_name(job), resume_job_name(job), bases_job_name(job)}

    def pick(self, partitions: dg.PartitionsDefinition[str] | None) -> str:
        wanted = f"{self._job}_{_kind_of(partitions)}"
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        return name


def _describe_job(
    layout: JobLayout, partitions: dg.PartitionsDefinition[str] | None, urns: Sequence[DatasetUrn]
) -> str:
    has = "without partitions" if partitions is None else f"with {_kind_of(partitions)} partitions"
    more = f" and {len(urns) - _NAMED_MAX} more" if len(urns) > _NAMED_MAX else ""
    return f"The datasets of {layout.job.job} {has}: {', '.join(urns[:_NAMED_MAX])}{more}."


def _kind_of(partitions: dg.PartitionsDefinition[str] | None) -> str:
    match partitions:
        case None:
            return _UNPARTITIONED_NAME
        case dg.HourlyPartitionsDefinition():
            return "hourly"
        case dg.DailyPartitionsDefinition():
            return "daily"
        case dg.WeeklyPartitionsDefinition():
            return "weekly"
        case dg.MonthlyPartitionsDefinition():
            return "monthly"
        case dg.DynamicPartitionsDefinition():
            return "dynamic"
        case _:
            return "static"
