import pytest

from gobblin_assets.commit.segment import Segment, encode_segments
from gobblin_assets.destinations.files.rename_steps import RenameDirectory
from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.model.directory_names import (
    COLUMN_BYTES_MAX,
    check_directory_column,
    check_directory_value,
    count_escaped_bytes,
)
from gobblin_assets.model.files import DataFile, FileIdentity
from gobblin_assets.model.urn import Role
from gobblin_assets.run.task import require_whole
from gobblin_assets.spec.job_parsing import parse_job, resolve_datasets
from gobblin_assets.spec.job_spec import DatasetSpec


def _writer(**options: object) -> DatasetSpec:
    dataset = {"urn": "public.orders", "writer": options}
    job = parse_job({"job": "shop", "source": {"connection": "c"}, "destination": "/lake", "datasets": [dataset]})
    return next(iter(resolve_datasets(job, None).values()))


TIME = {"time_column": "at", "time_pattern": "yyyy/MM/dd"}


@pytest.mark.parametrize(
    ("options", "field", "said"),
    [
        ({**TIME, "time_name": ".day"}, "time_name", "does not begin with '.' or '_'"),
        ({**TIME, "time_name": "_day"}, "time_name", "does not begin with '.' or '_'"),
        ({**TIME, "time_name": "a/b"}, "time_name", "a name without '/'"),
        ({**TIME, "time_name": ""}, "time_name", "found none"),
        ({"event_time": {"column": "at", "name": "../x"}}, "event_time.name", "does not begin with '.'"),
        ({"event_time": {"column": "at", "name": "é" * 80}}, "event_time.name", "at most 128 bytes"),
        ({"event_time": {"column": "at", "name": "a\nb"}}, "event_time.name", "a name without '\\n'"),
        ({"partition_by": ["kind", "_place"]}, "partition_by[1]", "does not begin with"),
        ({"partition_by": [".."]}, "partition_by[0]", "does not begin with"),
        ({"partition_by": ["a\\b"]}, "partition_by[0]", "a name without"),
        ({"partition_by": ["a\x00b"]}, "partition_by[0]", "a name without"),
        ({"partition_by": ["x" * 129]}, "partition_by[0]", "at most 128 bytes"),
        ({"partition_by": ["=" * 43]}, "partition_by[0]", "at most 128 bytes"),
        ({**TIME, "time_pattern": "yyyy'._COPYING_'"}, "time_pattern", "does not end in"),
        ({**TIME, "time_pattern": f"yyyy'{'x' * 250}'"}, "time_pattern", "at most 255 bytes"),
        (
            {"event_time": {"column": "at", "on_missing": "directory", "missing_name": "x._COPYING_"}},
            "event_time.missing_name",
            "does not end in",
        ),
        (
            {"event_time": {"column": "at", "on_future": "directory", "future_name": "😀" * 70}},
            "event_time.future_name",
            "at most 255 bytes",
        ),
    ],
)
def test_a_directory_that_readers_would_not_find_is_refused_when_the_job_is_read(
    options: dict[str, object], field: str, said: str
) -> None:
    with pytest.raises(RejectedError) as refused:
        _writer(**options)
    assert refused.value.field == f"datasets[0].writer.{field}"
    assert said in str(refused.value)


def test_other_names_are_welcome() -> None:
    names = ("day", "Ünits (=)", "x.y", "a_b", "x" * COLUMN_BYTES_MAX, "{d}", "#")
    assert _writer(partition_by=names, **TIME, time_name="my day").writer.partition_by == names


def test_bytes_are_counted_as_spark_escapes_them() -> None:
    counts = {"a": 1, "é": 2, "😀": 4, "=": 3, "\n": 3, "[": 3, "}": 1, "\x80": 2}
    assert {text: count_escaped_bytes(text) for text in counts} == counts
    check_directory_column("x" * COLUMN_BYTES_MAX, "f")
    check_directory_value("k", "x" * 253, "f")
    with pytest.raises(RejectedError, match="found 256"):
        check_directory_value("k", "x" * 254, "f")
    with pytest.raises(RejectedError, match="NUL"):
        check_directory_value("k", "\0", "f")


def test_an_attempt_is_staged_with_exactly_the_rows_that_were_read() -> None:
    def segments(role: Role, rows: int) -> list[Segment]:
        file = DataFile("f", FileIdentity(1, 2, 3), rows)
        return [*encode_segments([RenameDirectory("/a", f"/b/{role}", (file,))], role=role, partition="")]

    parts = [*segments(Role.DATA, 5), *segments(Role.QUARANTINE, 2), *segments(Role.DEAD_LETTER, 1)]
    require_whole("orders", rows_read=8, segments=parts)
    require_whole("orders", rows_read=0, segments=[])
    for rows_read in (7, 9):
        with pytest.raises(RetryableError) as failed:
            require_whole("orders", rows_read=rows_read, segments=parts)
        assert f"orders: {rows_read} rows were read" in str(failed.value)
        assert "hold 8 (5 in data, 2 in quarantine, 1 in dead_letter)" in str(failed.value)
    with pytest.raises(RetryableError, match="1 rows were read, and the files that were written hold 0 "):
        require_whole("orders", rows_read=1, segments=[])
