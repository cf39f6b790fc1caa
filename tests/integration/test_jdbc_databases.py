"""One contract for all databases: a table's rows come out unchanged and once, or are refused with the way out."""

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import AssetPartition, PartitionWindow
from tests.support.databases import Database, open_database
from tests.support.jdbc import Bench, describe, new_state, publish, request_for
from tests.support.reading import firsts, run

KINDS = ("postgres", "derby", "mariadb-by-mariadb", "mariadb-by-mysql", "mysql", "sqlite", "duckdb", "h2")
WITH_INSTANTS = ("postgres", "mariadb-by-mariadb", "mariadb-by-mysql", "mysql", "duckdb")
WITH_TEXT_POSITIONS = tuple(kind for kind in KINDS if kind not in {"derby", "h2"})

TEXTS = (
    "it's",
    "",
    "a",
    "a ",
    "A",
    "a\\b",
    "\\",
    "%_",
    '"',
    "`",
    "ß",
    "\U0001f600",
    "line\nline",
    "NULL",
    "?{d 'x'}--",
)
MOMENTS = (
    *("1582-10-15 00:00:00.000000", "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00.000000"),
    *("2020-03-29 02:30:00.000000", "2020-10-25 02:30:00.100000", "2038-01-19 03:14:08.000001"),
    "9999-12-31 23:59:59.999999",
)


def few(*often: str, among: Iterable[str] = KINDS) -> pytest.MarkDecorator:
    """``often`` run in their share of the runs, the others in thorough runs only: each case is a dozen queries."""
    kinds = [
        pytest.param(kind, marks=pytest.mark.rotating if kind in often else pytest.mark.thorough) for kind in among
    ]
    return pytest.mark.parametrize("database", kinds, indirect=True)


@pytest.fixture
def database(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Database]:
    fixture = {"postgres": "fresh_database", "mysql": "mysql"}.get(request.param, "mariadb")
    yield from open_database(request.param, spark, tmp_path, lambda: request.getfixturevalue(fixture))


@pytest.fixture
def bench(database: Database) -> Bench:
    return Bench(database.spark, database.connection)


def show(moment: str) -> str:
    """A moment as Spark writes it: without trailing zeros."""
    whole, _, fraction = moment.partition(".")
    return f"{whole}.{fraction.rstrip('0')}".removesuffix(".")


def name_of(database: Database, table: str) -> str:
    return f"{database.schema}.{table}"


@few("mariadb-by-mariadb", "mariadb-by-mysql", "mysql", "sqlite", "duckdb", "h2")
def test_hostile_names_and_texts_come_through(database: Database, bench: Bench) -> None:
    table, column = 'My "Table"; `--?', 'Ev"il`; --?'
    quoted = [database.quote(name) for name in (table, "id", column)]
    database.execute(
        f"CREATE TABLE {quoted[0]} ({quoted[1]} {database.word('bigint')}, {quoted[2]} {database.word('text')})",
        *[f"INSERT INTO {quoted[0]} VALUES ({n}, {database.literal(text)})" for n, text in enumerate(TEXTS)],
        f"INSERT INTO {quoted[0]} VALUES (99, NULL)",
    )
    names = [name for name in bench.source.discover(lambda: bench.spark) if "Table" in name]
    assert names == [f'{database.schema}."{table.replace(chr(34), chr(34) * 2)}"']
    plan, rows = run(bench, request_for({"urn": "u", "table": names[0]}))
    assert list(plan.columns) == ["id", column]
    assert rows == Counter([*((str(n), text) for n, text in enumerate(TEXTS)), ("99", None)])
    # In an unknown database, nothing is known of how texts compare.
    for key in ("a", "a ", "A", "a\\b", "it's") if database.kind != "h2" else ():
        keyed = {"urn": "u", "table": names[0], "partitions": {"kind": "static", "keys": [key], "column": column}}
        _, rows = run(bench, request_for(keyed, partition=AssetPartition(key)))
        assert rows == Counter([(str(TEXTS.index(key)), key)])


@few("postgres", "mariadb-by-mysql", "sqlite", "duckdb", "h2")
def test_a_table_is_described_by_key_watermark_and_what_people_wrote(database: Database, bench: Bench) -> None:
    word = {name: database.word(name) for name in ("bigint", "text", "moment")}
    said = {"mariadb": (" COMMENT 'it''s an id'", " COMMENT 'what was sold'")}.get(database.kind, ("", ""))
    database.execute(
        f"CREATE TABLE t (a {word['bigint']} NOT NULL{said[0]}, b {word['bigint']} NOT NULL, name {word['text']},"
        f" created_at {word['moment']}, updated_at {word['moment']}, PRIMARY KEY (a, b)){said[1]}",
        f"CREATE TABLE u (id {word['bigint']} NOT NULL PRIMARY KEY, created_at {word['moment']})",
        f"CREATE TABLE w (name {word['text']})",
        "CREATE VIEW x AS SELECT a FROM t",
        *(
            ["COMMENT ON COLUMN t.a IS 'it''s an id'", "COMMENT ON TABLE t IS 'what was sold'"]
            if database.kind in ("postgres", "duckdb")
            else []
        ),
    )
    names = [name_of(database, database.folded(name)) for name in ("t", "u", "w", "x", "none")]
    t, u, w, x, none = describe(bench, *({"urn": name} for name in names))
    # Derby keeps its keys in tables of its own, which nothing here queries.
    knows_keys, knows_comments = (
        database.kind not in ("h2", "derby"),
        database.kind in ("postgres", "mariadb", "duckdb"),
    )
    assert t.primary_key == (("a", "b") if knows_keys else ())
    assert u.primary_key == (("id",) if knows_keys else ())
    assert (t.comment, t.columns[0].comment) == (("what was sold", "it's an id") if knows_comments else (None, None))
    assert [(each.comment, each.primary_key) for each in (w, x)] == [(None, ())] * 2
    assert t.watermark == database.folded("updated_at")
    assert u.watermark == database.folded("id" if knows_keys else "created_at")
    assert (w.watermark, [column.nullable for column in t.columns[:3]]) == (None, [False, False, True])
    assert (none.table, none.columns, none.error) == (names[-1], (), "the source has no such table")


@few("postgres", "mariadb-by-mariadb", "mariadb-by-mysql", "sqlite", "duckdb", "h2")
def test_wall_clocks_come_through_and_consecutive_plans_meet(database: Database, bench: Bench) -> None:
    database.execute(
        f"CREATE TABLE t (id {database.word('bigint')} NOT NULL PRIMARY KEY, seen {database.word('moment')} NOT NULL)",
        *[f"INSERT INTO t VALUES ({n}, '{moment}')" for n, moment in enumerate(MOMENTS)],
    )
    table = name_of(database, database.folded("t"))
    at, key = database.folded("seen"), database.folded("id")
    _, rows = run(bench, request_for({"urn": table}))
    assert rows == Counter((str(n), show(moment)) for n, moment in enumerate(MOMENTS))
    data = {
        "urn": table, "extract": "append_only", "primary_key": [key], "split": {"work_unit_rows": 2},
        "watermark": {"column": at, "late_window": 10},
    }  # fmt: skip
    plan, rows = run(bench, request_for(data))
    assert len(plan.work_units) > 1
    assert firsts(rows) == ["0", "1", "2", "3", "4"]
    state = publish(new_state(table), plan)
    database.execute(
        "INSERT INTO t VALUES (10, '2020-10-25 02:30:00.100001')",
        "INSERT INTO t VALUES (11, '2020-10-25 02:29:50.200000')",  # late, and within the window
        "INSERT INTO t VALUES (12, '2020-10-25 02:29:50.100000')",  # late, and below it
        "INSERT INTO t VALUES (13, '2020-10-25 02:30:00.9')",
    )
    plan, rows = run(bench, request_for(data, state))
    assert firsts(rows) == ["10", "11", "13", "4"]
    state = publish(state, plan)
    plan, rows = run(bench, request_for({**data, "watermark": {"column": at}}, state))
    assert not rows
    assert all(unit.is_empty for unit in plan.work_units)
    pair = {**data, "watermark": {"column": at, "key_column": key}}
    plan, rows = run(bench, request_for(pair))
    assert firsts(rows) == ["0", "1", "10", "11", "12", "13", "2", "3", "4"]
    database.execute("INSERT INTO t VALUES (14, '2020-10-25 02:30:00.900000')")
    assert firsts(run(bench, request_for(pair, publish(new_state(table), plan)))[1]) == ["14"]


@few("mariadb-by-mariadb", "mariadb-by-mysql", "duckdb", among=WITH_INSTANTS)
def test_instants_are_instants_whatever_zone_server_and_sessions_are_in(database: Database, bench: Bench) -> None:
    database.execute(
        f"CREATE TABLE t (id bigint NOT NULL, seen {database.word('instant')})",
        database.set_zone(),
        *[
            f"INSERT INTO t VALUES ({n}, '{at}')"
            for n, at in enumerate(("2020-01-01 12:00:00.000001", "2020-03-29 02:30:00.5", "2020-01-01 12:00:00"))
        ],
        "INSERT INTO t SELECT 9, now()",
    )
    table = name_of(database, "t")
    data = {"urn": table, "extract": "append_only", "watermark": {"column": "seen"}}
    plan, rows = run(bench, request_for(data))
    # The session that wrote was two hours east of UTC; the ninth row is younger than the commit lag.
    assert rows == Counter([
        ("0", "2020-01-01 10:00:00.000001"), ("1", "2020-03-29 00:30:00.5"), ("2", "2020-01-01 10:00:00"),
    ])  # fmt: skip
    database.execute(database.set_zone(), "INSERT INTO t VALUES (3, '2020-03-29 02:30:00.500001')")
    state = publish(new_state(table), plan)
    assert firsts(run(bench, request_for(data, state))[1]) == ["3"]
    days = (dt.date(2020, 3, 29), dt.date(2020, 3, 30))
    window = PartitionWindow(dt.datetime(2020, 3, 29, tzinfo=dt.UTC), dt.datetime(2020, 3, 30, tzinfo=dt.UTC), days)
    daily = {**data, "partitions": {"kind": "daily", "start": "2020-01-01"}}
    assert firsts(run(bench, request_for(daily, partition=AssetPartition("d", window)))[1]) == ["1", "3"]


@few("mariadb-by-mysql", "sqlite", "duckdb")
def test_dates_windows_and_missing_positions(database: Database, bench: Bench) -> None:
    database.execute(
        f"CREATE TABLE t (id {database.word('bigint')} NOT NULL PRIMARY KEY, d date)",
        *[
            f"INSERT INTO t VALUES ({n}, '{day}')"
            for n, day in enumerate(("1582-10-15", "2020-02-29", "2020-03-01", "2020-03-31", "2020-04-01"))
        ],
    )
    table, key, day = name_of(database, database.folded("t")), database.folded("id"), database.folded("d")
    days = (dt.date(2020, 3, 1), dt.date(2020, 4, 1))
    window = PartitionWindow(dt.datetime(2020, 3, 1, tzinfo=dt.UTC), dt.datetime(2020, 4, 1, tzinfo=dt.UTC), days)
    month = AssetPartition("2020-03", window)
    data = {
        "urn": table, "extract": "append_only", "primary_key": [key],
        "watermark": {"column": day, "late_window": 86_400},
    }  # fmt: skip
    monthly = {**data, "partitions": {"kind": "monthly", "start": "2020-01-01"}}
    plan, rows = run(bench, request_for(monthly, partition=month))
    assert rows == Counter([("2", "2020-03-01"), ("3", "2020-03-31")])
    state = publish(new_state(table), plan)
    database.execute("INSERT INTO t VALUES (5, '2020-03-31')", "INSERT INTO t VALUES (6, '2020-03-30')")
    assert firsts(run(bench, request_for(monthly, state, partition=month, by_hand=False))[1]) == ["3", "5"]
    plan, rows = run(bench, request_for(monthly, state, partition=month))
    assert (plan.mode, firsts(rows)) == (Mode.REFRESH, ["2", "3", "5", "6"])
    database.execute("INSERT INTO t VALUES (7, NULL)")
    with pytest.raises(RejectedError, match=r"1 rows of .* hold NULL"):
        bench.plan(request_for(data))
    snapshot = {"urn": table, "extract": "snapshot_append", "watermark": {"column": day, "on_null": "snapshot_only"}}
    assert firsts(run(bench, request_for(snapshot))[1]) == ["0", "1", "2", "3", "4", "5", "6", "7"]
    # Late rows are told apart by their keys, which a cast may make one.
    dated = {**data, "where": f"{database.quote(day)} IS NOT NULL"}
    with pytest.raises(RejectedError, match="may give two of them one key") as refused:
        bench.plan(request_for({**dated, "casts": {key: f"ABS({database.quote(key)})"}}))
    assert refused.value.field == f"datasets[{table}].casts"
    text = refused.value.hint.removeprefix("Write ").partition(", leave")[0]
    assert firsts(run(bench, request_for({**dated, "casts": {key: text}}))[1]) == ["0", "1", "2", "3", "4", "5", "6"]


@few("mariadb-by-mysql", "sqlite", "h2")
def test_numbers_to_the_ends_of_64_bits_are_positions(database: Database, bench: Bench) -> None:
    lowest, low, high = -(2**63), -(2**63) + 1, 2**63 - 2
    database.execute(
        f"CREATE TABLE t (n {database.word('bigint')}, v {database.word('text')})",
        *[f"INSERT INTO t VALUES ({n}, 'x')" for n in (low, 0, 5)],
    )
    table, column = name_of(database, database.folded("t")), database.folded("n")
    data = {"urn": table, "extract": "append_only", "watermark": {"column": column}, "split": {"work_unit_rows": 1}}
    plan, rows = run(bench, request_for(data))
    assert firsts(rows) == [str(low), "0", "5"]
    database.execute(f"INSERT INTO t VALUES ({high}, 'y')", f"INSERT INTO t VALUES ({lowest}, 'z')")
    assert firsts(run(bench, request_for(data, publish(new_state(table), plan)))[1]) == [str(high)]
    both = Counter({(str(low), "x"): 1, ("0", "x"): 1, ("5", "x"): 1, (str(high), "y"): 1, (str(lowest), "z"): 1})
    assert run(bench, request_for(data))[1] == both
    keyed = {"urn": table, "primary_key": [column], "split": {"work_unit_rows": 1}}
    assert run(bench, request_for(keyed))[1] == both


@few("mariadb-by-mysql", "sqlite", "duckdb", among=WITH_TEXT_POSITIONS)
def test_text_positions_compare_byte_by_byte(database: Database, bench: Bench) -> None:
    database.execute(
        f"CREATE TABLE t (c {database.word('text')} NOT NULL)",
        *[f"INSERT INTO t VALUES ({database.literal(text)})" for text in ("B", "a", "it's")],
    )
    table, column = name_of(database, database.folded("t")), database.folded("c")
    data = {"urn": table, "extract": "append_only", "watermark": {"column": column, "type": "string"}}
    plan, rows = run(bench, request_for(data))
    assert firsts(rows) == ["B", "a", "it's"]
    added = ("it's", "it's ", "it's\\", "IT'S", "ü", "\U0001f600")
    database.execute(*[f"INSERT INTO t VALUES ({database.literal(text)})" for text in added])
    plan, rows = run(bench, request_for(data, publish(new_state(table), plan)))
    assert firsts(rows) == sorted(["it's ", "it's\\", "ü", "\U0001f600"])


@few("mariadb-by-mariadb", "sqlite", "duckdb")
def test_what_is_wrong_names_its_field(database: Database, bench: Bench) -> None:
    long, moment, words = (database.word(name) for name in ("bigint", "moment", "text"))
    database.execute(f"CREATE TABLE t (id {long} NOT NULL, seen {moment}, v {words})")
    table, at = name_of(database, database.folded("t")), database.folded("seen")
    data = {"urn": table, "extract": "append_only", "watermark": {"column": at}}
    for change, field, text in (
        ({"table": f"{database.schema}.nope"}, ".table", "nope"),
        ({"watermark": {"column": "SEEN" if at == "seen" else "seen"}}, ".watermark.column", repr(at)),
        ({"watermark": {"column": database.folded("v")}}, ".watermark.column", "expected a"),
        ({"casts": {database.folded("v"): "NOPE(1)"}}, "", ""),
        ({"where": "id >"}, "", ""),
    ):
        with pytest.raises(RejectedError) as refused:
            bench.plan(request_for({**data, **change}))
        assert refused.value.field == f"datasets[{table}]{field}"
        assert text in str(refused.value)
