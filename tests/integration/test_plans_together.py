"""Partitions of a dataset whose plans ask a real Postgres together: each gets what it would have got alone."""

import datetime as dt
from collections.abc import Sequence
from typing import Any, NoReturn

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.interval import Interval
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.jdbc_kind import JdbcSourceSpec
from gobblin_assets.sources.jdbc.source import JdbcSource
from gobblin_assets.sources.source_port import SourceRequest
from gobblin_assets.spec.partition_keys import asset_partition
from tests.support.jdbc import request_for
from tests.support.postgres import Database

pytestmark = pytest.mark.turns(of=4)

DAYS = 230
"""More than are asked for together."""

DATASET: dict[str, Any] = {
    "urn": "public.t",
    "extract": "append_only",
    "watermark": {"column": "at", "on_null": "ignore"},
    "partitions": {"kind": "daily", "start": "2024-01-01"},
}


@pytest.fixture
def source(fresh_database: Database) -> JdbcSource:
    with fresh_database.connect() as sql:
        # Two plans of the same table compare equal: nothing may gather statistics between them.
        sql.execute("CREATE TABLE t (id int, at timestamp) WITH (autovacuum_enabled = off)")
        # Days of three rows, of none, and of one.
        sql.execute(
            "INSERT INTO t SELECT n, timestamp '2024-01-01' + n * interval '8 hours' FROM generate_series(0, 199) n"
        )
        sql.execute("INSERT INTO t VALUES (1000, '2024-08-01'), (1001, NULL)")
        sql.execute("ANALYZE t")
    found = fresh_database
    connection = JdbcConnection(url=found.jdbc_url, user=found.user, password=found.password, name="c")
    return JdbcSource(connection, JdbcSourceSpec(connection="c", reader="arrow"))


def requests_of(data: dict[str, Any]) -> list[SourceRequest]:
    first = request_for(data)
    days = [dt.date(2024, 1, 1) + dt.timedelta(days=number) for number in range(DAYS)]
    return [request_for(data, partition=asset_partition(first.spec, day.isoformat())) for day in days]


def no_spark() -> NoReturn:
    raise AssertionError("Arrow reads")


Found = tuple[list[tuple[Interval | None, int | None]], tuple[str, ...]] | str


def plan_all(source: JdbcSource, requests: Sequence[SourceRequest], known: Sequence[SourceRequest]) -> list[Found]:
    """What each plan has, or the error that it raised."""
    found: list[Found] = []
    with source.open_plan(no_spark, lambda _said: None, known) as session:
        for request in requests:
            try:
                plan = session.plan(request)
            except RejectedError as error:
                found.append(str(error))
            else:
                units = [(unit.interval, unit.estimated_row_count) for unit in plan.work_units]
                found.append((units, tuple(plan.notes)))
    return found


def test_plans_that_ask_together_are_those_of_plans_that_ask_alone(source: JdbcSource) -> None:
    requests = requests_of(DATASET)
    alone = plan_all(source, requests, ())
    assert plan_all(source, requests, requests) == alone
    # In another order than was announced, and one of them twice.
    assert plan_all(source, [*requests[::-1], requests[7]], requests) == [*alone[::-1], alone[7]]
    assert all("1 rows of public.t.at hold NULL" in str(notes) for _units, notes in alone)


def test_a_partition_whose_question_the_source_refuses_fails_alone(source: JdbcSource) -> None:
    # The database divides by zero for the row 50 only, which is of one day.
    requests = requests_of({**DATASET, "where": "at IS NULL OR 1 / (id - 50) < 2"})
    found = plan_all(source, requests, requests)
    refused = [number for number, each in enumerate(found) if isinstance(each, str)]
    assert refused == [50 // 3]
    assert "division by zero" in found[refused[0]]
    assert found == plan_all(source, requests, ())
