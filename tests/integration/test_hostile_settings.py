"""Sessions at a source write each value in one way, whatever was set for the role, the database or both."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from gobblin_assets.errors import RejectedError
from tests.support.changed_tables import ChangedTables, set_log_variables
from tests.support.every_type import CASTS, COLUMNS, TYPES
from tests.support.jdbc import Bench, request_for
from tests.support.logged_changes import execute, read_table
from tests.support.postgres import Database
from tests.support.shares import thorough
from tests.support.source_roles import connection_of, source_role

OF_ROLE = {
    "DateStyle": "German, DMY",
    "IntervalStyle": "iso_8601",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "TimeZone": "Asia/Kathmandu",
    "client_encoding": "LATIN1",
    "search_path": "elsewhere",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
}
OF_DATABASE = {
    "IntervalStyle": "sql_standard",
    "transform_null_equals": "on",
    "array_nulls": "off",
    "standard_conforming_strings": "off",
    "gin_fuzzy_search_limit": "1",
}

# Dates, intervals, bytes, numbers, moments, texts and arrays: what the settings above change the texts of.
SET_BY_SETTINGS = ("day", "at", "span", "bytes", "raw", "float4", "float8", "pair", "text", "texts", "ever", "range")


@pytest.fixture
def hostile(source_database: Database) -> Iterator[Database]:
    """The source, by a role of its own: a table of every type, one row for each value."""
    with source_database.connect() as session:
        execute(session, TYPES.split(";"))
        columns = ", ".join(f'"{name}" {kind}' for name, (kind, _values) in COLUMNS.items())
        execute(session, [f"CREATE TABLE every (id serial PRIMARY KEY, touched int, {columns})"])
        for name, (_kind, values) in COLUMNS.items():
            execute(session, [f'INSERT INTO every ("{name}") VALUES ({value})' for value in values])
        execute(session, ["CREATE PUBLICATION lake FOR TABLE every"])
    with source_role(source_database, "REPLICATION") as other:
        with source_database.connect() as session:
            execute(session, [f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {other.user}"])
            for name, value in OF_ROLE.items():
                session.execute(
                    sql.SQL("ALTER ROLE {} SET {} = {}").format(
                        sql.Identifier(other.user), sql.Identifier(name), sql.Literal(value)
                    )
                )
            for name, value in OF_DATABASE.items():
                session.execute(
                    sql.SQL("ALTER DATABASE {} SET {} = {}").format(
                        sql.Identifier(other.database), sql.Identifier(name), sql.Literal(value)
                    )
                )
        yield other


def values_of(rows: list[dict[str, Any]]) -> Mapping[int, dict[str, str]]:
    """By their texts: a NaN equals itself there."""
    return {row["id"]: {name: repr(row[name]) for name in COLUMNS} for row in rows}


def test_copy_log_and_table_sources_write_the_same_values(
    tmp_path: Path, hostile: Database, source_database: Database, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = {"urn": "public.every", "casts": CASTS}
    tables = ChangedTables(tmp_path, hostile, engine, ["every"], {"datasets": [dataset]})
    set_log_variables(tables, monkeypatch)
    with source_database.connect() as session, tables.working():
        tables.await_copied("every")
        execute(session, ["UPDATE every SET touched = 1"])
        tables.await_published("every")
    # Those of a session without any of these settings.
    plain = values_of(read_table(source_database, "public.every", casts=CASTS).to_pylist())
    log = tables.log_of("every").to_pylist()
    seen = {
        "copy": values_of([row for row in log if row["_op"] == "r"]),
        "log": values_of([row for row in log if row["_op"] == "u"]),
        "arrow": values_of(read_table(hostile, "public.every", casts=CASTS).to_pylist()),
    }
    for who, found in seen.items():
        assert found == plain, who


@pytest.mark.parametrize("names", [SET_BY_SETTINGS, thorough(tuple(COLUMNS))], ids=["some", "all"])
def test_spark_reads_the_same_values(
    spark: SparkSession, hostile: Database, source_database: Database, names: tuple[str, ...]
) -> None:
    casts = {name: cast for name, cast in CASTS.items() if name in names}
    request = request_for(
        {"table": "public.every", "extract": "snapshot_only", "columns": ["id", *names], "casts": casts}
    )
    by_spark = [Bench(spark, connection_of(each)).run(request)[1] for each in (hostile, source_database)]
    assert Counter(map(repr, by_spark[0])) == Counter(map(repr, by_spark[1]))
    assert len(by_spark[0]) == sum(len(values) for _kind, values in COLUMNS.values())


def test_a_server_that_quotes_all_names_gives_no_wrong_value(source_database: Database) -> None:
    with source_role(source_database) as other:
        with source_database.connect() as session:
            execute(session, ["CREATE TABLE t (n int)", "INSERT INTO t VALUES (825373492)"])
            execute(session, [f"GRANT SELECT ON t TO {other.user}"])
            execute(session, [f"ALTER ROLE {other.user} SET quote_all_identifiers = on"])
        # Its four bytes are the text 1234.
        with pytest.raises(RejectedError, match="names in quotes") as refused:
            read_table(other, "public.t")
        assert "RESET quote_all_identifiers" in refused.value.hint
        with source_database.connect() as session:
            execute(session, [f"ALTER ROLE {other.user} RESET quote_all_identifiers"])
        assert read_table(other, "public.t").to_pylist() == [{"n": 825373492}]
