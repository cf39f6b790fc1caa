"""Commands on the warm Spark server of a home: spark."""

from collections.abc import Sequence

import click

from gobblin_assets.cli.connections import find_conf_options, find_jar_options, session_options
from gobblin_assets.cli.lazy_commands import LazyGroup, example
from gobblin_assets.cli.output import json_option, print_json, say
from gobblin_assets.jobs.ingest.spark_engine import SparkEngine
from gobblin_assets.settings import read_settings
from gobblin_assets.spark import connect_server
from gobblin_assets.spark.class_archive import make_archive
from gobblin_assets.spark.spark_settings import COORDINATES


@click.group(cls=LazyGroup)
def spark() -> None:
    """The warm Spark Connect server of GOBBLIN_HOME, which saves every run the start of a JVM."""


@spark.command("start", epilog=example("spark start --capability kafka"))
@click.option("--master", envvar="GOBBLIN_SPARK_MASTER", default="local[*]", show_default=True)
@click.option(
    "--capability",
    "capabilities",
    multiple=True,
    default=("postgres",),
    show_default=True,
    help=f"A connector that its jobs need, of {', '.join(COORDINATES)}, or by Maven coordinate; may be repeated.",
)
@session_options
def start_spark(master: str, capabilities: Sequence[str]) -> None:
    """Start the server, unless it runs."""
    engine = SparkEngine(
        master=master, capabilities=capabilities, conf=find_conf_options(), more_jars=find_jar_options()
    )
    server = connect_server.start_connect(read_settings().home, engine.settings(), say)
    say(
        f"Spark Connect runs on port {server.port} (pid {server.pid}); `run` finds it by itself, and so do the runs "
        "that Dagster launches."
    )


@spark.command("stop", epilog=example("spark stop"))
def stop_spark() -> None:
    """Stop the server."""
    say("stopped" if connect_server.stop_connect(read_settings().home) else "none was running")


@spark.command("archive", epilog=example("spark archive"))
def archive_classes() -> None:
    """Write an archive of Spark's classes, once: with it a JVM of Spark starts in two thirds of the time.

    All sessions and servers of this user take it from then on, with this Java and this Spark.
    """
    click.echo(str(make_archive(say)))


@spark.command("status", epilog=example("spark status"))
@json_option
def show_spark(as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """Say whether the server answers."""
    server = connect_server.find(read_settings().home)
    if as_json:
        found = {} if server is None else {"port": server.port, "pid": server.pid, "log": server.log_path}
        print_json({"running": server is not None, **found})
        return
    click.echo("not running" if server is None else f"running on port {server.port}, pid {server.pid}")
