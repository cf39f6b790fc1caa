"""Tables of a real Postgres with marks: values as they were, columns as they are, and one load of each publication."""

import datetime as dt
import math
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from gobblin_assets.commit.published.published_port import RowsElsewhere
from gobblin_assets.commit.published.verification import Damage
from gobblin_assets.destinations.lane_marks import LaneMark, MarkPlace
from gobblin_assets.destinations.load_rows import TableBatch
from gobblin_assets.destinations.loaded_destination import find_load_faults
from gobblin_assets.destinations.postgres import postgres_tables
from gobblin_assets.destinations.postgres.database_address import read_address
from gobblin_assets.destinations.postgres.postgres_tables import PostgresTables
from gobblin_assets.destinations.postgres.tables_place import TablesPlace
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.failpoints import Failpoint, install
from gobblin_assets.model.urn import DatasetUrn
from tests.simulation.commit_store import SimCommitStepStore
from tests.simulation.database import SimDatabase
from tests.support.postgres import Database
from tests.support.postgres_rows import CONNECTION, variables_for
from tests.support.spark import wait_until

TABLE = LoadedTable("shop", "Order rows")
PLACE = MarkPlace("marks", "root", "job", "orders", 0)
TEXTS = [
    "",
    "plain",
    "tab\there",
    "line\nend",
    "return\r",
    "\\N",
    "\\.",
    "a\\b",
    '"quoted"',
    "{},NULL",
    "žluť 🐎",
    None,
]


def batch_of(rows: pa.RecordBatch, version: int = 1) -> TableBatch:
    return TableBatch(TABLE, PLACE, version, str(uuid.uuid4()), rows.num_rows)


@pytest.fixture
def tables(fresh_database: Database) -> Iterator[PostgresTables]:
    """The database's own settings are not those that a load needs."""
    with fresh_database.connect() as session:
        for setting in ("TimeZone = 'Asia/Tokyo'", "synchronous_commit = off", "DateStyle = 'SQL, DMY'"):
            session.execute(f'ALTER DATABASE "{fresh_database.database}" SET {setting}')
    opened = PostgresTables(read_address(CONNECTION, variables_for(fresh_database)))
    yield opened
    opened.close()


def load(tables: PostgresTables, rows: pa.RecordBatch, version: int = 1) -> None:
    batch = batch_of(rows, version)
    tables.prepare(batch, rows.schema)
    tables.load(batch, [rows.slice(0, 1), rows.slice(1)])


def values_of(database: Database, column: str) -> list[object]:
    with database.connect() as session:
        session.execute("SELECT set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO, MDY', false)")
        return [row[0] for row in session.execute(f'SELECT "{column}" FROM shop."Order rows" ORDER BY n').fetchall()]


def numbered(name: str, values: pa.Array) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(len(values)), pa.int64()), values], names=["n", name])


INSTANT = dt.datetime(2026, 3, 1, 12, 30, 1, 123456, tzinfo=dt.UTC)
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False, None]),
    "tinyint": (pa.int8(), [-128, 127, None]),
    "smallint": (pa.int16(), [-32768, 32767, None]),
    "int": (pa.int32(), [-(2**31), 2**31 - 1, None]),
    "bigint": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "float": (pa.float32(), [1.5, -math.inf, math.inf, None]),
    "double": (pa.float64(), [0.1, 1e308, 5e-324, -0.0, None]),
    "string": (pa.string(), TEXTS),
    "binary": (pa.binary(), [b"", bytes(range(256)), b"\\x", None]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "instant": (pa.timestamp("us", tz="UTC"), [INSTANT, dt.datetime(1, 1, 1, tzinfo=dt.UTC), None]),
    "wall clock": (pa.timestamp("us"), [INSTANT.replace(tzinfo=None), None]),
    "decimal": (pa.decimal128(38, 10), [Decimal("12345678901234567890.0000000001"), Decimal("-1E-10"), None]),
    "whole decimal": (pa.decimal128(20, 0), [Decimal(10**19), None]),
    "texts": (pa.list_(pa.string()), [TEXTS, [], [None], None]),
    "numbers": (pa.list_(pa.int32()), [[1, None, -3], [], None]),
    "bytes": (pa.list_(pa.binary()), [[b"\\x00", b"", None]]),
    "instants": (pa.list_(pa.timestamp("us", tz="UTC")), [[INSTANT, None]]),
    "flags": (pa.list_(pa.bool_()), [[True, False, None]]),
    "record": (
        pa.struct([("a", pa.int32()), ("b", pa.string()), ("c", pa.list_(pa.string()))]),
        [{"a": 1, "b": 'x"\\\n\t', "c": ["é", None]}, None],
    ),
    "records": (pa.list_(pa.struct([("key", pa.string())])), [[{"key": "a"}, None], []]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)], None]),
}


@pytest.mark.parametrize("name", KINDS)
def test_each_value_is_in_the_table_as_it_was(tables: PostgresTables, fresh_database: Database, name: str) -> None:
    kind, values = KINDS[name]

    load(tables, numbered(name, pa.array(values, kind)))

    expected = [None if each is None else dict(each) if name == "map" else each for each in values]
    assert values_of(fresh_database, name) == expected


def test_rows_that_come_in_several_pieces_are_all_there(tables: PostgresTables, fresh_database: Database) -> None:
    rows = pa.table({"n": range(1000), "b": [bytes([n % 256]) * (n % 7) for n in range(1000)]})
    batch = TableBatch(TABLE, PLACE, 1, str(uuid.uuid4()), 1000)
    tables.prepare(batch, rows.schema)

    tables.load(batch, iter(rows.to_batches(max_chunksize=77)))

    assert values_of(fresh_database, "b") == [bytes([n % 256]) * (n % 7) for n in range(1000)]


def test_a_column_that_joins_later_is_added(tables: PostgresTables, fresh_database: Database) -> None:
    load(tables, numbered("a", pa.array(["x"])))
    more = pa.record_batch([pa.array([1]), pa.array([2.5])], names=["n", "b"])

    load(tables, more, version=2)

    assert values_of(fresh_database, "a") == ["x", None]
    assert values_of(fresh_database, "b") == [None, 2.5]


@pytest.mark.parametrize(
    ("existing", "kind", "is_held"),
    [
        ("bigint", pa.int32(), True),
        ("numeric", pa.int64(), True),
        ("numeric", pa.decimal128(10, 2), True),
        ("numeric(12,3)", pa.decimal128(10, 2), True),
        ("numeric(12,1)", pa.decimal128(10, 2), False),
        ("numeric(10,3)", pa.decimal128(10, 2), False),
        ("integer", pa.int64(), False),
        ("real", pa.float64(), False),
        ("varchar", pa.string(), True),
        ("varchar(10)", pa.string(), False),
        ("timestamp", pa.timestamp("us", tz="UTC"), False),
        ("bigint[]", pa.list_(pa.int32()), True),
        ("integer[]", pa.list_(pa.int64()), False),
        ("bigint GENERATED ALWAYS AS (1) STORED", pa.int64(), False),
    ],
    ids=str,
)
def test_an_existing_column_must_hold_each_value(
    tables: PostgresTables, fresh_database: Database, existing: str, kind: pa.DataType, is_held: bool
) -> None:
    with fresh_database.connect() as session:
        session.execute("CREATE SCHEMA shop")
        session.execute(f'CREATE TABLE shop."Order rows" (n bigint, a {existing})')
    rows = numbered("a", pa.array([None], kind))

    if is_held:
        load(tables, rows)
        assert values_of(fresh_database, "a") == [None]
        return
    with pytest.raises(RejectedError, match=r"into: shop\.Order rows has the column 'a' as") as raised:
        load(tables, rows)
    assert raised.value.hint


@pytest.mark.parametrize(
    "statements",
    [
        ['CREATE VIEW shop."Order rows" AS SELECT 1 AS n'],
        ['CREATE UNLOGGED TABLE shop."Order rows" (n bigint)'],
        ['CREATE TABLE shop."Order rows" (n bigint, other text NOT NULL)'],
    ],
    ids=str,
)
def test_what_can_t_take_the_rows_is_refused(
    tables: PostgresTables, fresh_database: Database, statements: list[str]
) -> None:
    with fresh_database.connect() as session:
        for statement in ["CREATE SCHEMA shop", *statements]:
            session.execute(statement)

    with pytest.raises(RejectedError, match=r"^into: ") as raised:
        load(tables, numbered("a", pa.array(["x"])))
    assert raised.value.hint


def test_rows_that_the_database_refuses_leave_nothing_behind(tables: PostgresTables, fresh_database: Database) -> None:
    rows = numbered("a", pa.array(["x", "nul\0here"]))
    batch = batch_of(rows)
    tables.prepare(batch, rows.schema)

    with pytest.raises(RejectedError, match=r"^into: the database refused the rows: .* 0x00") as raised:
        tables.load(batch, [rows])

    assert "here" not in str(raised.value)
    assert values_of(fresh_database, "a") == []
    assert tables.find_mark(PLACE) == LaneMark(0)


def test_a_load_is_durable_and_a_paused_one_is_ended_before_others_give_up_waiting(tables: PostgresTables) -> None:
    names = ("synchronous_commit", "idle_in_transaction_session_timeout", "lock_timeout")
    seen: list[tuple[Any, ...]] = []

    def look(reached: Failpoint) -> None:
        session = tables._session
        if reached is Failpoint.LOAD_BEFORE_COMMIT and session is not None:
            seen.extend(session.execute(f"SHOW {name}").fetchone() or () for name in names)

    with install(look):
        load(tables, numbered("a", pa.array(["x", "y"])))

    assert seen == [("on",), ("20s",), ("30s",)]


def test_a_trigger_that_leaves_rows_out_is_named_and_nothing_is_loaded(
    tables: PostgresTables, fresh_database: Database
) -> None:
    rows = numbered("a", pa.array(["x", "y"]))
    load(tables, rows)
    with fresh_database.connect() as session:
        session.execute("CREATE FUNCTION leave() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        session.execute('CREATE TRIGGER leave BEFORE INSERT ON shop."Order rows" FOR EACH ROW EXECUTE FUNCTION leave()')

    with pytest.raises(RejectedError, match="took 0 of 2 rows: a trigger or a rule of it leaves rows out") as refused:
        load(tables, rows, version=2)

    assert refused.value.field == "into"
    assert tables.find_mark(PLACE) is not None
    assert values_of(fresh_database, "a") == ["x", "y"]


def test_verify_says_that_a_table_is_gone_though_its_marks_are_there(
    tables: PostgresTables, fresh_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables_for(fresh_database).items():
        monkeypatch.setenv(name, value)
    load(tables, numbered("a", pa.array(["x"])))
    urn = DatasetUrn("orders")
    place, published = TablesPlace(CONNECTION, {urn: TABLE}, "marks"), RowsElsewhere("jdbc:warehouse", 1)
    log = SimCommitStepStore(SimDatabase())
    assert list(find_load_faults(log, place, PLACE, urn, published, counts_rows=False)) == []

    with fresh_database.connect() as session:
        session.execute('ALTER TABLE shop."Order rows" RENAME TO other')
    faults = list(find_load_faults(log, place, PLACE, urn, published, counts_rows=False))
    assert [fault.damage for fault in faults] == [Damage.MISSING]
    assert "is gone, the table into which 1 rows of orders were loaded" in faults[0].detail

    with fresh_database.connect() as session:
        session.execute('CREATE TABLE shop."Order rows" (LIKE shop.other)')
    faults = list(find_load_faults(log, place, PLACE, urn, published, counts_rows=False))
    assert "is another table than the one into which 1 rows" in faults[0].detail


def test_readers_are_not_kept_waiting_by_a_column_that_waits_to_be_added(
    tables: PostgresTables, fresh_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long query has the table. Whoever comes behind the change in the queue of its locks would wait for that too."""
    monkeypatch.setattr(postgres_tables, "_GIVE_WAY_S", 0.1)
    load(tables, numbered("a", pa.array(["x"])))
    wider = pa.record_batch({"n": [1], "a": ["y"], "b": ["new"]})
    with (
        fresh_database.connect(autocommit=False) as long_query,
        fresh_database.connect() as reader,
        ThreadPoolExecutor(1) as pool,
    ):
        long_query.execute('SELECT FROM shop."Order rows"')
        reader.execute("SET statement_timeout = '1s'")
        adding = pool.submit(load, tables, wider, 2)
        wait_until(lambda: _is_waited_for(fresh_database), "the change waits for the long query")
        for _look in range(20):
            reader.execute('SELECT FROM shop."Order rows"')
        assert not adding.done()
        long_query.rollback()
        adding.result(timeout=30)
    assert values_of(fresh_database, "b") == [None, "new"]


def test_a_table_that_can_t_be_changed_for_long_is_left_to_the_next_try(
    tables: PostgresTables, fresh_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_tables, "_GIVE_WAY_S", 0.01)
    monkeypatch.setattr(postgres_tables, "_CHANGE_S_MAX", 0.0)
    load(tables, numbered("a", pa.array(["x"])))
    with fresh_database.connect(autocommit=False) as long_query:
        long_query.execute('SELECT FROM shop."Order rows"')
        with pytest.raises(RetryableError, match="lock timeout") as raised:
            load(tables, pa.record_batch({"n": [1], "a": ["y"], "b": ["new"]}), 2)
    assert raised.value.passes
    load(tables, pa.record_batch({"n": [1], "a": ["y"], "b": ["new"]}), 2)
    assert values_of(fresh_database, "b") == [None, "new"]


def _is_waited_for(database: Database) -> bool:
    with database.connect() as session:
        query = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return session.execute(query).fetchone() is not None
