"""The SQL of each dialect, as text."""

import datetime as dt

import pytest

from gobblin_assets.model.watermark import WatermarkType
from gobblin_assets.sources.jdbc.connection import dialect_of
from gobblin_assets.sources.jdbc.dialects.ansi import AnsiDialect
from gobblin_assets.sources.jdbc.names import TableName
from gobblin_assets.sources.jdbc.spark_catalog import parse_moment
from tests.support.dialects import INSTANT, MOMENT, require_closed_quotes, require_fractions

KNOWN = ("derby", "duckdb", "mariadb", "mysql", "sqlite")


@pytest.mark.parametrize("name", [*KNOWN, "somebody"])
def test_quotes_cannot_be_left(name: str) -> None:
    require_closed_quotes(dialect_of(name))


@pytest.mark.parametrize("name", KNOWN)
def test_what_was_tested_is_not_experimental_and_needs_no_probe(name: str) -> None:
    assert not dialect_of(name).is_experimental
    assert dialect_of(name).probe_query(TableName("s", "t")) is None


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("kind", [WatermarkType.LOCAL_TIMESTAMP, WatermarkType.TIMESTAMP])
def test_a_fraction_is_never_left_out_of_a_condition(name: str, kind: WatermarkType) -> None:
    require_fractions(dialect_of(name), kind)


@pytest.mark.parametrize(
    ("name", "type_text", "text", "expected"),
    [
        ("mysql", "int(11)", "7", "`v` = 7"),
        ("mysql", "int(11)", "7 OR 1=1", None),
        ("mysql", "datetime", "2020-01-01T10:00", "`v` = TIMESTAMP'2020-01-01 10:00:00.000000'"),
        ("mysql", "date", "soon", None),
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
