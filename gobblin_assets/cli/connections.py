"""Connections of commands: the log's operations, the ports of a run, and Spark as the options say."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from gobblin_assets.cli.output import say
from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.ingest.engine_port import AnnouncedEngine
from gobblin_assets.jobs.ingest.spark_engine import SparkEngine
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.state import RunId
from gobblin_assets.run.log import Log, open_log
from gobblin_assets.run.run_values import DatasetReport, RunPorts
from gobblin_assets.run.runner import owner_text
from gobblin_assets.spark.spark_settings import CONF_SEPARATOR, CONF_VARIABLE, parse_conf, plan_jars
from gobblin_assets.spec.job_options import JobOptions
from gobblin_assets.spec.selection import Datasets
from gobblin_assets.state.leases import Holder

_META: Final = "gobblin_assets.spark"

_Command = TypeVar("_Command", bound=Callable[..., Any])

job_file_argument: Final[Callable[[_Command], _Command]] = click.argument(
    "job_file", type=click.Path(path_type=Path, dir_okay=False)
)


@dataclass(frozen=True, slots=True)
class SparkChoice:
    """The place of a command's Spark, as the options say."""

    master: str | None
    remote: str | None

    def open(self) -> SparkEngine:
        """Nothing starts yet. Without options: the home's warm server if it answers, else Spark inside this process."""
        conf = find_conf_options()
        static = sorted(key for key in conf if not key.startswith("spark.sql."))
        if self.remote and static:
            raise RejectedError(
                f"a server has its {static[0]} since its start",
                field="--conf",
                hint="With --remote only keys spark.sql.… can be given; start the server with the others.",
            )
        return SparkEngine(master=self.master, remote=self.remote, conf=conf, more_jars=find_jar_options(), say=say)

    def environment(self) -> dict[str, str]:
        """The variables by which a command in another process has the same options. A URL may hold a token."""
        context = click.get_current_context(silent=True)
        kept = {} if context is None else {name: context.meta.get(f"{_META}.{name}") for name in ("packages", "jars")}
        conf = CONF_SEPARATOR.join(f"{key}={value}" for key, value in find_conf_options().items())
        given = {"master": self.master, "remote": self.remote, "conf": conf, **kept}
        return {f"GOBBLIN_SPARK_{name.upper()}": str(value) for name, value in given.items() if value}


class _ConfSetting(click.ParamType[str]):
    name = "key=value"
    envvar_list_splitter = CONF_SEPARATOR

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002  click's signature
        return str(value)


def session_options(command: _Command) -> _Command:
    """--packages, --jars and --conf, which ``find_jar_options`` and ``find_conf_options`` find; the command itself
    does not see them.
    """
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
    conf = click.option(
        "--conf",
        envvar=CONF_VARIABLE,
        multiple=True,
        type=_ConfSetting(),
        expose_value=False,
        callback=_keep_option,
        metavar="KEY=VALUE",
        help="A setting of Spark, such as spark.cores.max=4, or spark.ui.enabled=true for its UI; may be repeated. In "
        "the variable, one a line. Everybody on this machine can read it.",
    )
    return packages(jars(conf(command)))


def find_jar_options() -> dict[str, str]:
    """Spark's configuration for --packages and --jars of the running command."""
    context = click.get_current_context(silent=True)
    meta = {} if context is None else context.meta
    packages, jars = (str(meta.get(f"{_META}.{name}") or "") for name in ("packages", "jars"))
    return plan_jars([p for p in packages.split(",") if p], [j for j in jars.split(",") if j], field="spark")


def find_conf_options() -> dict[str, str]:
    """Spark's configuration that --conf gives to the running command. RejectedError for what is no setting."""
    context = click.get_current_context(silent=True)
    return parse_conf((context.meta.get(f"{_META}.conf") or ()) if context else (), field="--conf")


def _keep_option(context: click.Context, parameter: click.Parameter, value: object) -> None:
    context.meta[f"{_META}.{parameter.name}"] = value


def spark_options(command: _Command) -> _Command:
    """--master and --remote, which the command takes as arguments, and the ``session_options``."""
    master = click.option(
        "--master", envvar="GOBBLIN_SPARK_MASTER", help="Run Spark in this process: local[2], spark://host:7077, …"
    )
    remote = click.option(
        "--remote",
        envvar="GOBBLIN_SPARK_REMOTE",
        help="A Spark Connect server: sc://host:port/;token=… Default: the warm server, if `spark start` made one.",
    )
    return master(remote(session_options(command)))


def open_operations(log: Log, spark: SparkChoice, job: JobOptions | None = None) -> LogOperations:
    """Operations on the log in the name of this process, for one run."""
    clock = SystemClock()
    operations = LogOperations(
        store=log.stores.commits,
        leases=log.stores.leases,
        open_file_system=open_file_system,
        interrupt=spark.open().interrupt,
        clock=clock,
        holder=Holder(owner_text(), RunId(clock.new_id())),
        say=say,
    )
    if job is None:
        return operations
    return replace(operations, lease_ttl_s=job.lease.ttl_s, tries_max=job.publish_tries_max)


@contextmanager
def open_ports(
    job: JobOptions, datasets: Datasets, spark: SparkChoice, on_publication: Callable[[DatasetReport], None]
) -> Iterator[RunPorts]:
    """What a run of the job needs; ``on_publication`` is shown each publication."""
    program = program_of(job)

    def open_spark() -> AnnouncedEngine:
        return AnnouncedEngine(spark.open(), say)

    with open_log(say) as log, program.open_run(job, datasets, open_spark, log.stores, say, on_publication) as ports:
        yield ports
