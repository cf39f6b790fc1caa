"""The SQL of each dialect, as text. SQL Server and Oracle have no other test, since no server of theirs was at hand."""

import datetime as dt

import pytest

from gobblin_assets.model.interval import Interval
from gobblin_assets.model.watermark import WatermarkType
from gobblin_assets.sources.jdbc.dialect import ColumnReading, SparkDialect
from gobblin_assets.sources.jdbc.dialects.ansi import AnsiDialect
from gobblin_assets.sources.jdbc.dialects.choice import dialect_of
from gobblin_assets.sources.jdbc.names import TableName
from gobblin_assets.sources.jdbc.positions import Axis, write_interval
from gobblin_assets.sources.jdbc.spark_catalog import parse_moment

KNOWN = ("derby", "duckdb", "mariadb", "mysql", "oracle", "sqlite", "sqlserver")
MOMENT = dt.datetime(2020, 3, 29, 2, 30, 0, 1)  # noqa: DTZ001  a wall clock's
INSTANT = MOMENT.replace(tzinfo=dt.UTC)


def read(dialect: SparkDialect, type_text: str) -> ColumnReading:
    found = dialect.read_declared(dialect.quote("v"), type_text)
    assert found is not None
    return found


@pytest.mark.parametrize("name", [*KNOWN, "somebody"])
def test_quotes_cannot_be_left(name: str) -> None:
    dialect = dialect_of(name)
    for hostile in ('a"; DROP TABLE t; --', "a`; DROP TABLE t; --", "a'; DROP TABLE t; --"):
        mark = dialect.quote("a")[0]
        assert dialect.quote(hostile)[1:-1].replace(mark * 2, "").count(mark) == 0
        literal = dialect.literal(WatermarkType.STRING, hostile)
        assert literal.replace("''", "").count("'") == 2


@pytest.mark.parametrize("name", KNOWN)
def test_only_what_never_met_a_server_is_experimental(name: str) -> None:
    assert dialect_of(name).is_experimental is (name in {"oracle", "sqlserver"})
    assert dialect_of(name).probe_query(TableName("s", "t")) is None


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("kind", [WatermarkType.LOCAL_TIMESTAMP, WatermarkType.TIMESTAMP])
def test_a_fraction_is_never_left_out_of_a_condition(name: str, kind: WatermarkType) -> None:
    dialect = dialect_of(name)
    axis = Axis("seen", kind)
    moment = INSTANT if kind is WatermarkType.TIMESTAMP else MOMENT
    low, high = axis.lift(moment), axis.lift(moment).successor()
    written = write_interval(dialect, axis, (dialect.quote("w0"),), Interval(low, high))
    assert "02:30:00.000001" in written
    assert "02:30:00.000002" in written


@pytest.mark.parametrize(
    ("type_text", "expected"),
    [
        ("tinyint", ColumnReading('"v"', "SMALLINT", order=WatermarkType.LONG)),
        ("decimal(18,0)", ColumnReading('"v"', "DECIMAL(18,0)", order=WatermarkType.LONG)),
        ("decimal(38,5)", ColumnReading('"v"', "DECIMAL(38,5)")),
        ("money", ColumnReading('CAST("v" AS decimal(19,4))', "DECIMAL(19,4)")),
        ("bit", ColumnReading('"v"', "BOOLEAN")),
        ("char", ColumnReading('CAST("v" AS nvarchar(4000))', "STRING")),
        ("rowversion", ColumnReading('"v"', "BINARY")),
        (
            "datetime",
            ColumnReading(
                'CONVERT(varchar(27), CAST("v" AS datetime2(6)), 121)', "STRING", "TIMESTAMP_NTZ",
                order=WatermarkType.LOCAL_TIMESTAMP,
            ),
        ),
        (
            "datetimeoffset(6)",
            ColumnReading(
                "CONVERT(varchar(27), CAST(SWITCHOFFSET(\"v\", '+00:00') AS datetime2(6)), 121)", "STRING",
                "TIMESTAMP", order=WatermarkType.TIMESTAMP,
            ),
        ),
        ("date", ColumnReading('CONVERT(varchar(10), "v", 23)', "STRING", "DATE", order=WatermarkType.DATE)),
    ],
)  # fmt: skip
def test_types_of_sql_server(type_text: str, expected: ColumnReading) -> None:
    assert read(dialect_of("sqlserver"), type_text) == expected


@pytest.mark.parametrize(
    ("type_text", "cast"),
    [
        ("datetime2(7)", 'CAST("v" AS datetime2(6))'),
        ("time(3)", 'CONVERT(nvarchar(max), "v")'),
        ("sql_variant", 'CONVERT(nvarchar(max), "v")'),
    ],
)
def test_what_sql_server_has_and_spark_has_not(type_text: str, cast: str) -> None:
    found = read(dialect_of("sqlserver"), type_text)
    assert found.problem
    assert found.cast == cast


@pytest.mark.parametrize(
    ("type_text", "expected"),
    [
        ("NUMBER(18,0)", ColumnReading('"v"', "DECIMAL(18,0)", order=WatermarkType.LONG)),
        ("NUMBER(38,10)", ColumnReading('"v"', "DECIMAL(38,10)")),
        ("VARCHAR2", ColumnReading("\"v\" || ''", "STRING")),
        ("BINARY_FLOAT", ColumnReading('"v"', "FLOAT")),
        (
            "DATE",
            ColumnReading(
                "LTRIM(TO_CHAR(\"v\", 'SYYYY-MM-DD HH24:MI:SS'))", "STRING", "TIMESTAMP_NTZ",
                order=WatermarkType.LOCAL_TIMESTAMP,
            ),
        ),
        (
            "TIMESTAMP(6)",
            ColumnReading(
                "LTRIM(TO_CHAR(\"v\", 'SYYYY-MM-DD HH24:MI:SS.FF6'))", "STRING", "TIMESTAMP_NTZ",
                order=WatermarkType.LOCAL_TIMESTAMP,
            ),
        ),
        (
            "TIMESTAMP(3) WITH LOCAL TIME ZONE",
            ColumnReading(
                "LTRIM(TO_CHAR(SYS_EXTRACT_UTC(\"v\"), 'SYYYY-MM-DD HH24:MI:SS.FF6'))", "STRING", "TIMESTAMP",
                order=WatermarkType.TIMESTAMP,
            ),
        ),
    ],
)  # fmt: skip
def test_types_of_oracle(type_text: str, expected: ColumnReading) -> None:
    assert read(dialect_of("oracle"), type_text) == expected


@pytest.mark.parametrize(
    ("type_text", "cast"),
    [
        ("NUMBER", 'CAST("v" AS NUMBER(38, 10))'),
        ("NUMBER(10,-2)", 'CAST("v" AS NUMBER(38, 10))'),
        ("TIMESTAMP(9)", 'CAST("v" AS TIMESTAMP(6))'),
        ("INTERVAL DAY(2) TO SECOND(6)", 'TO_CHAR("v")'),
    ],
)
def test_what_oracle_has_and_spark_has_not(type_text: str, cast: str) -> None:
    found = read(dialect_of("oracle"), type_text)
    assert found.problem
    assert found.cast == cast


def test_positions_of_oracle_keep_the_time_of_day_of_a_date() -> None:
    dialect = dialect_of("oracle")
    assert dialect.in_order('"w0"', WatermarkType.LOCAL_TIMESTAMP) == 'CAST("w0" AS TIMESTAMP(6))'
    assert dialect.literal(WatermarkType.TIMESTAMP, INSTANT) == "TIMESTAMP '2020-03-29 02:30:00.000001 +00:00'"


@pytest.mark.parametrize(
    ("name", "type_text", "text", "expected"),
    [
        ("mysql", "int(11)", "7", "`v` = 7"),
        ("mysql", "int(11)", "7 OR 1=1", None),
        ("mysql", "datetime", "2020-01-01T10:00", "`v` = TIMESTAMP'2020-01-01 10:00:00.000000'"),
        ("mysql", "date", "soon", None),
        ("oracle", "NUMBER(9,0)", "7; --", None),
        ("sqlite", "INTEGER", "7x", None),
        ("somebody", "VARCHAR(9)", "eu", None),
    ],
)
def test_a_key_that_is_no_value_of_the_column_is_none(
    name: str, type_text: str, text: str, expected: str | None
) -> None:
    dialect = dialect_of(name)
    assert dialect.equals_key(dialect.quote("v"), text, type_text) == expected


def test_a_probe_that_shows_less_than_everything_proves_nothing() -> None:
    dialect = AnsiDialect()
    said = ("2020-06-15", "2020-06-15 12:34:56.123456", "ordered")
    for answer, shows in (
        (said, (True, True)),
        (("2020-06-15", "2020-06-15 12:34:56", "ordered"), (True, False)),
        (("2020-06-15", "2020-06-15 14:34:56.123456", "ordered"), (True, False)),
        (("2020-06-15", said[1], "equal"), (True, False)),
        (("15-JUN-20", said[1], "ordered"), (False, False)),
        (None, (False, False)),
    ):
        judged = dialect.judge_probe(answer)
        assert (judged.has_dates, judged.has_times) == shows


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2020-03-29 02:30:00.000001", MOMENT),
        ("2020-03-29T02:30:00.0000010", MOMENT),
        ("2020-03-29 04:30:00.000001+02", INSTANT),
        ("2020-03-29 02:30:00.000001Z", INSTANT),
        ("2020-03-29 02:30:00.0000001", None),
        ("0000-00-00 00:00:00", None),
        ("infinity", None),
    ],
)
def test_a_moment_is_read_exactly_or_not_at_all(text: str, expected: dt.datetime | None) -> None:
    found = parse_moment(text)
    assert found == expected
    assert (found is None) == (expected is None)
