"""Directories by event time on a real Spark session: the result of every kind of value, and of rows without one."""

import datetime as dt
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.event_time import add_event_time
from gobblin_assets.rows.hidden_columns import DEAD_LETTER_COLUMN, parse_role_path, published_path
from gobblin_assets.rows.output_partitions import add_output_partitions, explain_partition_failure
from gobblin_assets.rows.parquet_writer import collect_output, write_parquet
from gobblin_assets.rows.row_quality import split_rows
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.spec.event_time_spec import EventTimeSpec
from gobblin_assets.spec.job_spec import RowPolicySpec, WriterSpec
from tests.support.ingestion import Ingestion
from tests.support.postgres import Database

pytestmark = pytest.mark.turns(of=8)

NOW = dt.datetime(2024, 6, 1, tzinfo=dt.UTC)
FS = PosixFileSystem()
TO_DIRECTORIES = {"on_missing": "directory", "on_future": "directory"}
TO_DEAD_LETTERS = {"on_missing": "dead_letter", "on_future": "dead_letter"}


def _spec(**options: object) -> EventTimeSpec:
    return EventTimeSpec.model_validate({"column": "at", **options})


def _directories(frame: DataFrame, spec: EventTimeSpec) -> dict[object, object]:
    """The directory of each row, by its ``id``."""
    found = add_event_time(frame, spec, dataset="d", now=NOW)
    return {row["id"]: row[spec.name] for row in found.select("id", spec.name).collect()}


UNREADABLE = [
    *("", " ", "soon", "now", "today", "epoch", "10:30", "T10:30", "true", "NaN", "Infinity", "{}", "1e", ".", "1d"),
    *("0x1", "2024-3-1", "2024-02-30", "2024-13-01", "2024-W01-1", "2024-03-30T10", "2024-03-30Z", "-1e300"),
    *("2024-03-30T25:00", "2024-03-30T23:30:60", "2024-03-30T10:00+99:00", "0000-12-31", "-99999-01-01"),
]
TEXTS = {
    # of 2024-03-30T23:30Z, which is past midnight in Berlin
    "2024-03-30T23:30:00Z": "2024-03-31",
    "2024-03-30T23:30:00.123456789+00:00": "2024-03-31",
    "2024-03-30T23:30+0000": "2024-03-31",
    "2024-03-30t23:30z": "2024-03-31",
    " 2024-03-30 23:30:15,5-01 ": "2024-03-31",
    "2024-03-31 00:30:00 +02": "2024-03-30",
    "1711841400000": "2024-03-31",
    "+1711841400000.999": "2024-03-31",
    "1.7118414e12": "2024-03-31",
    # without a zone: Berlin's own clocks
    "2024-03-30 23:30": "2024-03-30",
    "2024-03-30T23:30:59.9": "2024-03-30",
    "2024-03-30": "2024-03-30",
    "-1": "1970-01-01",
    "-3600001": "1969-12-31",
    "0001-01-01": "0001-01-01",
    # exactly as far ahead as is allowed, and a microsecond more
    "2024-06-02T00:00:00Z": "2024-06-02",
    "2024-06-02T00:00:00.000001Z": "future",
    "9999-12-31": "future",
    "9999-12-31T23:59:59-12:00": "future",
    "99999-01-01": "future",
    "+12345-01-01T00:00:00Z": "future",
    "1e300": "future",
    "9" * 400: "future",
    **dict.fromkeys(UNREADABLE, "missing"),
    "2024": "1970-01-01",
}  # fmt: skip


def test_a_text_is_iso_or_a_number_and_never_today(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(text, text) for text in TEXTS] + [(None, None)], "id STRING, at STRING")
    found = _directories(frame, _spec(zone="Europe/Berlin", **TO_DIRECTORIES))
    assert found == {**TEXTS, None: "missing"}


SECONDS = 1_711_841_400
VALUES: dict[str, tuple[str, str, dict[str, str]]] = {
    # Spark's type: (unit, SQL expression to directory in New York, where it is 19:30 the day before midnight UTC)
    "date": ("s", "DATE", {"DATE'2024-03-31'": "2024-03-31", "DATE'0001-01-01'": "0001-01-01",
        "DATE'2024-06-02'": "future", "make_date(99999, 1, 1)": "future", "DATE'-0001-01-01'": "missing"}),
    "timestamp": ("s", "TIMESTAMP", {"TIMESTAMP'2024-03-31 02:30:00Z'": "2024-03-30",
        "timestamp_micros(9223372036854775807)": "future", "timestamp_micros(-9223372036854775808)": "missing",
        "TIMESTAMP'0001-01-01 00:00:00Z'": "missing", "TIMESTAMP'9999-12-31 23:00:00Z'": "future"}),
    "timestamp_ntz": ("s", "TIMESTAMP_NTZ", {"TIMESTAMP_NTZ'2024-03-31 02:30'": "2024-03-31",
        "TIMESTAMP_NTZ'0001-01-01 00:00'": "0001-01-01", "timestamp_micros(9223372036854775807)": "future",
        "timestamp_micros(-9223372036854775808)": "missing"}),
    "seconds": ("s", "BIGINT", {f"{SECONDS + 3 * 3600}": "2024-03-30", "-1": "1969-12-31",
        "9223372036854775807": "future", "-9223372036854775808": "missing"}),
    "int": ("s", "INT", {f"{SECONDS}": "2024-03-30", "2147483647": "future", "-2147483648": "1901-12-13"}),
    "milliseconds": ("ms", "BIGINT", {f"{SECONDS}000": "2024-03-30", "9223372036854775807": "future"}),
    "microseconds": ("us", "BIGINT", {f"{SECONDS}000000": "2024-03-30", "9223372036854775807": "future",
        "-9223372036854775808": "missing"}),
    "tinyint": ("s", "TINYINT", {"127": "1969-12-31"}),
    "decimal": ("s", "DECIMAL(38, 10)", {f"{SECONDS}.9999999999": "2024-03-30", "-0.5": "1969-12-31",
        "9999999999999999999999999999": "future", "-9999999999999999999999999999": "missing"}),
    "wide": ("us", "DECIMAL(38, 0)", {f"{SECONDS}000000": "2024-03-30", "9" * 38: "future", "-" + "9" * 38: "missing"}),
    "fraction": ("s", "DECIMAL(38, 38)", {"0.5": "1969-12-31"}),
    "double": ("s", "DOUBLE", {f"{SECONDS}.25D": "2024-03-30", "'NaN'": "missing", "'Infinity'": "future",
        "'-Infinity'": "missing", "1e300D": "future", "-1e300D": "missing", "-0.5D": "1969-12-31"}),
    "float": ("s", "FLOAT", {"1.7e9F": "2023-11-14", "'NaN'": "missing", "3e38F": "future"}),
}  # fmt: skip


@pytest.mark.core
@pytest.mark.parametrize(("unit", "data_type", "values"), VALUES.values(), ids=VALUES.keys())
def test_no_value_of_any_type_fails_the_job(
    spark: SparkSession, unit: str, data_type: str, values: dict[str, str]
) -> None:
    rows = ", ".join(f"named_struct('id', {n}, 'at', CAST({sql} AS {data_type}))" for n, sql in enumerate(values))
    nothing = f"named_struct('id', -1, 'at', CAST(NULL AS {data_type}))"
    # Not only inline: the planner, and not the tasks, would compute constants.
    frame = spark.sql(f"SELECT inline(array({rows}, {nothing}))").repartition(1)
    found = _directories(frame, _spec(unit=unit, zone="America/New_York", **TO_DIRECTORIES))
    assert found == {**dict(enumerate(values.values())), -1: "missing"}


def test_a_time_is_found_in_json_as_text_or_bytes(spark: SparkSession) -> None:
    texts = {
        '{"header": {"time": 1711841400}}': "2024-03-30-23",
        '{"header": {"time": "1711841400"}}': "2024-03-30-23",
        '{"header": {"time": 1711841400.75}}': "2024-03-30-23",
        '{"header": {"time": "2024-03-30T23:30:00+05:30"}}': "2024-03-30-18",
        '{"header": {"time": null}}': "missing",
        '{"header": {"time": {"s": 1}}}': "missing",
        '{"header": {"time": [1711841400]}}': "missing",
        '{"header": {"time": true}}': "missing",
        '{"header": {}}': "missing",
        '{"header": ': "missing",
        "": "missing",
        '{"header": {"time": 1e30}}': "future",
    }
    frame = spark.createDataFrame([(text, text) for text in texts], "id STRING, at STRING")
    spec = _spec(json_path="$.header.time", unit="s", granularity="hour", **TO_DIRECTORIES)
    assert _directories(frame, spec) == texts
    encoded = frame.withColumn("at", f.col("at").cast("binary"))
    broken = spark.createDataFrame([("bytes", bytearray(b"\xff\xfe{"))], "id STRING, at BINARY")
    assert _directories(encoded.union(broken), spec) == {**texts, "bytes": "missing"}


def test_futures_may_be_accepted_up_to_the_year_9999(spark: SparkSession) -> None:
    values = {
        "9999-12-31": "9999-12-31",
        "2030-01-01T00:00Z": "2030-01-01",
        "99999-01-01": "missing",
        "1e300": "missing",
    }
    frame = spark.createDataFrame([(text, text) for text in values], "id STRING, at STRING")
    assert _directories(frame, _spec(zone="America/New_York", on_missing="directory", on_future="accept")) == {
        **values,
        "2030-01-01T00:00Z": "2029-12-31",
    }
    assert _directories(frame, _spec(on_missing="directory", future_s_max=None)) == values


ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/St_Johns",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "America/New_York",
    "America/Sao_Paulo",
)
FORMATS = {
    "minute": "%Y-%m-%d-%H-%M",
    "hour": "%Y-%m-%d-%H",
    "day": "%Y-%m-%d",
    "month": "%Y-%m",
    "year": "%Y",
}  # fmt: skip


def _changes_of_clocks() -> list[int]:
    """Seconds since 1970 at the ends of the days on which some zone's offset changed."""
    found = set()
    for name in ZONES:
        zone = ZoneInfo(name)
        days = [dt.datetime(2016, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=n) for n in range(6 * 366)]
        for day, following in pairwise(days):
            if day.astimezone(zone).utcoffset() != following.astimezone(zone).utcoffset():
                found.add(int(day.timestamp()))
    return sorted(found)


_ANY_SECOND = st.integers(-600_000_000, 1_700_000_000)
_NEAR_A_CHANGE = st.builds(lambda base, off: base + off, st.sampled_from(_changes_of_clocks()), st.integers(0, 90_000))
_COMBINATIONS = st.lists(st.tuples(st.sampled_from(ZONES), st.sampled_from(list(FORMATS))), min_size=3, max_size=3)


@settings(max_examples=3, deadline=None, derandomize=True)
@given(seconds=st.lists(_ANY_SECOND | _NEAR_A_CHANGE, min_size=100, max_size=200), combinations=_COMBINATIONS)
def test_directories_are_those_of_pythons_calendar(
    spark: SparkSession, seconds: list[int], combinations: list[tuple[str, str]]
) -> None:
    frame = spark.createDataFrame([(second,) for second in seconds], "at BIGINT")
    # The same second read as a wall clock: the zone's clocks never show some of these, and show some twice.
    frame = frame.withColumn("clock", f.timestamp_seconds("at").cast("timestamp_ntz")).coalesce(1)
    for number, (zone, granularity) in enumerate(combinations):
        options = {"unit": "s", "zone": zone, "granularity": granularity}
        frame = add_event_time(frame, _spec(**options, name=f"moment_{number}"), dataset="d", now=NOW)
        frame = add_event_time(frame, _spec(**options, column="clock", name=f"clock_{number}"), dataset="d", now=NOW)
    for row in frame.collect():
        moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=row["at"])
        for number, (name, granularity) in enumerate(combinations):
            zone = ZoneInfo(name)
            local = moment.replace(tzinfo=zone).astimezone(dt.UTC).astimezone(zone)
            assert row[f"moment_{number}"] == moment.astimezone(zone).strftime(FORMATS[granularity])
            assert row[f"clock_{number}"] == local.strftime(FORMATS[granularity])


@pytest.mark.parametrize(
    ("value", "said", "fix"),
    [
        (None, "has no event time in 'at', and on_missing is fail", "name another column"),
        ("soon", "has an event time that can't be read in 'at'", "ISO 8601"),
        ("2025-01-01", "further in the future than future_s_max in 'at', and on_future is fail", "Compare unit"),
    ],
)
def test_a_rule_that_fails_names_the_dataset_the_column_and_the_fix(
    spark: SparkSession, tmp_path: Path, value: str | None, said: str, fix: str
) -> None:
    frame = spark.createDataFrame([(1, "2024-01-01"), (2, value)], "id INT, at STRING")
    writer = WriterSpec(event_time=_spec())
    divided, columns = add_output_partitions(frame, writer, dataset="public.orders", now=NOW)
    with pytest.raises(RetryableError) as raised:
        write_parquet(divided, FS.to_uri(str(tmp_path / "attempt")), partition_columns=columns)
    explained = explain_partition_failure(raised.value, dataset="public.orders")
    assert explained is not None
    assert "dataset 'public.orders'" in str(explained)
    assert said in str(explained)
    assert fix in str(explained)
    assert "soon" not in str(explained)
    # Another task of the job may still be writing.
    left = [path for path in (tmp_path / "attempt").rglob("*") if "_temporary" not in path.parts]
    assert left == []


def test_a_zone_that_java_does_not_know_is_refused_as_such(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 0)], "id INT, at BIGINT")
    with pytest.raises(Exception, match="INVALID_TIMEZONE") as raised:
        _directories(frame, _spec(zone="Factory"))
    explained = explain_partition_failure(raised.value, dataset="d")
    assert explained is not None
    assert explained.field == "writer.event_time.zone"


@pytest.mark.parametrize(
    ("options", "field", "said"),
    [
        ({"column": "nope"}, "column", "no column 'nope'"),
        ({"column": "tags"}, "column", "found array<string>"),
        ({"column": "blob"}, "column", "found binary"),
        ({"column": "flag"}, "column", "found boolean"),
        ({"column": "id", "json_path": "$.a"}, "column", "expected JSON as text or bytes in 'id', found int"),
        ({"name": "ID"}, "name", "there is a column 'ID' already"),
    ],
)
def test_what_can_hold_no_time_is_refused_before_anything_is_read(
    spark: SparkSession, options: dict[str, object], field: str, said: str
) -> None:
    frame = spark.createDataFrame([], "id INT, at STRING, tags ARRAY<STRING>, blob BINARY, flag BOOLEAN")
    with pytest.raises(RejectedError, match="dataset 'd'") as refused:
        add_output_partitions(frame, WriterSpec(event_time=_spec(**options)), dataset="d", now=NOW)
    assert refused.value.field == f"writer.event_time.{field}"
    assert said in str(refused.value)


def test_names_of_the_data_are_never_taken_for_our_own(spark: SparkSession) -> None:
    names = ("gobblin_event_time_0", "GOBBLIN_EVENT_TIME_1")
    frame = spark.createDataFrame(
        [(1, "2024-01-01", "a", "b")], f"id INT, at STRING, {names[0]} STRING, {names[1]} STRING"
    )
    (row,) = add_event_time(frame, _spec(), dataset="d", now=NOW).collect()
    assert tuple(row) == (1, "2024-01-01", "a", "b", "2024-01-01")


def test_dead_letters_have_a_role_a_reason_and_no_event_time(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        (1, "eu", "2024-01-01"),
        (2, "eu", None),
        (3, "us", "soon"),
        (4, "us", "2030-01-01"),
        (5, "us", "2024-01-02"),
    ]
    frame = spark.createDataFrame(rows, "id INT, region STRING, at STRING")
    writer = WriterSpec(partition_by=("region",), event_time=_spec(**TO_DEAD_LETTERS))
    divided, columns = add_output_partitions(frame, writer, dataset="d", now=NOW)
    # The first policy fails each bad row, and the second policy sets the good row aside.
    policies = [
        RowPolicySpec(name="good", check="id in (1, 5)"),
        RowPolicySpec(name="first", check="id < 2", on_failure="err_file"),
    ]
    split = split_rows(divided, policies, dataset="d", event_time_name="event_time")
    assert split.schemas[Role.DATA].names == ["id", "region", "at", "event_time"]
    assert split.schemas[Role.QUARANTINE].names == ["id", "region", "at", "event_time", "failed_policies"]
    assert split.schemas[Role.DEAD_LETTER].names == ["id", "region", "at", "dead_letter_reason"]
    write_parquet(split.frame, FS.to_uri(str(tmp_path / "out")), partition_columns=(*split.partition_columns, *columns))
    placed: dict[tuple[Role, str], str] = {}
    for written in collect_output(FS, str(tmp_path / "out")):
        role, path = parse_role_path(written.partition_path)
        placed[role, published_path(role, path, writer)] = FS.to_uri(written.path)
    assert set(placed) == {
        (Role.DATA, "region=eu/event_time=2024-01-01"),
        (Role.QUARANTINE, "region=us/event_time=2024-01-02"),
        (Role.DEAD_LETTER, "region=eu"),
        (Role.DEAD_LETTER, "region=us"),
    }
    letters = spark.read.parquet(placed[Role.DEAD_LETTER, "region=eu"], placed[Role.DEAD_LETTER, "region=us"])
    assert {row["id"]: (row["at"], row["dead_letter_reason"]) for row in letters.collect()} == {
        2: (None, "the row has no event time in 'at'"),
        3: ("soon", "the row has an event time that can't be read in 'at'"),
        4: ("2030-01-01", "the row has an event time further in the future than future_s_max in 'at'"),
    }


def test_a_letter_that_is_dead_already_is_not_asked_for_its_time(spark: SparkSession) -> None:
    rows = [(1, "2024-01-01", None), (2, None, "not Avro")]
    frame = spark.createDataFrame(rows, f"id INT, at STRING, {DEAD_LETTER_COLUMN} STRING")
    for rule in ("fail", "directory", "dead_letter"):
        found = add_event_time(frame, _spec(on_missing=rule), dataset="d", now=NOW)
        assert {row["id"]: (row["event_time"], row[DEAD_LETTER_COLUMN]) for row in found.collect()} == {
            1: ("2024-01-01", None),
            2: ("dead_letter", "not Avro"),
        }


@pytest.mark.core
def test_a_late_record_lands_in_its_own_directory_in_a_later_sequence(
    spark: SparkSession, database_url: str, fresh_database: Database, tmp_path: Path
) -> None:
    with fresh_database.connect() as connection:
        connection.execute("CREATE TABLE views (id bigint PRIMARY KEY, at timestamptz, happened text)")
        connection.execute("""
            INSERT INTO views SELECT n, '2024-05-01Z'::timestamptz + n * interval '1 hour',
                   CASE n WHEN 7 THEN 'soon' WHEN 8 THEN NULL ELSE '2024-01-0' || 1 + n % 2 || 'T23:30Z' END
              FROM generate_series(0, 49) n
        """)
    root = tmp_path / "lake"
    root.mkdir()
    views: dict[str, Any] = {
        "urn": "public.views",
        "extract": "append_only",
        "watermark": {"column": "at", "commit_lag_s": 0, "late_window": 86_400 * 30},
        "primary_key": ["id"],
        "writer": {"event_time": {"column": "happened", "zone": "Asia/Kolkata", "on_missing": "dead_letter"}},
    }
    shop = JdbcConnection(
        url=fresh_database.jdbc_url, user=fresh_database.user, password=fresh_database.password, name="shop"
    )
    ingestion = Ingestion(spark, database_url, shop, str(root), [views])
    try:
        assert [d.error for d in ingestion.run().datasets] == [None], ingestion.lines
        with fresh_database.connect() as connection:
            connection.execute("INSERT INTO views VALUES (120, '2024-05-04Z', '2024-01-01T10:00Z')")
            connection.execute("INSERT INTO views VALUES (121, '2024-05-04Z', '2024-01-01T20:00Z')")
        assert [d.error for d in ingestion.run().datasets] == [None], ingestion.lines
        days = {row["id"]: row["event_time"] for row in ingestion.read("public.views").collect()}
        # Odd ids happened at 23:30 UTC on the second, which is the third in India.
        expected = {number: f"2024-01-0{2 + number % 2}" for number in range(50) if number not in {7, 8}}
        expected |= {120: "2024-01-01", 121: "2024-01-02"}
        assert days == expected
        sequences = {path.parent.name: set[str]() for path in root.rglob("event_time=*/*")}
        for path in root.rglob("event_time=*/*"):
            sequences[path.parent.name].add(path.name)
        assert {name: len(found) for name, found in sequences.items()} == {
            "event_time=2024-01-01": 1,
            "event_time=2024-01-02": 2,
            "event_time=2024-01-03": 1,
        }
        # The late window reads them again, and finds that they were published as dead letters.
        assert ingestion.rows("public.views", "id", "happened", "dead_letter_reason", role=Role.DEAD_LETTER) == {
            (7, "soon", "the row has an event time that can't be read in 'happened'"): 1,
            (8, None, "the row has no event time in 'happened'"): 1,
        }
    finally:
        ingestion.close()
