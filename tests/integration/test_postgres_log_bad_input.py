"""What can't be followed is refused before a row is read, by a real Postgres and with the field and the fix."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg2
import pytest
from psycopg2.extras import LogicalReplicationConnection
from sqlalchemy import Engine

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.sink.running import open_log_connection
from gobblin_assets.model.state import DatasetId, DatasetState, LaneId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.spec.job_parsing import resolve_datasets
from tests.support.changed_tables import JOB, ChangedTables, set_log_variables
from tests.support.postgres import Database

WAL_LEVEL = "ALTER SYSTEM SET wal_level = logical"


@pytest.fixture
def tables(tmp_path: Path, source_database: Database, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> ChangedTables:
    made = ChangedTables(tmp_path, source_database, engine, ["orders"])
    made.do("CREATE TABLE orders (id int PRIMARY KEY, total int)", "CREATE PUBLICATION lake FOR TABLE orders")
    set_log_variables(made, monkeypatch)
    return made


def refusal_of(tables: ChangedTables, table: str = "orders") -> RejectedError:
    """What the worker says of a table that it has never seen."""
    job, urn = tables.job, DatasetUrn(f"public.{table}")
    spec = resolve_datasets(job, None)[urn]
    source = open_log_connection(job).open_epochs(job, urn, spec)
    with pytest.raises(RejectedError) as found:
        source.find_start(DatasetState(DatasetId(LaneId(0)), JobName(JOB), urn, 0))
    return found.value


def require(found: RejectedError, field: str, *said: str) -> None:
    assert found.field == field, found
    for each in said:
        assert each in f"{found} {found.hint}", found


def test_the_level_of_the_log_with_what_to_set(
    tables: ChangedTables, fresh_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOBBLIN_POSTGRES_LOG_SHOP_URL", fresh_database.jdbc_url)
    monkeypatch.setenv("GOBBLIN_POSTGRES_LOG_SHOP_USER", fresh_database.user)
    monkeypatch.setenv("GOBBLIN_POSTGRES_LOG_SHOP_PASSWORD", fresh_database.password)
    require(refusal_of(tables), "connections[shop].url", "expected wal_level logical, found replica", WAL_LEVEL)


def test_a_publication_that_is_missing(tables: ChangedTables) -> None:
    tables.source = {"publication": "sea"}
    require(refusal_of(tables), "source.publication", "no publication 'sea'", "CREATE PUBLICATION sea FOR TABLE")


@contextmanager
def role(tables: ChangedTables, monkeypatch: pytest.MonkeyPatch, options: str) -> Iterator[None]:
    """The job's user is one of its own. Roles belong to the whole server."""
    name = f"reader_{tables.ask('SELECT pg_backend_pid()')}"
    tables.do(f"CREATE ROLE {name} LOGIN PASSWORD 'secret-enough' {options}")
    try:
        monkeypatch.setenv("GOBBLIN_POSTGRES_LOG_SHOP_USER", name)
        monkeypatch.setenv("GOBBLIN_POSTGRES_LOG_SHOP_PASSWORD", "secret-enough")
        yield
    finally:
        tables.do(f"DROP ROLE {name}")


def test_a_user_who_may_not_replicate(tables: ChangedTables, monkeypatch: pytest.MonkeyPatch) -> None:
    with role(tables, monkeypatch, "NOREPLICATION"):
        require(refusal_of(tables), "connections[shop].user", "may not read replication slots", "REPLICATION")


def test_a_user_who_may_not_read_the_table(tables: ChangedTables, monkeypatch: pytest.MonkeyPatch) -> None:
    with role(tables, monkeypatch, "REPLICATION"):
        require(refusal_of(tables), "connections[shop].user", "may not read public.orders", "GRANT SELECT")


def test_a_slot_that_another_program_reads(tables: ChangedTables) -> None:
    tables.ask("SELECT pg_create_logical_replication_slot('gobblin_shop', 'pgoutput')::text")
    database = tables.database
    with closing(
        psycopg2.connect(
            host=database.host,
            port=database.port,
            user=database.user,
            password=database.password,
            dbname=database.database,
            application_name="connector",
            connection_factory=LogicalReplicationConnection,
        )
    ) as reader:
        options = {"proto_version": "1", "publication_names": "lake"}
        reader.cursor().start_replication(slot_name="gobblin_shop", options=options)
        require(refusal_of(tables), "source.slot", "is read by connector", "Stop that one")


def test_a_slot_of_another_kind(tables: ChangedTables) -> None:
    with slot(tables.database, "pg_create_physical_replication_slot('gobblin_shop')"):
        require(refusal_of(tables), "source.slot", "is one of physical replication; expected pgoutput", "another slot")


def test_a_slot_of_another_database(tables: ChangedTables) -> None:
    elsewhere = replace(tables.database, database="postgres")
    with slot(elsewhere, "pg_create_logical_replication_slot('gobblin_shop', 'pgoutput')"):
        require(refusal_of(tables), "source.slot", "is of the database postgres", "Name another slot")


@contextmanager
def slot(database: Database, call: str) -> Iterator[None]:
    """Slots that are not of the test's own database outlive it."""
    with database.connect() as connection:
        connection.execute(f"SELECT {call}".encode())
        try:
            yield
        finally:
            connection.execute("SELECT pg_drop_replication_slot('gobblin_shop')")


def test_a_table_that_the_publication_lacks(tables: ChangedTables) -> None:
    tables.do("CREATE TABLE late (id int PRIMARY KEY)")
    tables.tables = ["late"]
    found = refusal_of(tables, "late")
    require(found, "datasets[public.late].table", "has no table public.late", "ADD TABLE public.late", "public.orders")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("id int, total int", "has no replica identity"),
        ("id int PRIMARY KEY, _lsn int", "'_lsn', which is a name of the change log's own columns"),
        ('id int PRIMARY KEY, total int, "Total" int', "which Spark can't tell apart"),
        ("id int PRIMARY KEY, total numeric", "total"),
    ],
    ids=["no identity", "own column", "names alike", "numeric without precision"],
)
def test_tables_that_have_no_change_log(tables: ChangedTables, columns: str, said: str) -> None:
    tables.do(f"CREATE TABLE odd ({columns})", "ALTER PUBLICATION lake ADD TABLE odd")
    tables.tables = ["odd"]
    found = refusal_of(tables, "odd")
    assert str(found.field).startswith("datasets[public.odd]")
    assert said in str(found)
    assert found.hint


def test_a_table_that_is_refused_stops_no_other(tables: ChangedTables) -> None:
    tables.do("CREATE TABLE odd (id int PRIMARY KEY, _op int)", "ALTER PUBLICATION lake ADD TABLE odd")
    tables.tables = ["odd", "orders"]
    with tables.working():
        tables.await_said("public.odd: backs off")
        tables.await_copied("orders")
        tables.do("INSERT INTO orders VALUES (1, 1)", "INSERT INTO odd VALUES (1, 1)")
        tables.await_published("orders")
    tables.require_same("orders", "id")
