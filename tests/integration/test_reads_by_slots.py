"""A table of a real Postgres is divided for the cluster that reads it, or for this machine if it reads it itself."""

import os
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.jdbc_kind import JdbcSourceSpec
from gobblin_assets.sources.jdbc.source import JdbcSource
from tests.support.jdbc import request_for
from tests.support.postgres import Database

ROWS = 1_200_000
SLOTS = 11
"""More than this machine's readers may be, and fewer than the rows are worth."""

SNAPSHOT: dict[str, Any] = {"urn": "public.numbers"}
APPEND: dict[str, Any] = {**SNAPSHOT, "extract": "append_only", "watermark": {"column": "id"}}


@pytest.fixture
def numbers(fresh_database: Database) -> JdbcConnection:
    with fresh_database.connect() as sql:
        sql.execute("CREATE UNLOGGED TABLE numbers (id int NOT NULL)")
        sql.execute(f"INSERT INTO numbers SELECT n FROM generate_series(1, {ROWS}) n")
        sql.execute("ANALYZE numbers")
    found = fresh_database
    return JdbcConnection(url=found.jdbc_url, user=found.user, password=found.password, name="c")


def no_spark() -> NoReturn:
    raise AssertionError("a plan needs no session")


def count_units(numbers: JdbcConnection, data: dict[str, Any], slots: int | None, **source: object) -> int:
    source_spec = JdbcSourceSpec.model_validate({"connection": "c", **source})
    with JdbcSource(numbers, source_spec).open_plan(no_spark, lambda _said: None) as session:
        plan = session.plan(replace(request_for(data), slots=slots))
    return len(plan.work_units)


def test_a_table_that_spark_reads_is_divided_for_the_cluster(numbers: JdbcConnection) -> None:
    readers = min(os.cpu_count() or 1, 8)
    here = -(-2 // readers) * readers
    for data in (SNAPSHOT, APPEND):
        assert count_units(numbers, data, None, reader="jdbc") == here
        assert count_units(numbers, data, SLOTS, reader="jdbc") == SLOTS
        # Too many rows for this process, or something of the dataset that only Spark does.
        assert count_units(numbers, data, SLOTS, arrow_rows_max=ROWS // 2) == SLOTS
        assert count_units(numbers, {**data, "writer": {"partition_by": ["id"]}}, SLOTS) == SLOTS
        # This process reads it, whatever cluster there is.
        assert count_units(numbers, data, SLOTS) == here
        assert count_units(numbers, data, SLOTS, reader="arrow") == here
