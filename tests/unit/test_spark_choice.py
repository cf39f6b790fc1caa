"""The options of Spark, as one command hands them to another process."""

import json

import click
from click.testing import CliRunner

from gobblin_assets.cli.connections import SparkChoice, spark_options


@click.command()
@spark_options
def show(master: str | None, remote: str | None) -> None:
    click.echo(json.dumps(SparkChoice(master, remote).environment()))


def test_a_process_with_these_variables_has_the_same_options() -> None:
    asked = ["--master", "local[2]", "--packages", "org.example:driver:1", "--jars", "/a.jar,/b.jar"]
    first = CliRunner().invoke(show, asked, catch_exceptions=False)
    variables = json.loads(first.output)

    assert variables == {
        "GOBBLIN_SPARK_MASTER": "local[2]",
        "GOBBLIN_SPARK_PACKAGES": "org.example:driver:1",
        "GOBBLIN_SPARK_JARS": "/a.jar,/b.jar",
    }
    second = CliRunner().invoke(show, [], env=variables, catch_exceptions=False)
    assert json.loads(second.output) == variables


def test_a_token_is_handed_on_too() -> None:
    url = "sc://spark.example.com:15002/;token=secret"

    shown = CliRunner().invoke(show, ["--remote", url], catch_exceptions=False)

    assert json.loads(shown.output) == {"GOBBLIN_SPARK_REMOTE": url}
