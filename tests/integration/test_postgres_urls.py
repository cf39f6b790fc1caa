"""A real Postgres is reached by libpq's form of its URL: by Spark's reader, by Arrow's, by change logs and by sinks."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gobblin_assets.destinations.iceberg.catalog_address import read_catalog_address
from gobblin_assets.destinations.postgres.database_address import read_address
from gobblin_assets.sources.jdbc.database_connection import DatabaseConnection
from gobblin_assets.sources.postgres_log.log_database import LogDatabase
from gobblin_assets.sources.postgres_log.server_state import open_log_session
from tests.support.jdbc import Bench, request_for
from tests.support.postgres import Database

FORMS = ("postgresql", "postgres")


def write_url(database: Database, form: str) -> str:
    return f"{form}://{database.host}:{database.port}/{database.database}?application_name=by%20{form}"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("reader", ["jdbc", "arrow"])
def test_tables_are_read(spark: SparkSession, fresh_database: Database, form: str, reader: str, tmp_path: Path) -> None:
    with fresh_database.connect() as connection:
        connection.execute("CREATE VIEW reader AS SELECT current_setting('application_name')::text AS name")
    url, user, password = write_url(fresh_database, form), fresh_database.user, fresh_database.password
    known = DatabaseConnection(url=url, user=user, password=password).connection("c")
    bench = Bench(spark, known, folder=None if reader == "jdbc" else tmp_path)

    assert [tuple(row) for row in bench.run(request_for({"urn": "public.reader"}))[1]] == [(f"by {form}",)]


@pytest.mark.parametrize("form", FORMS)
def test_change_logs_and_sinks_connect(fresh_database: Database, form: str) -> None:
    url, user, password = write_url(fresh_database, form), fresh_database.user, fresh_database.password
    log = LogDatabase(url=url, user=user, password=password).connection("c")
    environment = {
        "GOBBLIN_JDBC_C_URL": url,
        "GOBBLIN_JDBC_C_USER": user,
        "GOBBLIN_JDBC_C_PASSWORD": password,
        "GOBBLIN_ICEBERG_C_URL": url,
        "GOBBLIN_ICEBERG_C_USER": user,
        "GOBBLIN_ICEBERG_C_PASSWORD": password,
        "GOBBLIN_ICEBERG_C_WAREHOUSE": "/data",
    }
    question = "SELECT current_database(), current_setting('application_name')"
    expected = (fresh_database.database, f"by {form}")
    with open_log_session(log) as session:
        assert session.execute(question).fetchone() == expected
    with read_address("c", environment).open_session() as loading:
        assert loading.execute(question).fetchone() == expected
    with read_catalog_address("c", environment).open_session() as catalog:
        assert catalog.execute(question).fetchone() == expected
