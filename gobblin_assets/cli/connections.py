"""What commands connect to: the commit log, the source, Spark. The same as Dagster's resources give to its runs."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from gobblin_assets.cli.log import Log, open_log
from gobblin_assets.cli.output import say
from gobblin_assets.cli.telling import telling_events
from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.dagster.factory import build_gobblin_layout
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.resources.spark import GobblinSparkResource, find_warm
from gobblin_assets.destinations.registry import DestinationRequest, open_destination
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.ingest.kind import IngestKind
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.run_values import DatasetReport, RunPorts
from gobblin_assets.run.runner import owner_text
from gobblin_assets.run.upkeep import Upkeep
from gobblin_assets.settings import read_settings
from gobblin_assets.sources.discovery import find_discovery
from gobblin_assets.sources.environment import list_capabilities, plan_driver_jars, read_connection
from gobblin_assets.sources.port import Source
from gobblin_assets.spark.settings import merge_jars, plan_jars
from gobblin_assets.spec.job_files import read_job_file
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.state.leases import Holder

_META: Final = "gobblin_assets.spark"

_Command = TypeVar("_Command", bound=Callable[..., Any])

job_file_argument: Final[Callable[[_Command], _Command]] = click.argument(
    "job_file", type=click.Path(path_type=Path, dir_okay=False)
)


@dataclass(frozen=True, slots=True)
class SparkChoice:
    """Where a command's Spark runs, as the options say."""

    master: str | None
    remote: str | None

    def open(self, job: JobSpec | None = None) -> GobblinSparkResource:
        """Nothing starts yet. Without options: the home's warm server if it answers, else inside this process.

        ``job`` says which connectors a session of this process needs; a server has those it was started with.
        """
        given = find_jar_options()
        jobs = [] if job is None else [job]
        capabilities = list_capabilities(jobs, os.environ)
        remote = self.remote or (None if self.master else find_warm(capabilities, say))
        return GobblinSparkResource(
            master=self.master,
            remote=remote,
            capabilities=capabilities,
            spark_config=merge_jars(plan_driver_jars(jobs), given),
        )


def jar_options(command: _Command) -> _Command:
    """--packages and --jars, which ``find_jar_options`` finds; the command itself does not see them."""
    packages = click.option(
        "--packages",
        envvar="GOBBLIN_SPARK_PACKAGES",
        expose_value=False,
        callback=_keep_option,
        help="Maven coordinates of more jars for Spark, such as a JDBC driver: group:artifact:version,…",
    )
    jars = click.option(
        "--jars",
        envvar="GOBBLIN_SPARK_JARS",
        expose_value=False,
        callback=_keep_option,
        help="Jar files for Spark, by path: a.jar,b.jar",
    )
    return packages(jars(command))


def find_jar_options() -> dict[str, str]:
    """Spark's configuration for what the running command was given by ``jar_options``."""
    context = click.get_current_context(silent=True)
    meta = {} if context is None else context.meta
    packages, jars = (str(meta.get(f"{_META}.{name}") or "") for name in ("packages", "jars"))
    return plan_jars([p for p in packages.split(",") if p], [j for j in jars.split(",") if j], field="spark")


def _keep_option(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    context.meta[f"{_META}.{parameter.name}"] = value


def spark_options(command: _Command) -> _Command:
    """--master and --remote, which the command takes as they are, and those of ``jar_options``."""
    master = click.option(
        "--master", envvar="GOBBLIN_SPARK_MASTER", help="Run Spark in this process: local[2], spark://host:7077, …"
    )
    remote = click.option(
        "--remote",
        envvar="GOBBLIN_SPARK_REMOTE",
        help="A Spark Connect server: sc://host:port/;token=… Default: the warm server, if `spark start` made one.",
    )
    return master(remote(jar_options(command)))


@contextmanager
def open_ports(
    job: JobSpec,
    datasets: Mapping[DatasetUrn, DatasetSpec],
    spark: SparkChoice,
    tell: Callable[[DatasetReport], None],
) -> Iterator[RunPorts]:
    """What a run of ``job`` needs; ``tell`` is shown each publication."""
    fs, root = open_file_system(job.destination, umask=job.umask)
    engine = spark.open(job)
    source = open_source(job)
    with open_log() as log:
        yield RunPorts(
            stores=log.stores,
            destination=open_destination(
                DestinationRequest(
                    JobName(job.job), job.destination, fs, root, log.stores, open_file_system, SystemClock().new_id
                )
            ),
            open_file_system=open_file_system,
            kind=IngestKind(
                datasets,
                source,
                engine.get_session,
                lambda: engine.open_extractor(job, log.stores),
                lambda: engine.open_rewriter(job, datasets),
            ),
            interrupt=engine.interrupt,
            clock=SystemClock(),
            report=say,
            on_publication=tell,
        )


def open_source(job: JobSpec) -> Source:
    """The job's source, by the variables of its connection's name. Nothing is connected to yet."""
    return read_connection(job.source, os.environ).open_source(job)


def read_layout(job_file: Path) -> JobLayout:
    """The job of a file, its tables as discovery found them."""
    job = read_job_file(job_file)
    found = find_discovery(read_settings().discovery_path(job.job)) if job.source.include else None
    return build_gobblin_layout(job, discovered=None if found is None else found.selected(job.source))


def open_operations(log: Log, spark: SparkChoice, job: JobSpec | None = None) -> LogOperations:
    """Operations on the log in the name of this process, for one run."""
    clock = SystemClock()
    engine = spark.open(job)
    operations = LogOperations(
        store=log.stores.commits,
        leases=log.stores.leases,
        open_file_system=open_file_system,
        interrupt=engine.interrupt,
        clock=clock,
        holder=Holder(owner_text(), RunId(clock.new_id())),
        report=say,
    )
    if job is None:
        return operations
    return replace(operations, lease_ttl_s=job.lease.ttl_s, tries_max=job.publish_tries_max)


@contextmanager
def open_upkeep(log: Log, spark: SparkChoice, job: JobName, layout: JobLayout | None) -> Iterator[Upkeep]:
    """A run of upkeep on the job. With its layout known, Dagster is told of what it finishes."""
    if layout is None:
        yield Upkeep(open_operations(log, spark), log.stores, job)
        return
    with telling_events(layout, by=f"gobblin-assets {click.get_current_context().info_name}") as telling:
        yield Upkeep(open_operations(log, spark, layout.job), log.stores, job, telling.report_publication)
        telling.report_dead(layout, log.stores)
