"""Directories by event time without Spark; ``integration.test_event_directories`` compares them with Spark's."""

import datetime as dt
from collections.abc import Sequence

import pyarrow as pa
import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.sink.event_directories import EventDirectories
from gobblin_assets.jobs.sink.lane_files import PlacedRows
from gobblin_assets.model.urn import Role
from gobblin_assets.spec.event_time_spec import EventTimeSpec

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
INSTANT = pa.timestamp("us", tz="UTC")


def place(
    values: Sequence[object], kind: pa.DataType = INSTANT, role: Role = Role.DATA, **options: object
) -> list[PlacedRows]:
    data = pa.schema([("id", pa.int64()), ("at", kind)])
    letters = pa.schema([*data, ("dead_letter_topic", pa.string()), ("dead_letter_reason", pa.string())])
    columns = {Role.DATA: data, Role.QUARANTINE: data, Role.DEAD_LETTER: letters}
    spec = EventTimeSpec.model_validate({"column": "at", **options})
    directories = EventDirectories(spec, columns, dataset="d", now=lambda: NOW)
    rows = pa.record_batch([list(range(len(values))), pa.array(values, kind)], schema=data)
    placed = [*directories(role, rows)]
    assert all(each.rows.schema == columns[each.role] for each in placed)
    assert sum(each.rows.num_rows for each in placed) == len(values)
    return placed


def paths(placed: Sequence[PlacedRows]) -> dict[int, str]:
    return {row["id"]: each.partition_path for each in placed for row in each.rows.to_pylist()}


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("granularity", "expected"),
    [
        ("minute", "2026-02-28-23-59"),
        ("hour", "2026-02-28-23"),
        ("day", "2026-02-28"),
        ("month", "2026-02"),
        ("year", "2026"),
    ],
)
def test_a_directory_for_each_granularity(granularity: str, expected: str) -> None:
    placed = place([at("2026-02-28T23:59:59.999999Z")] * 2, granularity=granularity, name="day é=")
    assert paths(placed) == dict.fromkeys((0, 1), f"day é%3D={expected}")
    assert len(placed) == 1


def test_a_pattern_that_is_finer_than_the_granularity_makes_no_more_directories() -> None:
    placed = place(
        [at("2026-02-28T23:59:59.999999Z"), at("2026-02-28T23:00:01Z")],
        granularity="hour",
        pattern="yyyy-MM-dd HH_mm_ss",
    )
    assert paths(placed) == dict.fromkeys((0, 1), "event_time=2026-02-28 23_00_00")


def test_rows_of_one_batch_are_divided_and_keep_their_order() -> None:
    placed = place([at(f"2026-02-{day:02}T00:00Z") for day in (1, 2, 1, 3, 2, 1)])
    assert {each.partition_path: each.rows.column("id").to_pylist() for each in placed} == {
        "event_time=2026-02-01": [0, 2, 5],
        "event_time=2026-02-02": [1, 4],
        "event_time=2026-02-03": [3],
    }


def test_a_pattern_of_its_own() -> None:
    placed = place([at("2026-02-28T05:07:59Z")], granularity="minute", pattern="yyyyMMdd'T'HHmm'%d/'")
    assert paths(placed) == {0: "event_time=20260228T0507%25d%2F"}
    with pytest.raises(RejectedError) as refused:
        place([], pattern="EEE")
    assert refused.value.field == "writer.event_time.pattern"


@pytest.mark.parametrize(
    ("unit", "number"), [("s", 1_772_000_000), ("ms", 1_772_000_000_999), ("us", 1_772_000_000_999_999)]
)
def test_numbers_count_a_unit(unit: str, number: int) -> None:
    assert paths(place([number], pa.int64(), unit=unit)) == {0: "event_time=2026-02-25"}


def test_rows_without_a_usable_time_go_where_the_rules_say() -> None:
    values = [None, 2**63 - 1, -(2**63), 1_772_000_000_000]
    rules = {"on_missing": "directory", "on_future": "directory", "missing_name": "none", "future_name": "later"}
    assert paths(place(values, pa.int64(), **rules)) == {
        0: "event_time=none",
        1: "event_time=later",
        2: "event_time=none",
        3: "event_time=2026-02-25",
    }
    placed = place(values, pa.int64(), on_missing="dead_letter", on_future="dead_letter")
    letters = {
        row["id"]: (row["at"], row["dead_letter_topic"], row["dead_letter_reason"])
        for each in placed
        if each.role is Role.DEAD_LETTER and not each.partition_path
        for row in each.rows.to_pylist()
    }
    assert letters == {
        0: (None, None, "the row has no event time in 'at'"),
        1: (2**63 - 1, None, "the row has an event time further in the future than future_s_max in 'at'"),
        2: (-(2**63), None, "the row has an event time that can't be read in 'at'"),
    }


@pytest.mark.parametrize(
    ("value", "field"),
    [(None, "writer.event_time.on_missing"), (at("2026-03-03T00:00Z"), "writer.event_time.on_future")],
)
def test_rows_without_a_usable_time_fail_by_default(value: object, field: str) -> None:
    with pytest.raises(RejectedError) as refused:
        place([at("2026-03-01T00:00Z"), value])
    assert refused.value.field == field


def test_dead_letters_have_no_such_directory_and_rows_set_aside_have() -> None:
    letters = pa.schema([("at", INSTANT), ("dead_letter_reason", pa.string())])
    columns = {Role.DATA: pa.schema([("at", INSTANT)]), Role.DEAD_LETTER: letters}
    directories = EventDirectories(EventTimeSpec(column="at"), columns, dataset="d", now=lambda: NOW)
    rows = pa.record_batch([[None], ["undecodable"]], schema=letters)
    assert [*directories(Role.DEAD_LETTER, rows)] == [PlacedRows(Role.DEAD_LETTER, "", rows)]
    (placed,) = place([at("2026-02-28T05:07Z")], role=Role.QUARANTINE)
    assert (placed.role, placed.partition_path) == (Role.QUARANTINE, "event_time=2026-02-28")


@pytest.mark.parametrize(
    ("kind", "options", "field"),
    [
        (pa.string(), {}, "writer.event_time.column"),
        (pa.float64(), {}, "writer.event_time.column"),
        (INSTANT, {"column": "nowhere"}, "writer.event_time.column"),
        (INSTANT, {"name": "ID"}, "writer.event_time.name"),
        (INSTANT, {"json_path": "$.a"}, "writer.event_time.json_path"),
    ],
)
def test_what_needs_spark_is_refused(kind: pa.DataType, options: dict[str, object], field: str) -> None:
    with pytest.raises(RejectedError) as refused:
        place([], kind, **options)
    assert (refused.value.field, bool(refused.value.hint)) == (field, True)
