"""Each database's own types: a value comes out as it went in, or the column is refused with a cast that works."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from tests.support import mariadb as mariadb_server
from tests.support.databases import Database, open_database
from tests.support.jdbc import Bench, describe, new_state, publish, request_for
from tests.support.mariadb import MariaDb
from tests.support.reading import firsts, run, run_typed
from tests.support.shares import often

MARIADB = ("mariadb-by-mariadb", "mariadb-by-mysql")
NOT_IN_MYSQL = ("json", "uuid", "inet6")
"""Of the server that the tests have."""

# Declared type, value in SQL, Spark's type, value as Spark shows it.
MARIADB_TYPES = (
    ("tinyint(1)", "7", "tinyint", "7"),
    ("boolean", "true", "tinyint", "1"),
    ("tinyint unsigned", "255", "smallint", "255"),
    ("smallint unsigned", "65535", "int", "65535"),
    ("mediumint", "-8388608", "int", "-8388608"),
    ("int unsigned zerofill", "7", "bigint", "7"),
    ("bigint unsigned", "18446744073709551615", "decimal(20,0)", "18446744073709551615"),
    ("bit(1)", "b'1'", "boolean", "true"),
    ("bit(9)", "b'100000001'", "bigint", "257"),
    ("bit(64)", "0xffffffffffffffff", "decimal(20,0)", "18446744073709551615"),
    ("decimal(38,5)", "-123456789012345678901234567890123.12345", "decimal(38,5)",
     "-123456789012345678901234567890123.12345"),
    ("decimal(10,2) unsigned", "19.99", "decimal(10,2)", "19.99"),
    ("float", "1.2345678", "float", "1.2345678"),
    ("double", "-1.2345678901234567e-301", "double", "-1.2345678901234567E-301"),
    ("char(5)", "'ab'", "string", "ab"),
    ("varchar(5)", "'ab '", "string", "ab "),
    ("char(3) character set latin1", "'é'", "string", "é"),
    ("longtext", "'l'", "string", "l"),
    ("enum('a','bcd')", "'a'", "string", "a"),
    ("set('x','y','zz')", "'y,x'", "string", "x,y"),
    ("binary(3)", "x'01'", "binary", "010000"),
    ("varbinary(3)", "x'00ff'", "binary", "00FF"),
    ("longblob", "x'ff00'", "binary", "FF00"),
    ("date", "'9999-12-31'", "date", "9999-12-31"),
    ("datetime", "'1000-01-01 00:00:00'", "timestamp_ntz", "1000-01-01 00:00:00"),
    ("datetime(6)", "'9999-12-31 23:59:59.999999'", "timestamp_ntz", "9999-12-31 23:59:59.999999"),
    ("timestamp(3) null", "'2038-01-19 03:14:07.999'", "timestamp", "2038-01-18 21:44:07.999"),
    ("year", "2155", "int", "2155"),
    ("json", "'{\"a\": [1, 2.50]}'", "string", '{"a": [1, 2.50]}'),
    ("uuid", "'123e4567-e89b-12d3-a456-426655440000'", "string", "123e4567-e89b-12d3-a456-426655440000"),
    ("inet6", "'::1'", "string", "::1"),
)  # fmt: skip

SQLITE_TYPES = (
    ("integer", "-9223372036854775808", "bigint", "-9223372036854775808"),
    ("unsigned big int", "7", "bigint", "7"),
    ("boolean", "1", "boolean", "true"),
    ("varchar(5)", "'longer than five'", "string", "longer than five"),
    ("text", "'a' || char(0) || 'b'", "string", "a\0b"),
    ("double precision", "0.1", "double", "0.1"),
    ("real", "1", "double", "1.0"),
    ("blob", "x'00ff'", "binary", "00FF"),
    ("date", "'2020-02-29'", "date", "2020-02-29"),
    ("datetime", "'2020-02-29 10:00:00.5'", "timestamp_ntz", "2020-02-29 10:00:00.5"),
    ("timestamp", "'0001-01-01 00:00:00'", "timestamp_ntz", "0001-01-01 00:00:00"),
)

DUCKDB_TYPES = (
    ("tinyint", "-128", "tinyint", "-128"),
    ("utinyint", "255", "smallint", "255"),
    ("uinteger", "4294967295", "bigint", "4294967295"),
    ("bigint", "-9223372036854775808", "bigint", "-9223372036854775808"),
    ("ubigint", "18446744073709551615", "decimal(20,0)", "18446744073709551615"),
    ("decimal(38,5)", "-123456789012345678901234567890123.12345", "decimal(38,5)",
     "-123456789012345678901234567890123.12345"),
    ("float", "1.2345678", "float", "1.2345678"),
    ("double", "0.1", "double", "0.1"),
    ("boolean", "true", "boolean", "true"),
    ("varchar", "'ü '", "string", "ü "),
    ("enum('a','bcd')", "'a'", "string", "a"),
    ("blob", "'\\x00\\xFF'::blob", "binary", "00FF"),
    ("uuid", "'123e4567-e89b-12d3-a456-426655440000'", "string", "123e4567-e89b-12d3-a456-426655440000"),
    ("date", "'1500-02-28'", "date", "1500-02-28"),
    ("timestamp", "'1500-02-28 10:00:00.000001'", "timestamp_ntz", "1500-02-28 10:00:00.000001"),
    ("timestamp_s", "'2020-01-01 10:00:00'", "timestamp_ntz", "2020-01-01 10:00:00"),
    ("timestamptz", "'2020-01-01 10:00:00.000001+02'", "timestamp", "2020-01-01 08:00:00.000001"),
)  # fmt: skip

H2_TYPES = (
    ("smallint", "-32768", "int", "-32768"),
    ("bigint", "9223372036854775807", "bigint", "9223372036854775807"),
    ("decimal(38,5)", "-123456789012345678901234567890123.12345", "decimal(38,5)",
     "-123456789012345678901234567890123.12345"),
    ("decimal(20,10)", "0.0000000001", "decimal(20,10)", "0.0000000001"),
    ("double precision", "0.1", "double", "0.1"),
    ("boolean", "true", "boolean", "true"),
    ("varchar(9)", "'it''s '", "string", "it's "),
    ("varbinary(9)", "x'00ff'", "binary", "00FF"),
    ("date", "date '1500-02-28'", "date", "1500-02-28"),
    ("timestamp(6)", "timestamp '2020-03-29 02:30:00.000001'", "timestamp_ntz", "2020-03-29 02:30:00.000001"),
)  # fmt: skip

TABLES = {
    **dict.fromkeys(MARIADB, MARIADB_TYPES),
    "mysql": tuple(row for row in MARIADB_TYPES if row[0] not in NOT_IN_MYSQL),
    "sqlite": SQLITE_TYPES,
    "duckdb": DUCKDB_TYPES,
    "h2": H2_TYPES,
}

# Declared type, a value in SQL (None if the type itself is refused), the cast to write, its result.
REFUSED = (
    *((kind, *row) for kind in (*MARIADB, "mysql") for row in (
        ("time(3)", None, "CAST(`v` AS CHAR)", "'-838:59:58.5'", "-838:59:58.500"),
        ("decimal(65,30)", None, "CAST(`v` AS CHAR)", "1.5", "1.500000000000000000000000000000"),
        ("point", None, "ST_AsText(`v`)", "point(1,2)", "POINT(1 2)"),
        ("date", "'0000-00-00'", "CAST(`v` AS CHAR)", "'0000-00-00'", "0000-00-00"),
        ("datetime", "'2020-00-00 00:00:00'", "CAST(`v` AS CHAR)", "'2020-00-00 00:00:00'", "2020-00-00 00:00:00"),
    )),
    ("sqlite", "numeric(10,2)", None, 'CAST("v" AS TEXT)', "19.99", "19.99"),
    ("sqlite", "", None, 'CAST("v" AS TEXT)', "7", "7"),
    ("sqlite", "integer", "'seven'", 'CAST("v" AS TEXT)', "'seven'", "seven"),
    ("sqlite", "boolean", "2", 'CAST("v" AS TEXT)', "2", "2"),
    ("sqlite", "real", "'x'", 'CAST("v" AS TEXT)', "'x'", "x"),
    ("sqlite", "datetime", "'2020-01-01T10:00:00Z'", 'CAST("v" AS TEXT)', "'2020-01-01T10:00:00Z'",
     "2020-01-01T10:00:00Z"),
    ("sqlite", "datetime", "1577872800", 'CAST("v" AS TEXT)', "1577872800", "1577872800"),
    ("duckdb", "hugeint", None, 'CAST("v" AS VARCHAR)', "170141183460469231731687303715884105727",
     "170141183460469231731687303715884105727"),
    ("duckdb", "time", None, 'CAST("v" AS VARCHAR)', "'10:00:00'", "10:00:00"),
    ("duckdb", "timestamp_ns", None, 'CAST("v" AS VARCHAR)', "'2020-01-01 10:00:00.123456789'",
     "2020-01-01 10:00:00.123456789"),
    ("duckdb", "integer[]", None, 'CAST("v" AS VARCHAR)', "[1, 2]", "[1, 2]"),
    ("duckdb", "timestamp", "'infinity'", 'CAST("v" AS VARCHAR)', "'infinity'", "infinity"),
    ("h2", "time", None, 'CAST("V" AS VARCHAR(1000))', "time '10:00:00'", "10:00:00"),
    ("h2", "decfloat(38)", "1.5", 'CAST("V" AS VARCHAR(1000))', "1.5", "1.5"),
    ("h2", "timestamp(9)", "timestamp '2020-01-01 10:00:00.123456789'", 'CAST("V" AS VARCHAR(1000))',
     "timestamp '2020-01-01 10:00:00.123456789'", "2020-01-01 10:00:00.123456789"),
    ("h2", "timestamp(6) with time zone", None, 'CAST("V" AT TIME ZONE \'UTC\' AS TIMESTAMP(6))',
     "timestamp with time zone '2020-01-01 10:00:00.5+02:00'", "2020-01-01 08:00:00.5"),
)  # fmt: skip


def kinds_of(names: Iterable[str]) -> list[Any]:
    """MariaDB by its own driver, which the contract mostly covers, is tried only in the thorough tests."""
    return [thorough(name) if name == "mariadb-by-mariadb" else often(name) for name in names]


def thorough(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.thorough)


@pytest.fixture
def database(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Database]:
    kind = getattr(request, "param", None) or request.getfixturevalue("kind")
    fixture = "mysql" if kind == "mysql" else "mariadb"
    yield from open_database(kind, spark, tmp_path, lambda: request.getfixturevalue(fixture))


@pytest.fixture
def bench(database: Database) -> Bench:
    return Bench(database.spark, database.connection)


@pytest.mark.parametrize("kind", kinds_of(TABLES))
def test_what_goes_in_comes_out(kind: str, database: Database, bench: Bench) -> None:
    rows = TABLES[kind]
    columns = ", ".join(f"c{n} {declared}" for n, (declared, *_) in enumerate(rows))
    database.execute(
        f"CREATE TABLE t ({columns})",
        f"INSERT INTO t VALUES ({', '.join(value for _, value, *_ in rows)})",
        f"INSERT INTO t VALUES ({', '.join('NULL' for _ in rows)})",
    )
    request = request_for({"urn": f"{database.schema}.{database.folded('t')}"})
    _plan, types, found = run_typed(bench, request)
    assert types == [spark_type for *_, spark_type, _ in rows]
    (described,) = describe(bench, {"urn": request.urn})
    assert [column.spark_type for column in described.columns] == [spark_type for *_, spark_type, _ in rows]
    assert described.casts == {}
    full = next(row for row in found if any(value is not None for value in row))
    assert list(full) == [shown for *_, shown in rows]
    assert found == Counter([full, (None,) * len(rows)])


@pytest.mark.parametrize("kind", kinds_of(dict.fromkeys(row[0] for row in REFUSED)))
def test_what_cannot_come_out_unchanged_is_refused_with_the_cast(kind: str, database: Database, bench: Bench) -> None:
    rows = [row[1:] for row in REFUSED if row[0] == kind]
    lenient = ["SET sql_mode = ''"] if database.kind == "mariadb" else []
    database.execute(
        *lenient,
        f"CREATE TABLE t ({', '.join(f'v{n} {declared}' for n, (declared, *_) in enumerate(rows))})",
        f"INSERT INTO t VALUES ({', '.join(stored for *_, stored, _ in rows)})",
    )
    data: dict[str, Any] = {"urn": f"{database.schema}.{database.folded('t')}"}
    casts = {}
    for number, (declared, value, cast, _, _) in enumerate(rows):
        column = database.folded(f"v{number}")
        casts[column] = cast.replace(database.quote(database.folded("v")), database.quote(column))
        with pytest.raises(RejectedError) as refused:
            (bench.plan if value is None else bench.run)(request_for({**data, "columns": [column]}))
        assert refused.value.field == f"datasets[{data['urn']}].casts", declared
        # A type is refused with the text of a job file, a value with that of Python.
        assert (casts[column].replace("'", "''") if value is None else repr(casts[column])) in refused.value.hint, (
            declared
        )
        assert "SQLSTATE" not in refused.value.message, declared
    (described,) = describe(bench, data)
    types = [database.folded(f"v{number}") for number, (_, value, *_) in enumerate(rows) if value is None]
    assert described.casts == {column: casts[column] for column in types}
    (described,) = describe(bench, {**data, "casts": casts})
    assert {column.spark_type for column in described.columns} >= {"string"}
    assert not described.casts
    assert run(bench, request_for({**data, "casts": casts}))[1] == Counter([tuple(shown for *_, shown in rows)])


@pytest.mark.turns("what Spark meets", of=8)
@pytest.mark.parametrize("database", [thorough("mariadb-by-mariadb"), "mariadb-by-mysql"], indirect=True)
def test_newest_rows_of_every_precision_are_read_once(database: Database, bench: Bench) -> None:
    for declared, step in (
        ("datetime", "10:00:01"),
        ("datetime(6)", "10:00:00.000001"),
        ("timestamp(3)", "10:00:00.001"),
    ):
        name = "t_" + declared.translate(str.maketrans("()", "__"))
        database.execute(
            "SET time_zone = '+00:00'",
            f"CREATE TABLE {name} (id bigint unsigned not null auto_increment primary key, seen {declared} not null)",
            f"INSERT INTO {name} (seen) VALUES ('2020-01-01 10:00:00'), ('2020-01-01 {step}'), ('2020-01-01 {step}')",
        )
        data = {"urn": f"{database.schema}.{name}", "extract": "append_only", "watermark": {"column": "seen"}}
        plan, rows = run(bench, request_for(data))
        assert sorted(str(row[0]) for row in rows.elements()) == ["1", "2", "3"]
        state = publish(new_state(data["urn"]), plan)
        database.execute("SET time_zone = '+00:00'", f"INSERT INTO {name} (seen) VALUES ('2020-01-01 11:00:00')")
        plan, rows = run(bench, request_for(data, state))
        assert [row[0] for row in rows] == ["4"]
        # An unsigned key is a position as long as it fits 64 bits.
        keyed = {**data, "watermark": {"column": "id"}}
        assert len(run(bench, request_for(keyed))[1]) == 4
        database.execute(f"INSERT INTO {name} VALUES (9223372036854775808, '2020-01-01 12:00:00')")
        with pytest.raises(RejectedError, match=r"1 rows of .*no positions of type long"):
            bench.plan(request_for(keyed))


POSITIONS = {
    "mariadb-by-mysql": (
        ("tinyint(1)", ("-3", "0", "7")),
        ("int unsigned", ("0", "5", "4294967295")),
        ("bigint unsigned", ("0", "5", "9223372036854775806")),
        ("decimal(18,0)", ("-999999999999999999", "0", "7")),
        ("date", ("'0001-01-01'", "'2020-02-29'", "'2020-03-01'")),
        ("datetime(3)", ("'2020-01-01 10:00:00.001'", "'2020-01-01 10:00:00.002'", "'2020-01-01 10:00:00.003'")),
    ),
    "duckdb": (
        ("utinyint", ("0", "7", "255")),
        ("uinteger", ("0", "7", "4294967295")),
        ("ubigint", ("0", "7", "9223372036854775806")),
        ("decimal(18,0)", ("-999999999999999999", "0", "7")),
        ("timestamp_s", ("'2020-01-01 10:00:00'", "'2020-01-01 10:00:01'", "'2020-01-01 10:00:02'")),
        ("timestamp_ms", ("'2020-01-01 10:00:00'", "'2020-01-01 10:00:00.001'", "'2020-01-01 10:00:00.002'")),
    ),
}


@pytest.mark.turns("what Spark meets", of=8)
@pytest.mark.parametrize("kind", ["duckdb", thorough("mariadb-by-mysql")])
def test_every_type_of_position_splits_and_goes_on(kind: str, database: Database, bench: Bench) -> None:
    for number, (declared, (first, second, third)) in enumerate(POSITIONS[kind]):
        database.execute(
            f"CREATE TABLE t{number} (n int, p {declared})",
            f"INSERT INTO t{number} VALUES (1, {first}), (2, {second})",
        )
        data = {
            "urn": f"{database.schema}.t{number}", "extract": "append_only", "watermark": {"column": "p"},
            "split": {"work_unit_rows": 1},
        }  # fmt: skip
        plan, rows = run(bench, request_for(data))
        assert (firsts(rows), len(plan.work_units)) == (["1", "2"], 2), declared
        database.execute(f"INSERT INTO t{number} VALUES (3, {third})")
        if declared.endswith(("int", "unsigned")):
            keyed = {"urn": data["urn"], "primary_key": ["p"], "split": {"work_unit_rows": 1}}
            assert firsts(run(bench, request_for(keyed))[1]) == ["1", "2", "3"], declared
        assert firsts(run(bench, request_for(data, publish(new_state(data["urn"]), plan)))[1]) == ["3"], declared


@pytest.mark.turns("what Spark meets", of=8)
def test_a_position_of_sqlite_is_of_one_form(spark: SparkSession, tmp_path: Path) -> None:
    database = next(open_database("sqlite", spark, tmp_path, None))
    bench = Bench(spark, database.connection)
    database.execute("CREATE TABLE t (id integer primary key, n integer, seen datetime)")
    for column, good, bad in (("n", "5", "'5x'"), ("n", "5", "1.5"), ("seen", "'2020-01-01 10:00:00.5'", "'2020-1-1'")):
        database.execute("DELETE FROM t", f"INSERT INTO t (id, {column}) VALUES (1, {good})")
        data = {"urn": "main.t", "extract": "append_only", "watermark": {"column": column}}
        plan, rows = run(bench, request_for(data))
        assert len(rows) == 1
        database.execute(f"INSERT INTO t (id, {column}) VALUES (2, {bad})")
        with pytest.raises(RejectedError, match=rf"1 rows of main\.t\.{column} hold values"):
            bench.plan(request_for(data, publish(new_state("main.t"), plan)))
    database.execute(
        "DELETE FROM t",
        "INSERT INTO t (id, seen) VALUES (1, '2020-01-01 10:00:00.5'), (2, '2020-01-01 10:00:00.500'),"
        " (3, '2020-01-01 10:00:00'), (4, '2020-01-01 10:00:00.500000')",
    )
    plan, rows = run(bench, request_for(data))
    assert len(rows) == 4
    assert not run(bench, request_for(data, publish(new_state("main.t"), plan)))[1]


def test_a_database_that_cannot_be_opened_is_named(spark: SparkSession, mariadb: MariaDb, tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database at all, and long enough to be looked at" * 100)
    password = {"user": mariadb_server.USER, "password": "geheim-7"}
    for url, field, given in (
        (f"jdbc:sqlite:{tmp_path}/none.db", "url", {}),
        (f"jdbc:sqlite:{tmp_path}/text.db", "url", {}),
        (f"jdbc:duckdb:{tmp_path}/none.duckdb", "url", {}),
        (f"jdbc:mariadb://{mariadb.address}", "password", password),
        (f"jdbc:mysql://{mariadb.address}", "password", password),
        (f"jdbc:mysql://{mariadb.address}x", "url", {**password, "password": mariadb_server.PASSWORD}),
    ):
        with pytest.raises(RejectedError) as refused:
            Bench(spark, JdbcConnection(url, name="c", **given)).plan(request_for({"urn": "main.t"}))
        assert refused.value.field == f"connections[c].{field}"
        assert "geheim-7" not in str(refused.value)
    assert not (tmp_path / "none.db").exists()
