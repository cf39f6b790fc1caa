"""A file of SQLite that somebody else holds: its loads wait, and then say that they may be tried again."""

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from gobblin_assets.destinations.lane_marks import MarkPlace
from gobblin_assets.destinations.load_rows import TableBatch
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.errors import RetryableError
from tests.support.sqlite_rows import example, read_rows

MARK = MarkPlace("gobblin_lane", "root", "job", "orders", 0)
BATCH = TableBatch(LoadedTable("main", "orders"), MARK, 1, str(uuid.UUID(int=1)), 2)
ROWS = pa.record_batch({"number": [1, 2]})


@pytest.fixture
def rows(tmp_path: Path) -> example.SqliteRows:
    made = example.SqliteRows(str(tmp_path / "rows.sqlite"), wait_s=0.1)
    made.prepare(BATCH, ROWS.schema)
    return made


@pytest.fixture
def somebody(rows: example.SqliteRows) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(rows.path, isolation_level=None)) as sql:
        yield sql


# Who writes is met where the load begins, and who reads where it commits.
@pytest.mark.parametrize("held", [("BEGIN IMMEDIATE",), ("BEGIN", "SELECT * FROM orders")])
def test_a_load_is_refused_as_one_that_may_be_tried_again(
    rows: example.SqliteRows, somebody: sqlite3.Connection, held: tuple[str, ...]
) -> None:
    for statement in held:
        somebody.execute(statement).fetchall()

    with pytest.raises(RetryableError, match=f"{rows.path}: database is locked") as refused:
        rows.load(BATCH, [ROWS])

    assert refused.value.passes
    somebody.execute("COMMIT")
    assert (rows.find_mark(MARK), read_rows(rows.path, "orders", "number")) == (None, [])
    rows.load(BATCH, [ROWS])
    assert read_rows(rows.path, "orders", "number") == [(1,), (2,)]


def test_a_file_that_can_not_be_opened_is_named_and_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(RetryableError, match="unable to open database file") as refused:
        example.SqliteRows(str(tmp_path)).find_mark(MARK)
    assert not refused.value.passes
