"""The JDBC source on Derby, reached only through Spark: nothing may be Postgres-only by accident."""

import datetime as dt
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import AssetPartition, PartitionWindow
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from tests.support.jdbc import Bench, collect, column, new_state, publish, request_for
from tests.support.shares import OFTEN_SHARES

pytestmark = pytest.mark.turns(of=8)

DRIVER = "org.apache.derby.iapi.jdbc.AutoloadedDriver"
APPEND = {"urn": "APP.T", "extract": "append_only"}


class Derby:
    """An in-memory database inside Spark's JVM; the readers share it."""

    def __init__(self, spark: SparkSession) -> None:
        self.url = f"jdbc:derby:memory:{uuid.uuid4().hex}"
        jvm: Any = spark._jvm
        jvm.java.lang.Class.forName(DRIVER)
        self._manager = jvm.java.sql.DriverManager
        self._connection = self._manager.getConnection(f"{self.url};create=true")

    def execute(self, *statements: str) -> None:
        statement = self._connection.createStatement()
        for text in statements:
            statement.execute(text)
        statement.close()

    def drop(self) -> None:
        self._connection.close()
        with pytest.raises(Exception, match="dropped"):
            self._manager.getConnection(f"{self.url};drop=true")


@pytest.fixture
def derby(spark: SparkSession) -> Iterator[Derby]:
    database = Derby(spark)
    yield database
    database.drop()


@pytest.fixture
def bench(spark: SparkSession, derby: Derby) -> Bench:
    return Bench(spark, JdbcConnection(derby.url, name="c"))


@pytest.mark.core
def test_every_supported_type_survives_exactly(derby: Derby, bench: Bench) -> None:
    derby.execute(
        "CREATE TABLE T (ID BIGINT NOT NULL PRIMARY KEY, S SMALLINT, I INTEGER, D DECIMAL(31,5), R REAL, F DOUBLE,"
        " B BOOLEAN, V VARCHAR(20), C CHAR(4), DA DATE, TS TIMESTAMP, RAW VARCHAR(10) FOR BIT DATA, CL CLOB, BL BLOB)",
        "INSERT INTO T VALUES (9223372036854775807, -32768, 2147483647, -12345678901234567890123456.54321, 1.5, 2.5,"
        " TRUE, 'it''s', 'x', {d '0001-01-01'}, {ts '1969-12-31 23:59:59.999999'}, X'00ff', 'long',"
        " CAST(X'10' AS BLOB))",
        "INSERT INTO T (ID) VALUES (1)",
    )
    request = request_for({"urn": "APP.T"})
    with bench.source.open_plan(lambda: bench.spark, bench.reports.append) as session:
        plan = session.plan(request)
        frame = bench.read(plan)
        assert dict(frame.dtypes)["TS"] == "timestamp_ntz"
        shown = frame.selectExpr("* EXCEPT (DA, TS)", "CAST(DA AS STRING) DA", "CAST(TS AS STRING) TS")
        rows = {row.ID: row.asDict() for row in shown.collect()}
    assert plan.columns["D"] == "DECIMAL(31,5)"
    full = rows[9223372036854775807]
    assert str(full.pop("D")) == "-12345678901234567890123456.54321"
    assert list(full.values()) == [
        9223372036854775807, -32768, 2147483647, 1.5, 2.5, True, "it's", "x   ", b"\x00\xff", "long", b"\x10",
        "0001-01-01", "1969-12-31 23:59:59.999999",
    ]  # fmt: skip
    assert set(rows[1].values()) == {1, None}


@pytest.mark.parametrize("kind", ["TIME", "XML"])
def test_a_type_that_spark_cannot_hold_names_table_column_type_and_cast(derby: Derby, bench: Bench, kind: str) -> None:
    derby.execute(f"CREATE TABLE T (ID INT, ODD {kind})")
    with pytest.raises(RejectedError, match=rf"APP\.T\.ODD is {kind}: ") as refused:
        bench.plan(request_for({"urn": "APP.T"}))
    assert refused.value.field == "datasets[APP.T].casts"
    assert "CAST" in refused.value.hint
    assert bench.plan(request_for({"urn": "APP.T", "columns": ["ID"]})).columns == {"ID": "INTEGER"}


def test_a_time_before_the_calendar_reform_is_read_as_the_database_writes_it(derby: Derby, bench: Bench) -> None:
    derby.execute("CREATE TABLE T (ID INT, SEEN TIMESTAMP)", "INSERT INTO T VALUES (1, '1500-02-28 10:00:00')")
    assert bench.run(request_for({"urn": "APP.T"}))[1] == [(1, dt.datetime(1500, 2, 28, 10))]  # noqa: DTZ001  a wall clock's


@pytest.mark.turns("rows of a database that the product does not know")
def test_consecutive_plans_meet_without_gap_or_overlap(derby: Derby, bench: Bench) -> None:
    derby.execute(
        "CREATE TABLE T (ID INT NOT NULL, SEEN TIMESTAMP NOT NULL)",
        *[f"INSERT INTO T VALUES ({n}, {{ts '2020-03-05 10:00:00.000001'}})" for n in (1, 2, 3)],
    )
    data = {**APPEND, "watermark": {"column": "SEEN"}}
    plan, rows = bench.run(request_for(data))
    assert column(rows) == [1, 2, 3]
    state = publish(new_state("APP.T"), plan)
    derby.execute(
        "INSERT INTO T VALUES (4, {ts '2020-03-05 10:00:00.000002'})",
        "INSERT INTO T VALUES (5, {ts '2020-03-06 10:00:00'})",
        "INSERT INTO T SELECT 6, CURRENT_TIMESTAMP FROM SYSIBM.SYSDUMMY1",
    )
    plan, rows = bench.run(request_for({**data, "split": {"work_unit_rows": 1}}, state))
    # The sixth is younger than the commit lag by the source's own clock.
    assert column(rows) == [4, 5]
    assert len(plan.work_units) == 2
    plan, rows = bench.run(request_for(data, publish(state, plan)))
    assert rows == []
    assert all(unit.is_empty for unit in plan.work_units)


@pytest.mark.turns("rows of a database that the product does not know")
def test_late_rows_windows_and_composites_work_through_spark(derby: Derby, bench: Bench) -> None:
    derby.execute(
        "CREATE TABLE T (ID BIGINT NOT NULL PRIMARY KEY, D DATE NOT NULL)",
        "INSERT INTO T VALUES (1, {d '2020-02-29'}), (2, {d '2020-03-01'}), (3, {d '2020-03-31'})",
        "INSERT INTO T VALUES (4, {d '2020-04-01'})",
    )
    days = (dt.date(2020, 3, 1), dt.date(2020, 4, 1))
    window = PartitionWindow(dt.datetime(2020, 3, 1, tzinfo=dt.UTC), dt.datetime(2020, 4, 1, tzinfo=dt.UTC), days)
    month = AssetPartition("2020-03", window)
    monthly = {"kind": "monthly", "start": "2020-01-01"}
    data = {**APPEND, "primary_key": ["ID"], "watermark": {"column": "D", "late_window": 86_400}, "partitions": monthly}
    plan, rows = bench.run(request_for(data, partition=month))
    assert column(rows) == [2, 3]
    state = publish(new_state("APP.T"), plan)
    derby.execute("INSERT INTO T VALUES (5, {d '2020-03-31'})", "INSERT INTO T VALUES (6, {d '2020-03-30'})")
    assert column(bench.run(request_for(data, state, partition=month, by_hand=False))[1]) == [3, 5]
    plan, rows = bench.run(request_for(data, state, partition=month))
    assert (plan.mode, column(rows)) == (Mode.REFRESH, [2, 3, 5, 6])
    pair = {**APPEND, "watermark": {"column": "D", "key_column": "ID"}}
    plan, rows = bench.run(request_for(pair))
    derby.execute("INSERT INTO T VALUES (7, {d '2020-04-01'})")
    assert column(bench.run(request_for(pair, publish(new_state("APP.T"), plan)))[1]) == [7]


@pytest.mark.turns("rows of a database that the product does not know")
def test_rows_without_a_position_follow_the_rule(derby: Derby, bench: Bench) -> None:
    derby.execute("CREATE TABLE T (ID INT, N BIGINT)", "INSERT INTO T VALUES (1, 10), (2, NULL)")
    data = {"urn": "APP.T", "extract": "snapshot_append", "watermark": {"column": "N"}}
    with pytest.raises(RejectedError, match=r"1 rows of APP\.T\.N hold NULL"):
        bench.plan(request_for(data))
    data["watermark"] = {"column": "N", "on_null": "snapshot_only"}
    assert column(bench.run(request_for(data))[1]) == [1, 2]


@pytest.mark.turns("rows of a database that the product does not know")
def test_a_split_snapshot_gives_every_row_once(derby: Derby, bench: Bench) -> None:
    derby.execute("CREATE TABLE T (ID INT, V VARCHAR(10))")
    derby.execute(*[f"INSERT INTO T VALUES ({n * n}, 'x')" for n in range(50)], "INSERT INTO T VALUES (NULL, 'n')")
    data = {"urn": "APP.T", "primary_key": ["ID"], "split": {"work_unit_rows": 10}}
    plan, rows = bench.run(request_for(data))
    assert len(plan.work_units) == 6
    assert sorted(str(row[0]) for row in rows) == sorted([*[str(n * n) for n in range(50)], "None"])


def test_texts_are_no_positions_since_derby_ignores_spaces_at_their_ends(derby: Derby, bench: Bench) -> None:
    derby.execute("CREATE TABLE T (C VARCHAR(20) NOT NULL)")
    with pytest.raises(RejectedError, match=r"APP\.T\.C is VARCHAR.* no order"):
        bench.plan(request_for({**APPEND, "watermark": {"column": "C", "type": "string"}}))


@pytest.mark.turns("rows of a database that the product does not know")
def test_hostile_names_are_only_names(derby: Derby, bench: Bench) -> None:
    table = '"My "" Table; --?"'
    derby.execute(
        f'CREATE TABLE {table} ("Ev""il; --?" INT, "c0" VARCHAR(9))',
        f"INSERT INTO {table} VALUES (1, 'it''s'), (2, '')",
    )
    found = [name for name in bench.source.discover(lambda: bench.spark) if "My" in name]
    assert found == ['APP."My "" Table; --?"']
    keyed = {"urn": "u", "table": found[0], "partitions": {"kind": "static", "keys": ["it's"], "column": "c0"}}
    request = request_for(keyed, partition=AssetPartition("it's"))
    with bench.source.open_plan(lambda: bench.spark, bench.reports.append) as session:
        plan = session.plan(request)
        frame = bench.read(plan)
        assert frame.columns == ['Ev"il; --?', "c0"]
        assert collect(frame, plan) == [(1, "it's")]


@pytest.mark.rotating(of=OFTEN_SHARES)
@pytest.mark.parametrize(
    ("change", "field", "text"),
    [
        ({"table": "APP.NOPE"}, "table", "no table APP.NOPE"),
        ({"table": "app.t"}, "table", "'APP.T'"),
        ({"watermark": {"column": "seen"}}, "watermark.column", "'SEEN'"),
        ({"watermark": {"column": "NAME"}}, "watermark.column", "no order"),
        ({"casts": {"NAME": "NOPE(NAME)"}}, None, "NOPE"),
        ({"where": "ID >"}, None, "Syntax error"),
    ],
)
def test_bad_input_names_its_field(
    derby: Derby, bench: Bench, change: dict[str, Any], field: str | None, text: str
) -> None:
    derby.execute("CREATE TABLE T (ID INT NOT NULL, SEEN TIMESTAMP NOT NULL, NAME VARCHAR(9))")
    with pytest.raises(RejectedError) as refused:
        bench.plan(request_for({**APPEND, "watermark": {"column": "SEEN"}, **change}))
    assert refused.value.field == "datasets[APP.T]" + (f".{field}" if field else "")
    assert text in str(refused.value)


def test_a_database_or_driver_that_is_not_there_is_named(spark: SparkSession, derby: Derby) -> None:
    request = request_for({"urn": "APP.T"})
    with pytest.raises(RejectedError, match=r"connections\[c\]\.url.*not found"):
        Bench(spark, JdbcConnection("jdbc:derby:memory:none", name="c")).plan(request)
    with pytest.raises(RejectedError, match=r"connections\[c\]\.driver.*ClassNotFound"):
        Bench(spark, JdbcConnection("jdbc:somebody:x", driver="com.example.Driver", name="c")).plan(request)
