"""The JDBC source on a real Postgres: its promises on bounds, snapshots, types, NULLs and bad input."""

import datetime as dt
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (pyspark's own name for it)

from gobblin_assets.errors import ConflictError, RejectedError, RetryableError
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import AssetPartition, PartitionWindow
from gobblin_assets.model.watermark import WatermarkType
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.dialects.ansi import AnsiDialect
from gobblin_assets.sources.jdbc.dialects.postgres import PostgresDialect
from gobblin_assets.sources.jdbc.names import TableName
from gobblin_assets.sources.jdbc.spark_catalog import SparkCatalog
from gobblin_assets.sources.source_port import read_plan_of
from gobblin_assets.spark.connect_server import ConnectServer
from gobblin_assets.spec.partition_keys import asset_partition, list_time_partitions, open_partition
from tests.support.jdbc import Bench, collect, column, describe, new_state, publish, request_for
from tests.support.postgres import Database
from tests.support.shares import OFTEN_SHARES, rotating, thorough
from tests.support.spark import in_child, open_remote

pytestmark = pytest.mark.turns(of=8)

Connection = psycopg.Connection[tuple[Any, ...]]
APPEND = {"urn": "public.t", "extract": "append_only"}


@pytest.fixture
def sql(fresh_database: Database) -> Iterator[Any]:
    with fresh_database.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@pytest.fixture(params=[rotating("jdbc"), "arrow"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """The folder of rows that are read without Spark; None: Spark reads them, which takes ten times as long."""
    return tmp_path if request.param == "arrow" else None


@pytest.fixture
def bench(spark: SparkSession, fresh_database: Database, folder: Path | None) -> Bench:
    return Bench(spark, connection_to(fresh_database), folder=folder)


def connection_to(database: Database, **other: Any) -> JdbcConnection:
    return JdbcConnection(
        **{"url": database.jdbc_url, "user": database.user, "password": database.password, "name": "c", **other}
    )


def march(day: int = 1, *, months: int = 1) -> AssetPartition:
    start = dt.datetime(2020, 3, day, tzinfo=dt.UTC)
    return AssetPartition("2020-03", PartitionWindow(start, dt.datetime(2020, 3 + months, 1, tzinfo=dt.UTC)))


TYPES = {
    "id": ("bigint", "9223372036854775807"),
    "small": ("smallint", "-32768"),
    "wide": ("numeric(38,10)", "-1234567890123456789012345678.0123456789"),
    "whole": ("numeric(38,0)", "99999999999999999999999999999999999999"),
    "day": ("date", "0001-01-01"),
    "reform": ("date", "1582-10-15"),
    "wall": ("timestamp", "1500-02-28 23:59:59.999999"),
    "gap": ("timestamp", "2021-03-28 02:30:00.000001"),
    "instant": ("timestamptz", "1969-12-31 23:59:59.999999+00"),
    "last": ("timestamptz", "9999-12-31 23:59:59.999999+00"),
    "truth": ("boolean", "true"),
    "words": ("text", "ünïcode 'quoted' \\ \n \"line\""),
    "short": ("varchar(5)", "abc"),
    "padded": ("char(4)", "x   "),
    "raw": ("bytea", "\\x00ff10"),
    "uid": ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "doc": ("jsonb", '{"a": [1, null]}'),
    "plain": ("json", '{"b":  2}'),
    "feeling": ("mood", "so so"),
    "net": ("inet", "10.0.0.0/8"),
    "ratio": ("double precision", "NaN"),
    "half": ("real", "1.5"),
    "pos": ("positive", "7"),
    "ints": ("int[]", "{1,NULL,3}"),
    "bigs": ("bigint[]", "{9223372036854775807}"),
    "texts": ("text[]", '{x,"y,z",NULL}'),
    "decimals": ("numeric(10,2)[]", "{1.25,-2.00}"),
    "walls": ("timestamp[]", '{"1969-12-31 23:59:59.999999"}'),
    "instants": ("timestamptz[]", '{"1969-12-31 23:59:59.999999+00"}'),
    "days": ("date[]", "{1500-02-28}"),
    "uids": ("uuid[]", "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}"),
    "feelings": ("mood[]", '{"so so"}'),
    "truths": ("boolean[]", "{t,f}"),
    "raws": ("bytea[]", '{"\\\\x00ff"}'),
}
OF_EACH_SPARK_TYPE = (
    "id", "small", "wide", "day", "wall", "instant", "truth", "words", "raw", "ratio", "half", "pos", "decimals",
    "walls",
)  # fmt: skip
"""What differs on Connect: each of Spark's types, by its name in the plan."""


@pytest.fixture
def all_types(sql: Connection) -> None:
    sql.execute("CREATE TYPE mood AS ENUM ('so so'); CREATE DOMAIN positive AS int CHECK (value > 0)")
    sql.execute(f"CREATE TABLE t ({', '.join(f'{name} {kind}' for name, (kind, _) in TYPES.items())})".encode())
    values = ", ".join(f"%s::{kind}" for kind, _ in TYPES.values())
    sql.execute(f"INSERT INTO t VALUES ({values})".encode(), [text for _, text in TYPES.values()])
    sql.execute("INSERT INTO t DEFAULT VALUES")


@pytest.mark.core
@pytest.mark.usefixtures("all_types")
def test_every_supported_type_survives_exactly(bench: Bench) -> None:
    check_types(*read_types(bench))


DOMAINS = """
    CREATE DOMAIN exact AS numeric(30, 25) CHECK (value < 100);
    CREATE DOMAIN nested AS exact CHECK (value > -100);
    CREATE DOMAIN loose AS numeric;
    CREATE DOMAIN exacts AS nested[];
    CREATE DOMAIN plains AS numeric(30, 25)[];
    CREATE DOMAIN label AS varchar(5);
    CREATE DOMAIN moment AS timestamp(3);
    CREATE TYPE mood AS ENUM ('so so');
    CREATE DOMAIN feeling AS mood;
    CREATE SCHEMA other;
    CREATE DOMAIN other.numeric AS int;
    CREATE DOMAIN other.int4 AS pg_catalog.numeric(30, 25);
"""
OF_DOMAINS = {
    "one": ("nested", "1.0000000000000000000000001", "decimal(30,25)"),
    "many": ("nested[]", "{1.0000000000000000000000001,NULL,-2.5}", "array<decimal(30,25)>"),
    "over": ("exacts", "{1.0000000000000000000000001}", "array<decimal(30,25)>"),
    "plain": ("plains", "{NULL,99.0000000000000000000000009}", "array<decimal(30,25)>"),
    "label": ("label", "abc", "string"),
    "labels": ("label[]", "{abc}", "array<string>"),
    "at": ("moment", "1969-12-31 23:59:59.999", "timestamp_ntz"),
    "ats": ("moment[]", '{"1969-12-31 23:59:59.999"}', "array<timestamp_ntz>"),
    "mood": ("feeling", "so so", "string"),
    "moods": ("feeling[]", '{"so so"}', "array<string>"),
    "number": ("other.numeric", "7", "int"),
    "numbers": ("other.numeric[]", "{7}", "array<int>"),
    "whole": ("other.int4", "1.0000000000000000000000001", "decimal(30,25)"),
    "wholes": ("other.int4[]", "{1.0000000000000000000000001}", "array<decimal(30,25)>"),
}


def test_a_domain_is_read_as_the_type_below_it_with_its_digits(sql: Connection, bench: Bench) -> None:
    sql.execute(DOMAINS.encode())
    sql.execute(f"CREATE TABLE t ({', '.join(f'{name} {kind}' for name, (kind, *_) in OF_DOMAINS.items())})".encode())
    values = ", ".join(f"%s::{kind}" for kind, *_ in OF_DOMAINS.values())
    sql.execute(f"INSERT INTO t VALUES ({values})".encode(), [text for _, text, _type in OF_DOMAINS.values()])
    request = request_for({"urn": "public.t"})
    with bench.source.open_plan(lambda: bench.spark, bench.reports.append) as session:
        frame = bench.read(session.plan(request))
        assert dict(frame.dtypes) == {name: kind for name, (_kind, _text, kind) in OF_DOMAINS.items()}
        (described,) = describe(bench, {"urn": "public.t"})
        assert [(each.name, each.spark_type) for each in described.columns] == frame.dtypes
        (row,) = frame.select([F.col(name).cast("string") for name in frame.columns]).collect()
    bare = {name: text.strip("{}").replace('"', "") for name, (_kind, text, _type) in OF_DOMAINS.items()}
    digits = {"many": "1.0000000000000000000000001,NULL,-2.5000000000000000000000000"}
    found = {
        name: (text or "").strip("[]").replace(", ", ",").replace("null", "NULL") for name, text in row.asDict().items()
    }
    assert found == {**bare, **digits}


@pytest.mark.rotating(of=OFTEN_SHARES)
@pytest.mark.parametrize(
    ("kind", "said", "cast"),
    [
        ("loose", "may hold more digits than Spark's 38", "numeric(38, 10)"),
        ("loose[]", "may hold more digits than Spark's 38", "numeric(38, 10)[]"),
        ("exacts[]", "Spark has no type that holds it unchanged", "text[]"),
        ("pair", "Spark has no type that holds it unchanged", "text"),
        ("two[]", "Spark has no type that holds it unchanged", "text[]"),
        ("interval[]", "Spark has no type that holds it unchanged", "text[]"),
        ("int4range", "Spark has no type that holds it unchanged", "text"),
        ("numeric(50,2)[]", "it has 50 digits", "numeric(38, 10)[]"),
    ],
)
def test_a_domain_that_spark_cannot_hold_is_refused(
    sql: Connection, bench: Bench, kind: str, said: str, cast: str
) -> None:
    sql.execute(DOMAINS.encode())
    sql.execute("CREATE TYPE two AS (a int, b int); CREATE DOMAIN pair AS two")
    sql.execute(f"CREATE TABLE t (c {kind})".encode())
    with pytest.raises(RejectedError, match=said) as refused:
        bench.plan(request_for({"urn": "public.t"}))
    assert refused.value.field == "datasets[public.t].casts"
    # The fix in the message works.
    offered = f'"c"::{cast}'
    assert f"'{offered}'" in refused.value.hint
    (described,) = describe(bench, {"urn": "public.t"})
    assert described.casts == {"c": offered}
    assert described.columns[0].spark_type is None
    bench.run(request_for({"urn": "public.t", "casts": {"c": offered}}))


def test_not_a_number_below_a_domain_is_refused_as_itself(sql: Connection, bench: Bench) -> None:
    sql.execute("CREATE DOMAIN amount AS numeric(10, 2) CHECK (value <> 'NaN' OR value IS NULL)")
    sql.execute("CREATE DOMAIN figure AS numeric(10, 2)")
    sql.execute("CREATE TABLE t (a amount, b amount[], c figure, d figure[])")
    sql.execute("INSERT INTO t VALUES (1, '{1}', 1, '{1}')")
    bench.run(request_for({"urn": "public.t"}))
    for name, value in (("c", "NaN"), ("d", "{1,NaN}")):
        sql.execute(f"UPDATE t SET {name} = '{value}'".encode())
        with pytest.raises(RejectedError, match=rf"public\.t\.{name} .* holds .*NaN"):
            bench.run(request_for({"urn": "public.t"}))
        sql.execute(f"UPDATE t SET {name} = NULL".encode())


@pytest.mark.turns("rows on Spark Connect")
def test_a_refused_value_is_explained_on_connect(
    sql: Connection, connect: ConnectServer, fresh_database: Database
) -> None:
    sql.execute("CREATE TABLE t (id int, day date)")
    sql.execute("INSERT INTO t VALUES (1, 'infinity')")
    said = in_child(explain_remotely, connect, connection_to(fresh_database))
    assert said.startswith("datasets[public.t].casts: public.t.day (date) holds infinity")


def explain_remotely(server: ConnectServer, connection: JdbcConnection) -> str:
    with pytest.raises(RejectedError) as refused:
        Bench(open_remote(server), connection).run(request_for({"urn": "public.t"}))
    return str(refused.value)


@pytest.mark.turns("rows on Spark Connect")
@pytest.mark.parametrize("names", [OF_EACH_SPARK_TYPE, thorough(tuple(TYPES))], ids=["some", "all"])
@pytest.mark.usefixtures("all_types")
def test_every_supported_type_survives_exactly_on_connect(
    connect: ConnectServer, fresh_database: Database, names: Sequence[str]
) -> None:
    check_types(*in_child(read_types_remotely, connect, connection_to(fresh_database), names))


def read_types_remotely(
    server: ConnectServer, connection: JdbcConnection, names: Sequence[str]
) -> tuple[dict[str, str], list[dict[str, Any]]]:
    return read_types(Bench(open_remote(server), connection), names)


def read_types(bench: Bench, names: Sequence[str] = tuple(TYPES)) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Spark's type of each column, and each row as Spark's own texts."""
    data = {"urn": "t", "columns": list(names)}
    with bench.source.open_plan(lambda: bench.spark, bench.reports.append) as session:
        request = request_for(data)
        plan = session.plan(request)
        assert plan.columns["wide"] == "numeric(38,10)"
        frame = bench.read(plan)
        (described,) = describe(bench, data)
        # A table is described as a whole.
        assert [(each.name, each.spark_type) for each in described.columns if each.name in names] == frame.dtypes
        shown = frame.select(*[as_text(name, kind) for name, kind in frame.dtypes])
        return dict(frame.dtypes), [row.asDict() for row in shown.collect()]


def check_types(types: dict[str, str], found: list[dict[str, Any]]) -> None:
    assert (types["wall"], types["instant"], types["wide"]) == ("timestamp_ntz", "timestamp", "decimal(38,10)")
    assert (types["walls"], types["decimals"]) == ("array<timestamp_ntz>", "array<decimal(10,2)>")
    rows = {row["id"]: row for row in found}
    # The judge is Postgres' own text of each value, in the spelling that Spark uses for its type.
    judged = {
        **{name: text for name, (_, text) in TYPES.items()},
        "instant": "1969-12-31 23:59:59.999999",
        "last": "9999-12-31 23:59:59.999999",
        "raw": "00FF10",
        "ints": "[1, null, 3]",
        "bigs": "[9223372036854775807]",
        "texts": "[x, y,z, null]",
        "decimals": "[1.25, -2.00]",
        "walls": "[1969-12-31 23:59:59.999999]",
        "instants": "[1969-12-31 23:59:59.999999]",
        "days": "[1500-02-28]",
        "uids": "[a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11]",
        "feelings": "[so so]",
        "truths": "[true, false]",
        "raws": "[00FF]",
    }
    assert rows["9223372036854775807"] == {name: judged[name] for name in types}
    assert set(rows[None].values()) == {None}


def as_text(name: str, kind: str) -> Any:
    if kind == "binary":
        return F.hex(name).alias(name)
    shown = F.transform(name, F.hex) if kind == "array<binary>" else F.col(name)
    return shown.cast("string").alias(name)


@pytest.mark.rotating(of=OFTEN_SHARES)
@pytest.mark.parametrize(
    "kind", ["numeric", "numeric(50,2)", "numeric(3,5)", "interval", "money", "point", "time", "int4range", "bit(3)"]
)
def test_a_type_that_spark_cannot_hold_names_table_column_type_and_cast(
    sql: Connection, bench: Bench, kind: str
) -> None:
    sql.execute(f'CREATE TABLE t (id int, "odd one" {kind})'.encode())
    with pytest.raises(RejectedError, match=r"public\.t\.odd one is ") as refused:
        bench.plan(request_for({"urn": "public.t"}))
    assert refused.value.field == "datasets[public.t].casts"
    # The cast that the hint gives is accepted as it stands.
    cast = refused.value.hint.split("casts: {'odd one': '")[1].split("'}")[0]
    plan, _ = bench.run(request_for({"urn": "public.t", "casts": {"odd one": cast}}))
    assert plan.columns["odd one"] in {"text", "numeric(38,10)"}


@pytest.mark.rotating(of=OFTEN_SHARES)
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("numeric(10,2)", "NaN"),
        ("date", "infinity"),
        ("date", "-infinity"),
        ("date", "1582-10-10"),
        ("timestamp", "infinity"),
        ("timestamptz", "0044-03-15 12:00:00+00 BC"),
        ("int[]", "{{1},{2}}"),
        ("text[]", "{{a},{b}}"),
        ("numeric(5,1)[]", "{NaN}"),
        ("timestamptz[]", "{infinity}"),
    ],
)
def test_a_value_that_spark_would_change_fails_loudly(sql: Connection, bench: Bench, kind: str, value: str) -> None:
    sql.execute(f'CREATE TABLE t (id int, "a""b" {kind})'.encode())
    sql.execute(f"INSERT INTO t VALUES (1, NULL), (2, '{value}')".encode())
    with pytest.raises(RejectedError, match=r"holds .*, which Spark can't hold unchanged") as refused:
        bench.run(request_for({"urn": "public.t"}))
    assert refused.value.fields["column"] == 'a"b'
    assert refused.value.field == "datasets[public.t].casts"
    _, rows = bench.run(request_for({"urn": "public.t", "casts": {'a"b': '"a""b"::text'}}))
    assert len(rows) == 2


@pytest.mark.core
def test_consecutive_plans_meet_without_gap_or_overlap_at_a_shared_timestamp(sql: Connection, bench: Bench) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, at timestamptz NOT NULL)")
    moment = "2020-03-05 10:00:00.000001+00"
    sql.execute(f"INSERT INTO t SELECT i, '{moment}' FROM generate_series(1, 3) i".encode())
    data = {**APPEND, "watermark": {"column": "at"}}
    plan, rows = bench.run(request_for(data))
    assert column(rows) == [1, 2, 3]
    assert not plan.replaces
    state = publish(new_state("public.t"), plan)
    sql.execute("INSERT INTO t VALUES (4, '2020-03-05 10:00:00.000002+00'), (5, '2020-03-06')")
    plan, rows = bench.run(request_for(data, state))
    assert column(rows) == [4, 5]
    state = publish(state, plan)
    plan, rows = bench.run(request_for(data, state))
    assert rows == []
    assert [unit.is_empty for unit in plan.work_units] == [True]
    assert publish(state, plan).keys == state.keys


def test_the_commit_lag_and_the_clock_leave_young_rows_for_later(sql: Connection, bench: Bench) -> None:
    sql.execute("CREATE TABLE t (id int, at timestamptz NOT NULL, day date NOT NULL)")
    sql.execute(
        "INSERT INTO t VALUES (1, now() - interval '2 h', current_date - 1),"
        " (2, now() - interval '10 min', current_date), (3, now() + interval '1 h', current_date + 1)"
    )
    data = {**APPEND, "watermark": {"column": "at", "commit_lag_s": 3600}}
    assert column(bench.run(request_for(data))[1]) == [1]
    data = {**APPEND, "watermark": {"column": "at", "commit_lag_s": 0}}
    assert column(bench.run(request_for(data))[1]) == [1, 2]
    # With dates, only whole days count: today's rows are still coming.
    assert column(bench.run(request_for({**APPEND, "watermark": {"column": "day"}}))[1]) == [1]


@pytest.mark.core
def test_a_slow_transaction_is_found_by_the_late_window(
    sql: Connection, bench: Bench, fresh_database: Database
) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp())")
    late = {"column": "at", "commit_lag_s": 0, "late_window": 600}
    data = {**APPEND, "primary_key": ["id"], "watermark": late}
    with fresh_database.connect(autocommit=False) as slow:
        slow.execute("INSERT INTO t VALUES (1)")  # takes its position now, and is committed later
        sql.execute("INSERT INTO t VALUES (2)")
        plan, rows = bench.run(request_for(data))
        assert column(rows) == [2]
        slow.commit()
    state = publish(new_state("public.t"), plan)
    plan, rows = bench.run(request_for(data, state))
    # Nothing is newer; the late row is read all the same, and so are the published rows beside it.
    unit = plan.work_units[0]
    assert unit.interval is not None
    assert unit.interval.is_empty
    assert unit.reread_from is not None
    assert unit.reread_from < unit.interval.high
    assert not unit.is_empty
    assert column(rows) == [1, 2]
    assert read_plan_of(plan).late_key == ("id",)
    sql.execute("INSERT INTO t VALUES (3)")
    plan, rows = bench.run(request_for({**data, "split": {"work_unit_rows": 1}}, state))
    assert column(rows) == [1, 2, 3]
    assert [unit.reread_from is not None for unit in plan.work_units] == [True] + [False] * (len(plan.work_units) - 1)


def test_a_cast_of_the_key_of_late_rows_leads_back_to_each_value(sql: Connection, bench: Bench) -> None:
    sql.execute("CREATE TABLE t (id numeric PRIMARY KEY, at timestamptz NOT NULL DEFAULT '2026-01-01')")
    sql.execute("INSERT INTO t VALUES (0.00000000001), (0.00000000002)")
    late = {"column": "at", "commit_lag_s": 0, "late_window": 600}
    data = {**APPEND, "primary_key": ["id"], "watermark": late, "casts": {"id": "id::numeric(38, 10)"}}
    with pytest.raises(RejectedError, match=r"holds 0\.00000000001, which Spark"):
        bench.run(request_for(data))
    with pytest.raises(RejectedError, match="may give two of them one key") as refused:
        bench.run(request_for({**data, "casts": {"id": "ARRAY[id]"}}))
    assert (refused.value.field, refused.value.hint[:17]) == ("datasets[public.t].casts", 'Write "id"::text,')
    for cast, values in {"id::text": ["0.00000000001", "0.00000000002"], "id::float8": [1e-11, 2e-11]}.items():
        _plan, rows = bench.run(request_for({**data, "casts": {"id": cast}}))
        assert sorted(column(rows)) == values
    sql.execute("CREATE TABLE day (id timestamp PRIMARY KEY, at timestamptz NOT NULL DEFAULT '2026-01-01')")
    sql.execute("INSERT INTO day VALUES ('2026-01-01 10:00')")
    with pytest.raises(RejectedError, match=r"day\.id \(date\) holds 2026-01-01 10:00:00, which Spark"):
        bench.run(request_for({**data, "urn": "public.day", "casts": {"id": "id::date"}}))
    # Without late rows, nothing is told apart by it.
    plain = {**data, "watermark": {"column": "at", "commit_lag_s": 0}}
    _plan, rows = bench.run(request_for(plain))
    assert len(rows) == 2


def test_discovery_suggests_the_text_of_a_key(sql: Connection, bench: Bench) -> None:
    sql.execute("CREATE TABLE t (id numeric, other numeric, v int, PRIMARY KEY (id) INCLUDE (v))")
    (found,) = describe(bench, {"urn": "public.t"})
    assert list(found.primary_key) == ["id"]
    assert found.casts == {"id": '"id"::text', "other": '"other"::numeric(38, 10)'}


@pytest.mark.core
def test_parallel_readers_share_one_snapshot_while_rows_are_committed(
    sql: Connection, bench: Bench, fresh_database: Database
) -> None:
    sql.execute("CREATE TABLE t (id bigint PRIMARY KEY, v int)")
    sql.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 20000) i")
    sql.execute("ANALYZE t")
    request = request_for({"urn": "public.t", "split": {"work_unit_rows": 2500, "fetch_size_rows": 100}})
    ended = threading.Event()

    def disturb() -> None:
        with fresh_database.connect() as other:
            step = 0
            while not ended.is_set() and step < 100_000:
                step += 1
                other.execute("UPDATE t SET v = v + 1 WHERE id = %s", [step % 20000 + 1])
                other.execute("INSERT INTO t VALUES (%s, 1)", [100_000 + step])
                other.execute("DELETE FROM t WHERE id = %s", [20000 - step])

    thread = threading.Thread(target=disturb)
    before = sql.execute("SELECT count(*) FROM t").fetchone()

    def start_and_wait() -> None:
        thread.start()
        limit = time.monotonic() + 30
        while sql.execute("SELECT max(id) > 100050 FROM t").fetchone() != (True,):
            assert time.monotonic() < limit, "the other session did not commit"

    try:
        plan, rows = bench.run(request, start_and_wait)
    finally:
        ended.set()
        thread.join()
    assert before == (20000,)
    assert len(plan.work_units) >= 8
    assert column(rows) == list(range(1, 20001))
    assert {row[1] for row in rows} == {0}


@pytest.mark.rotating(of=3)
@pytest.mark.parametrize("key", ["id bigint PRIMARY KEY", "id bigint", "id bigint, id2 int, PRIMARY KEY (id, id2)"])
def test_a_split_snapshot_gives_every_row_once(sql: Connection, bench: Bench, key: str) -> None:
    sql.execute(f"CREATE TABLE t ({key}, filler text)".encode())
    names = "id, id2, filler" if "id2" in key else "id, filler"
    extra = "1, " if "id2" in key else ""
    insert = f"INSERT INTO t ({names}) SELECT i * i, {extra}repeat('x', 500) FROM generate_series(-2000, 2000) i"
    sql.execute(f"{insert} WHERE i >= 0 OR i % 2 = 0 AND false".encode())
    sql.execute("ANALYZE t")
    plan, rows = bench.run(request_for({"urn": "public.t", "split": {"work_unit_rows": 300}}))
    assert len(plan.work_units) > 3
    assert (plan.replaces, plan.is_snapshot, plan.mode) == (True, True, Mode.REFRESH)
    assert column(rows) == [i * i for i in range(2001)]


def test_skewed_positions_are_cut_by_the_histogram_and_read_once(sql: Connection, bench: Bench) -> None:
    sql.execute("CREATE TABLE t (id bigint NOT NULL)")
    sql.execute("INSERT INTO t SELECT i FROM generate_series(1, 9000) i UNION ALL SELECT 1000000000")
    sql.execute("ANALYZE t")
    data = {**APPEND, "watermark": {"column": "id"}, "split": {"work_unit_rows": 1000, "max_partitions": 9}}
    request = request_for(data)
    with bench.source.open_plan(lambda: bench.spark, bench.reports.append) as session:
        plan = session.plan(request)
        counts = [bench.read(plan, [unit]).count() for unit in plan.work_units]
    assert len(counts) == 9
    assert sum(counts) == 9001
    assert max(counts) < 2000


def test_a_table_that_is_worth_it_is_divided_among_the_processors(sql: Connection, bench: Bench) -> None:
    sql.execute("CREATE TABLE t (id bigint PRIMARY KEY)")
    sql.execute("INSERT INTO t SELECT generate_series(1, 250000)")
    sql.execute("ANALYZE t")
    found = bench.plan(request_for({"urn": "public.t"})).work_units
    assert len(found) == min(os.cpu_count() or 1, 2)
    assert len(bench.plan(request_for({"urn": "public.t", "split": {"work_unit_rows": 10**6}})).work_units) == 1


@pytest.mark.parametrize("more", [{}, {"extract": "snapshot_only", "watermark": None, "primary_key": ["id"]}])
def test_rows_that_are_newer_than_the_histogram_are_divided_too(
    sql: Connection, bench: Bench, more: dict[str, Any]
) -> None:
    # As an automatic ANALYZE leaves it that comes in the middle of a load.
    sql.execute("CREATE TABLE t (id bigint NOT NULL) WITH (autovacuum_enabled = false)")
    sql.execute("INSERT INTO t SELECT i FROM generate_series(1, 6000) i")
    sql.execute("ANALYZE t")
    sql.execute("INSERT INTO t SELECT i FROM generate_series(6001, 18000) i")
    data = {**APPEND, "watermark": {"column": "id"}, "split": {"work_unit_rows": 4500}, **more}
    with bench.source.open_plan(lambda: bench.spark, bench.reports.append) as session:
        plan = session.plan(request_for(data))
        counts = [bench.read(plan, [unit]).count() for unit in plan.work_units]
    assert len(counts) == 4
    assert sum(counts) == 18000
    assert max(counts) < 5500


def test_windows_load_in_any_order_and_a_complete_one_is_refreshed_by_hand(sql: Connection, bench: Bench) -> None:
    sql.execute("CREATE TABLE t (id int, at timestamp NOT NULL)")
    sql.execute(
        "INSERT INTO t VALUES (1, '2020-02-29 23:59:59.999999'), (2, '2020-03-01'), (3, '2020-03-31 23:59:59.999999'),"
        " (4, '2020-04-01')"
    )
    data = {**APPEND, "watermark": {"column": "at"}, "partitions": {"kind": "monthly", "start": "2020-01-01"}}
    plan, rows = bench.run(request_for(data, partition=march()))
    assert column(rows) == [2, 3]
    assert (plan.mode, plan.replaces) == (Mode.APPEND, False)
    state = publish(new_state("public.t"), plan)
    low = plan.work_units[0].interval
    assert low is not None
    assert low.low is not None
    assert (low.low.type, low.low.value) == (WatermarkType.LOCAL_TIMESTAMP, dt.datetime.fromisoformat("2020-03-01"))
    sql.execute("INSERT INTO t VALUES (5, '2020-03-15')")
    assert bench.run(request_for(data, state, partition=march(), by_hand=False))[1] == []
    plan, rows = bench.run(request_for(data, state, partition=march()))
    assert column(rows) == [2, 3, 5]
    assert (plan.mode, plan.replaces, plan.is_snapshot) == (Mode.REFRESH, True, False)
    sql.execute("DELETE FROM t WHERE id IN (3, 5)")
    plan, rows = bench.run(request_for(data, state, partition=march()))
    assert column(rows) == [2]
    # The last row is gone, and the watermark does not go back for it.
    assert publish(state, plan).keys == state.keys


@pytest.mark.parametrize("type_text", ["timestamp", "timestamptz"])
def test_hours_of_clocks_that_are_set_back_by_two_hours_hold_each_row_once(
    sql: Connection, bench: Bench, type_text: str
) -> None:
    zone = "Antarctica/Troll"
    sql.execute(f"SET TimeZone = '{zone}'")
    sql.execute(f"CREATE TABLE t (id int, at {type_text} NOT NULL)")
    # A row for each five minutes of the seven hours around it, as the zone's clocks showed them.
    sql.execute(
        "INSERT INTO t SELECT row_number() OVER (ORDER BY at), at"
        " FROM generate_series('2024-10-26 22:00Z', '2024-10-27 04:55Z'::timestamptz, '5 minutes') at"
    )
    hours = {"kind": "hourly", "start": "2024-10-26", "zone": zone}
    data = {**APPEND, "watermark": {"column": "at", "zone": zone}, "partitions": hours}
    spec = request_for(data).spec
    found: list[int] = []
    for key in list_time_partitions(spec, "2024-10-27-00:00", "2024-10-27-04:00"):
        plan, rows = bench.run(request_for(data, partition=asset_partition(spec, key)))
        assert plan.mode is Mode.APPEND
        found += column(rows)
    assert sorted(found) == list(range(1, 85))


def test_a_day_whose_midnight_clocks_jump_over_is_a_day_of_dates(sql: Connection, bench: Bench) -> None:
    sql.execute("CREATE TABLE t (id int, day date NOT NULL)")
    sql.execute("INSERT INTO t VALUES (1, '2023-04-27'), (2, '2023-04-28'), (3, '2023-04-28'), (4, '2023-04-29')")
    days = {"kind": "daily", "start": "2023-04-01", "zone": "Africa/Cairo"}
    data = {**APPEND, "watermark": {"column": "day"}, "partitions": days}
    spec = request_for(data).spec
    for key, expected in [("2023-04-27", [1]), ("2023-04-28", [2, 3]), ("2023-04-29", [4])]:
        assert column(bench.run(request_for(data, partition=asset_partition(spec, key)))[1]) == expected


@pytest.mark.rotating(of=3)
@pytest.mark.parametrize("kind", ["timestamptz", "timestamp", "date"])
def test_rows_whose_time_is_to_come_are_left_out_and_counted(sql: Connection, bench: Bench, kind: str) -> None:
    sql.execute(f"CREATE TABLE t (id int, at {kind} NOT NULL)")
    sql.execute(
        "INSERT INTO t VALUES (1, '2020-03-05'), (2, now() + '3 days'), (3, now() + '90 days'), (4, 'infinity'),"
        " (5, 'infinity'), (6, 'infinity')"
    )
    later = "lie ahead of the source's clock, and wait until it gets there"
    endless = "3 rows of public.t.at are at infinity, or at the end of the calendar, and are left out"
    data = {**APPEND, "watermark": {"column": "at"}}
    plan, rows = bench.run(request_for(data))
    assert column(rows) == [1]
    assert list(plan.notes) == [f"2 rows of public.t.at {later}", endless]
    # Notes do not cover past windows; for the open window they count its own rows.
    monthly = {**data, "partitions": {"kind": "monthly", "start": "2020-03-01"}}
    spec = request_for(monthly).spec
    assert bench.plan(request_for(monthly, partition=asset_partition(spec, "2020-03-01"))).notes == ()
    opened = open_partition(spec, dt.datetime.now(dt.UTC) + dt.timedelta(days=3))
    noted = bench.plan(request_for(monthly, partition=opened)).notes
    assert list(noted) == [f"1 rows of public.t.at {later}", endless]


@pytest.mark.rotating(of=OFTEN_SHARES)
@pytest.mark.parametrize("kind", ["timestamptz", "timestamp", "date"])
@pytest.mark.parametrize("value", ["-infinity", "0044-03-15 BC"])
def test_positions_before_the_calendar_are_refused_with_words_that_help(
    sql: Connection, bench: Bench, kind: str, value: str
) -> None:
    sql.execute(f'CREATE TABLE t (id int, "At" {kind} NOT NULL)')
    sql.execute(f"INSERT INTO t VALUES (0, '{value}')")
    data = {**APPEND, "watermark": {"column": "At"}}
    with pytest.raises(RejectedError, match="holds what can't be read") as refused:
        bench.run(request_for(data))
    assert "watermark.start to 1582-10-15" in refused.value.hint
    sql.execute("INSERT INTO t SELECT i, timestamp '2020-03-05' + i * interval '1 day' FROM generate_series(1, 9) i")
    with pytest.raises(RejectedError, match="holds ") as refused:
        bench.run(request_for(data))
    assert refused.value.field == "datasets[public.t].where"
    assert "watermark.start to 1582-10-15" in refused.value.hint
    split = {"split": {"work_unit_rows": 3}}
    with pytest.raises(RejectedError, match="holds what can't be read"):
        bench.run(request_for({**data, **split}))
    mended = [{"watermark": {"column": "At", "start": "1582-10-15"}}]
    if value == "-infinity":
        mended.append({"where": 'isfinite("At")'})
    for change in mended:
        for options in ({}, split):
            assert column(bench.run(request_for({**data, **options, **change}))[1]) == list(range(1, 10))


def test_a_composite_position_splits_rows_of_one_time(sql: Connection, bench: Bench) -> None:
    sql.execute("CREATE TABLE t (at timestamptz NOT NULL, id bigint NOT NULL)")
    sql.execute("INSERT INTO t SELECT '2020-03-05', i FROM generate_series(1, 5) i")
    data = {**APPEND, "watermark": {"column": "at", "key_column": "id"}}
    plan, rows = bench.run(request_for(data))
    assert column(rows, 1) == [1, 2, 3, 4, 5]
    state = publish(new_state("public.t"), plan)
    sql.execute("INSERT INTO t VALUES ('2020-03-05', 6), ('2020-03-05', 7), ('2020-03-06', 1)")
    _, rows = bench.run(request_for({**data, "split": {"work_unit_rows": 1}}, state))
    assert [(row[0].day, row[1]) for row in rows] == [(5, 6), (5, 7), (6, 1)]


def test_text_positions_compare_byte_by_byte_whatever_the_database_does(sql: Connection, bench: Bench) -> None:
    sql.execute("CREATE TABLE t (code text NOT NULL)")
    sql.execute("INSERT INTO t VALUES ('B'), ('a'), ('é'), ('it''s \\'), ('Z')")
    with pytest.raises(RejectedError, match="expected a number, a date or a timestamp"):
        bench.plan(request_for({**APPEND, "watermark": {"column": "code"}}))
    # The embedded server has only the order of bytes, so the query's text is the evidence.
    assert PostgresDialect().in_order("code", WatermarkType.STRING) == 'code COLLATE "C"'
    data = {**APPEND, "watermark": {"column": "code", "type": "string"}}
    plan, rows = bench.run(request_for(data))
    assert len(rows) == 5
    sql.execute("INSERT INTO t VALUES ('C'), ('é'), ('éa')")
    _, rows = bench.run(request_for(data, publish(new_state("public.t"), plan)))
    # 'C' lies below the watermark and a second 'é' on it: only a late window or a refresh could find them.
    assert column(rows) == ["éa"]


def test_rows_without_a_position_follow_the_rule(sql: Connection, bench: Bench) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, at timestamptz)")
    sql.execute("INSERT INTO t VALUES (1, '2020-03-05'), (2, NULL), (3, NULL)")

    def data(rule: str, extract: str = "snapshot_append") -> dict[str, Any]:
        return {"urn": "public.t", "extract": extract, "watermark": {"column": "at", "on_null": rule}}

    with pytest.raises(RejectedError, match=r"2 rows of public\.t\.at hold NULL") as refused:
        bench.plan(request_for(data("fail")))
    assert refused.value.field == "datasets[public.t].watermark.on_null"
    plan, rows = bench.run(request_for(data("ignore")))
    assert column(rows) == [1]
    assert any("2 rows" in note and "left out" in note for note in plan.notes)
    plan, rows = bench.run(request_for(data("snapshot_only")))
    assert column(rows) == [1, 2, 3]
    state = publish(new_state("public.t"), plan)
    sql.execute("INSERT INTO t VALUES (4, '2020-03-06'), (5, NULL)")
    assert column(bench.run(request_for(data("snapshot_only"), state))[1]) == [4]
    assert column(bench.run(request_for(data("snapshot_only"), state, mode=Mode.REFRESH))[1]) == [1, 2, 3, 4, 5]
    with pytest.raises(RejectedError, match="can't be kept by append_only"):
        bench.plan(request_for(data("snapshot_only", "append_only")))


def test_columns_that_come_go_or_change_are_noticed(sql: Connection, bench: Bench) -> None:
    sql.execute("CREATE TABLE t (id int, gone text, kept int)")
    state = publish(new_state("public.t"), bench.plan(request_for({"urn": "public.t"})))
    sql.execute("ALTER TABLE t ADD COLUMN fresh date")
    assert bench.plan(request_for({"urn": "public.t"}, state)).notes == ("public.t has a new column fresh (date)",)
    sql.execute("ALTER TABLE t ALTER COLUMN kept TYPE bigint")
    # The types are compared with those of published files when the rows are written.
    assert "public.t.kept was integer and is bigint now" in bench.plan(request_for({"urn": "public.t"}, state)).notes
    sql.execute("ALTER TABLE t DROP COLUMN gone")
    with pytest.raises(RejectedError, match=r"public\.t\.gone \(text\) is gone") as refused:
        bench.plan(request_for({"urn": "public.t"}, state))
    assert refused.value.field == "datasets[public.t].schema_change"
    allowed = {"urn": "public.t", "schema_change": {"allow_dropped": True}}
    assert len(bench.plan(request_for(allowed, state)).notes) == 3
    # The columns that the dataset itself leaves out did not change at the source.
    narrow = {"urn": "public.t", "columns": ["id"], "schema_change": {"allow_dropped": True}}
    assert "public.t.kept is no longer read" in bench.plan(request_for(narrow, state)).notes


def test_hostile_names_and_partition_keys_are_only_names(sql: Connection, bench: Bench) -> None:
    sql.execute('CREATE SCHEMA "my schema"')
    name = 'a.b"; DROP TABLE x; --?{ts'
    quoted = '"' + name.replace('"', '""') + '"'
    sql.execute(f'CREATE TABLE "my schema".{quoted} ("Ev""il; --?" int, "Größe {{d" text, "c0" int, w0 int)'.encode())
    sql.execute(f"""INSERT INTO "my schema".{quoted} VALUES (1, 'it''s', 3, 4), (2, '\\', 5, 6)""".encode())
    found = [table for table in bench.source.discover(lambda: bench.spark) if table.startswith("my schema")]
    assert len(found) == 1
    keyed = {"urn": "u", "table": found[0], "partitions": {"kind": "static", "keys": ["it's"], "column": "Größe {d"}}
    request = request_for(keyed, partition=AssetPartition("it's"))
    with bench.source.open_plan(lambda: bench.spark, bench.reports.append) as session:
        plan = session.plan(request)
        frame = bench.read(plan)
        assert frame.columns == ['Ev"il; --?', "Größe {d", "c0", "w0"]
        assert collect(frame, plan) == [(1, "it's", 3, 4)]
    numbered = {**keyed, "partitions": {"kind": "dynamic", "name": "n", "column": "w0"}}
    assert column(bench.run(request_for(numbered, partition=AssetPartition("6")))[1]) == [2]
    with pytest.raises(RejectedError, match=r'datasets\[u\].*invalid input syntax for type integer: "six"'):
        bench.plan(request_for(numbered, partition=AssetPartition("six")))
    appended = {"urn": "u", "table": found[0], "extract": "append_only", "watermark": {"column": 'Ev"il; --?'}}
    plan, rows = bench.run(request_for({**appended, "watermark": {"column": 'Ev"il; --?', "on_null": "ignore"}}))
    assert column(rows) == [1, 2]
    assert plan.work_units[0].key == found[0]


@pytest.mark.rotating(of=OFTEN_SHARES)
@pytest.mark.parametrize(
    ("change", "field", "text"),
    [
        ({"table": "public.T"}, "table", "'public.t'"),
        ({"table": "public.tt"}, "table", "'public.t'"),
        ({"watermark": {"column": "att"}}, "watermark.column", "'at'"),
        ({"watermark": {"column": "name", "type": "long"}}, "watermark.column", "expected a number"),
        ({"watermark": {"column": "at", "type": "long"}}, "watermark.column", "gives positions of type timestamp"),
        ({"watermark": {"column": "ok"}}, "watermark.column", "no order"),
        ({"watermark": {"column": "at", "key_column": "at"}}, "watermark.key_column", "integer or a text"),
        ({"watermark": {"column": "at", "late_window": 60}, "primary_key": []}, "primary_key", "late window"),
        ({"watermark": {"column": "at", "start": "monday"}}, "watermark.start", "not a timestamp position"),
        ({"watermark": {"column": "wall", "zone": "Mars"}}, "watermark.zone", "'Mars'"),
        ({"watermark": None}, "watermark", "column of positions"),
        ({"columns": ["id"]}, "columns", "'at' is needed"),
        ({"columns": ["id", "at", "nope"]}, "columns", "no column 'nope'"),
        ({"primary_key": ["nope"]}, "primary_key", "no column 'nope'"),
        ({"casts": {"nope": "1"}}, "casts", "no column 'nope'"),
        ({"casts": {"name": "name::nonsense"}}, None, "nonsense"),
        ({"where": "id >"}, None, "syntax error"),
    ],
)
def test_bad_input_names_its_field_and_leaves_the_session_usable(
    sql: Connection, bench: Bench, change: dict[str, Any], field: str | None, text: str
) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY, at timestamptz, name text, ok bool, wall timestamp)")
    sql.execute("INSERT INTO t VALUES (1, '2020-03-05', 'n', true, '2020-03-05')")
    good = {**APPEND, "watermark": {"column": "at"}, "primary_key": ["id"]}
    with bench.source.open_plan(lambda: bench.spark, bench.reports.append) as session:
        with pytest.raises(RejectedError) as refused:
            session.plan(request_for({**good, **change}))
        assert refused.value.field == "datasets[public.t]" + (f".{field}" if field else "")
        assert text in str(refused.value)
        request = request_for(good)
        plan = session.plan(request)
        assert column(collect(bench.read(plan), plan)) == [1]


def test_columns_that_differ_only_by_case_are_refused(sql: Connection, bench: Bench) -> None:
    sql.execute('CREATE TABLE t (id int, "ID" int)')
    with pytest.raises(RejectedError, match="Spark can't tell apart"):
        bench.plan(request_for({"urn": "public.t"}))
    assert bench.plan(request_for({"urn": "public.t", "columns": ["ID"]})).columns == {"ID": "integer"}
    # s and \u017f are one name where Spark looks for fields, and two in files; masse and maße are two everywhere.
    sql.execute('ALTER TABLE t DROP COLUMN "ID", ADD COLUMN s int, ADD COLUMN "\u017f" int')
    with pytest.raises(RejectedError, match="columns 's' and '\u017f', which Spark can't tell apart"):
        bench.plan(request_for({"urn": "public.t"}))
    sql.execute('ALTER TABLE t DROP COLUMN s, DROP COLUMN "\u017f", ADD COLUMN masse int, ADD COLUMN "maße" int')
    sql.execute("INSERT INTO t VALUES (1, 100, 7)")
    assert [tuple(row) for row in bench.run(request_for({"urn": "public.t"}))[1]] == [(1, 100, 7)]


def test_a_server_that_cannot_be_used_says_why_and_never_the_password(
    sql: Connection, spark: SparkSession, fresh_database: Database
) -> None:
    request = request_for({"urn": "public.t"})
    wrong = connection_to(fresh_database, password="tell-nobody")
    with pytest.raises(RejectedError, match=r"connections\[c\]\.password") as refused:
        Bench(spark, wrong).plan(request)
    assert "tell-nobody" not in str(refused.value)
    with pytest.raises(RejectedError, match=r"connections\[c\]\.url.*nowhere"):
        Bench(
            spark,
            connection_to(fresh_database, url=f"jdbc:postgresql://{fresh_database.host}:{fresh_database.port}/nowhere"),
        ).plan(request)
    with pytest.raises(RetryableError, match="can't be reached"):
        Bench(spark, connection_to(fresh_database, url="jdbc:postgresql://127.0.0.1:1/x")).plan(request)
    with pytest.raises(RetryableError, match="can't be reached"):
        Bench(spark, connection_to(fresh_database, url="jdbc:postgresql://no-such-host.invalid/x")).plan(request)


def test_a_lost_snapshot_and_a_slow_read_may_be_tried_again(
    sql: Connection, spark: SparkSession, fresh_database: Database, folder: Path | None
) -> None:
    sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
    sql.execute("INSERT INTO t VALUES (1)")
    bench = Bench(spark, connection_to(fresh_database), read_timeout_s=1, folder=folder)
    with pytest.raises(RetryableError, match="took too long"):
        bench.run(request_for({"urn": "public.t", "where": "pg_sleep(30) IS NOT NULL"}))

    def lose() -> None:
        sql.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND state = 'idle in transaction'"
        )

    with pytest.raises(RetryableError, match="snapshot that all readers share is gone"):
        bench.run(request_for({"urn": "public.t"}), lose)


def test_position_predicates_can_use_an_index(sql: Connection, bench: Bench) -> None:
    sql.execute("CREATE TABLE t (at timestamptz NOT NULL, id bigint NOT NULL, n numeric(10,2))")
    sql.execute(
        "INSERT INTO t SELECT '2020-01-01'::timestamptz + i * interval '1 min', i FROM generate_series(1, 50000) i"
    )
    sql.execute("CREATE INDEX ON t (at, id)")
    sql.execute("ANALYZE t")
    data = {**APPEND, "watermark": {"column": "at", "key_column": "id", "start": "2020-02-04"}}
    # The index was just made, and its building read the whole table: count that read before the reset.
    sql.execute("SELECT pg_stat_force_next_flush()")
    sql.execute("SELECT pg_stat_reset()")
    _, rows = bench.run(request_for(data))
    assert len(rows) == 50000 - 34 * 1440 + 1
    session = sql.execute("SELECT 1 FROM pg_stat_user_tables WHERE relname = 't'").fetchone()
    assert session == (1,)
    limit = time.monotonic() + 30
    # Statistics arrive when the readers' sessions end; they would count a scan of the whole table.
    while (
        found := sql.execute("SELECT seq_scan, idx_scan FROM pg_stat_user_tables WHERE relname = 't'").fetchone()
    ) == (0, 0):
        assert time.monotonic() < limit
    assert found is not None
    assert found[0] == 0


def test_a_database_without_a_dialect_of_its_own_is_reached_by_standard_sql(
    sql: Connection, spark: SparkSession, fresh_database: Database
) -> None:
    sql.execute("CREATE TABLE t (id int NOT NULL, at timestamptz, v int4range, w timestamp)")

    def reach(**other: Any) -> SparkCatalog:
        return SparkCatalog(lambda: spark, connection_to(fresh_database, **other), AnsiDialect(), 60)

    catalog = reach()
    assert catalog.list_tables() == [TableName("public", "t")]
    assert abs(catalog.now() - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=5)
    table = catalog.find_table(TableName(None, "t"))
    assert table is not None
    nullable = {column.name: column.nullable for column in table.columns}
    assert nullable == {"id": False, "at": True, "v": True, "w": True}
    # Its way of writing instants is unknown; a probe has shown that its wall clocks survive.
    kinds = [column.watermark_type for column in table.columns]
    assert kinds == [WatermarkType.LONG, None, None, WatermarkType.LOCAL_TIMESTAMP]
    assert catalog.find_table(TableName("public", "none")) is None
    with pytest.raises(RejectedError, match=r"connections\[c\]\.password") as refused:
        reach(password="tell-nobody").list_tables()
    assert "tell-nobody" not in str(refused.value)
    host = f"{fresh_database.host}:{fresh_database.port}"
    with pytest.raises(RejectedError, match=r"connections\[c\]\.url.*nowhere"):
        reach(url=f"jdbc:postgresql://{host}/nowhere").list_tables()
    with pytest.raises(RetryableError, match="can't be reached"):
        reach(url="jdbc:postgresql://127.0.0.1:1/x").list_tables()


def test_a_failure_that_is_not_the_sources_is_not_laid_on_it(
    sql: Connection, spark: SparkSession, fresh_database: Database, tmp_path: Path
) -> None:
    bench = Bench(spark, connection_to(fresh_database))
    sql.execute("CREATE TABLE t (id int)")
    request = request_for({"urn": "public.t"})
    with bench.source.open_plan(lambda: bench.spark, bench.reports.append) as session:
        plan = session.plan(request)
        frame = bench.read(plan)
        with pytest.raises(AnalysisException) as taken:
            frame.write.mode("error").parquet(str(tmp_path))
        assert isinstance(read_plan_of(plan).reader.explain(taken.value), ConflictError)
        with pytest.raises(AnalysisException) as wrong:
            frame.selectExpr("nope + 1")
        explained = read_plan_of(plan).reader.explain(wrong.value)
    assert isinstance(explained, RejectedError)
    assert "nope" in str(explained)
