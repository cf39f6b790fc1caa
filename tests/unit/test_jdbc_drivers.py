from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.environment import find_shown_kind, list_capabilities, plan_driver_jars
from gobblin_assets.sources.jdbc.connection import JDBC_DATABASES, JdbcConnection
from gobblin_assets.spark.spark_settings import COORDINATES, plan_jars
from gobblin_assets.spec.job_parsing import parse_job


def job(**source: object) -> object:
    return {
        "job": "shop",
        "source": {"connection": "sales", **source},
        "destination": "/data/lake",
        "datasets": [{"urn": "t"}],
    }


def test_every_known_driver_comes_by_name() -> None:
    ours = [JDBC_DATABASES.get(name) for name in JDBC_DATABASES.built_in]
    assert {database.capability for database in ours} - {None} <= set(COORDINATES)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("jdbc:mariadb://h/db", ["mariadb"]),
        ("jdbc:mysql://h/db", ["mysql"]),
        ("jdbc:sqlite:/a.db", ["sqlite"]),
        ("jdbc:derby:memory:x", []),
        ("jdbc:somebody://h", []),
        ("", ["postgres"]),
    ],
)
def test_the_url_says_which_driver_spark_needs(url: str, expected: list[str]) -> None:
    assert list_capabilities([parse_job(job())], {"GOBBLIN_JDBC_SALES_URL": url}) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("jdbc:postgresql://h/db", "postgres"),
        ("jdbc:duckdb:/a.duckdb", "duckdb"),
        ("jdbc:somebody://h", None),
        ("no url", None),
        ("", None),
    ],
)
def test_the_url_says_what_dagster_shows_as_the_kind_of_a_source(url: str, expected: str | None) -> None:
    assert find_shown_kind(parse_job(job()).source, {"GOBBLIN_JDBC_SALES_URL": url}) == expected
    assert find_shown_kind(parse_job(job(type="kafka")).source, {"GOBBLIN_JDBC_SALES_URL": url}) is None


def test_a_job_brings_drivers_by_coordinates_and_paths(tmp_path: Path) -> None:
    jar = tmp_path / "a b.jar"
    jar.touch()
    parsed = parse_job(job(packages=["org.example:driver:1.0"], jars=[str(jar)]))
    assert plan_driver_jars([parsed, parsed]) == {
        "spark.jars.packages": "org.example:driver:1.0",
        "spark.jars": str(jar),
    }


@pytest.mark.parametrize(("packages", "jars", "field"), [(["a:b"], [], "packages"), ([], ["/none.jar"], "jars")])
def test_what_is_no_jar_names_its_field(packages: list[str], jars: list[str], field: str) -> None:
    with pytest.raises(RejectedError) as refused:
        plan_jars(packages, jars, field="source")
    assert refused.value.field == f"source.{field}"


@pytest.mark.parametrize(
    ("url", "driver", "expected"),
    [
        ("jdbc:mariadb://h/db", None, "jdbc:mysql://h/db?permitMysqlScheme"),
        ("jdbc:mariadb:replication://h,i/db?a=b", None, "jdbc:mysql:replication://h,i/db?a=b&permitMysqlScheme"),
        ("jdbc:mariadb://h/db", "com.example.Driver", "jdbc:mariadb://h/db"),
        ("jdbc:mysql://h/db", None, "jdbc:mysql://h/db"),
    ],
)
def test_spark_quotes_for_mariadb_as_for_mysql(url: str, driver: str | None, expected: str) -> None:
    assert JdbcConnection(url, driver=driver).spark_url == expected


def test_a_driver_that_is_not_known_has_to_be_given() -> None:
    with pytest.raises(
        RejectedError, match=r"connections\[c\]\.driver.*duckdb.*source\.packages.*gobblin_assets\.jdbc_databases"
    ):
        JdbcConnection("jdbc:somebody://h/db", name="c")
