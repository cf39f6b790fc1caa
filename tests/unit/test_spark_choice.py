"""The options of Spark, as one command hands them to another process."""

import json
from collections.abc import Mapping
from typing import cast

import click
import pytest
from click.testing import CliRunner

from gobblin_assets.cli.connections import SparkChoice, spark_options
from gobblin_assets.dagster.environment import resources_from_environment
from gobblin_assets.dagster.resources import GobblinSparkResource
from gobblin_assets.errors import RejectedError


@click.command()
@spark_options
def show(master: str | None, remote: str | None) -> None:
    click.echo(json.dumps(SparkChoice(master, remote).environment()))


def test_a_process_with_these_variables_has_the_same_options() -> None:
    asked = ["--master", "local[2]", "--packages", "org.example:driver:1", "--jars", "/a.jar,/b.jar"]
    asked += ["--conf", "spark.ui.enabled=true", "--conf", "spark.executor.extraJavaOptions=-Da=b -Dc; -Dd"]
    first = CliRunner().invoke(show, asked, catch_exceptions=False)
    variables = json.loads(first.output)

    assert variables == {
        "GOBBLIN_SPARK_MASTER": "local[2]",
        "GOBBLIN_SPARK_PACKAGES": "org.example:driver:1",
        "GOBBLIN_SPARK_JARS": "/a.jar,/b.jar",
        "GOBBLIN_SPARK_CONF": "spark.ui.enabled=true\nspark.executor.extraJavaOptions=-Da=b -Dc; -Dd",
    }
    second = CliRunner().invoke(show, [], env=variables, catch_exceptions=False)
    assert json.loads(second.output) == variables


def test_a_token_is_handed_on_too() -> None:
    url = "sc://spark.example.com:15002/;token=secret"

    shown = CliRunner().invoke(show, ["--remote", url], catch_exceptions=False)

    assert json.loads(shown.output) == {"GOBBLIN_SPARK_REMOTE": url}


@click.command()
@spark_options
def show_conf(master: str | None, remote: str | None) -> None:
    click.echo(json.dumps(dict(SparkChoice(master, remote).open().conf)))


def test_settings_of_the_command_line_come_to_the_session() -> None:
    shown = CliRunner().invoke(show_conf, ["--conf", "spark.cores.max=4", "--conf", "spark.sql.ansi.enabled="])
    assert json.loads(shown.output) == {"spark.cores.max": "4", "spark.sql.ansi.enabled": ""}


@pytest.mark.parametrize(
    "asked",
    [
        ["--conf", "cores.max=4"],
        ["--conf", "spark.cores.max"],
        ["--conf", "spark.master=local[2]"],
        ["--conf", "spark.remote=sc://h/;token=hush"],
        ["--conf", "spark.cores.max=4", "--conf", "spark.cores.max=5"],
        ["--conf", "spark.cores.max=4", "--remote", "sc://h/;token=hush"],
    ],
)
def test_settings_that_would_not_count_are_refused(asked: list[str]) -> None:
    refused = CliRunner().invoke(show_conf, asked)
    assert isinstance(refused.exception, RejectedError)
    assert refused.exception.field == "--conf"
    assert "hush" not in str(refused.exception)


def test_a_run_of_dagster_takes_some_cores_of_a_standalone_master_and_not_all() -> None:
    def conf_of(**variables: str) -> Mapping[str, str]:
        resources = resources_from_environment([], variables)
        return cast("GobblinSparkResource", resources["gobblin_spark"]).spark_config

    assert conf_of() == {}
    assert conf_of(GOBBLIN_SPARK_MASTER="local[2]") == {}
    assert conf_of(GOBBLIN_SPARK_MASTER="spark://host:7077") == {"spark.cores.max": "4"}
    more = {"GOBBLIN_SPARK_CONF": "spark.cores.max=16\nspark.executor.memory=2g"}
    assert conf_of(GOBBLIN_SPARK_MASTER="spark://host:7077", **more) == {
        "spark.cores.max": "16",
        "spark.executor.memory": "2g",
    }
