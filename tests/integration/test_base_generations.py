"""Tables are read by a base generation and the changes behind it, as by the whole log, whatever came between."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from gobblin_assets.commit.published.postgres import PostgresPublishedFiles
from gobblin_assets.rows.base_generations import name_base
from gobblin_assets.rows.current_reader import find_current
from tests.support.publishing import JOB, Publisher
from tests.support.shares import Share
from tests.support.table_history import TableHistory
from tests.support.written_logs import LOG, WrittenLog

SAME: tuple[list[Any], list[Any]] = ([], [])
TABLES = 20


def make_log(spark: SparkSession, engine: Engine, folder: Path, share: Share, **kind: Any) -> WrittenLog:
    history = TableHistory(f"{share.seed}", **kind)
    return WrittenLog(spark, Publisher(engine, folder / "lake"), history, folder)


def run_all(log: WrittenLog, transactions: int) -> None:
    for table in range(TABLES):
        log.history.run(transactions, table=table)


@pytest.mark.parametrize("kind", [{}, {"is_full": True, "has_key": False}], ids=["by key", "whole"])
def test_a_base_and_what_is_behind_it_are_the_table(
    spark: SparkSession, engine: Engine, tmp_path: Path, share: Share, kind: dict[str, Any]
) -> None:
    log = make_log(spark, engine, tmp_path, share, **kind)
    run_all(log, 3)
    log.history.copy()
    log.publish()
    run_all(log, 3)
    log.publish()
    (base,), failures = log.write_base()
    assert not failures
    assert base.urn == name_base(LOG)
    assert base.row_count == log.history.current().total()
    assert log.difference() == SAME

    for _round in range(2):
        run_all(log, 3)
        log.publish()
        assert log.difference() == SAME
    view = find_current(PostgresPublishedFiles(engine), JOB, LOG)
    assert view.base is not None
    assert len(view.base.later.segments) == 2 < len(view.log.files.segments), "older files are left out"
    assert log.write_base(changes_min=view.changes_behind + 1) == ([], {})
    (base,), failures = log.write_base(changes_min=view.changes_behind)
    assert log.difference() == SAME

    # The base's files say nothing of themselves once the log is cleared, or the table is copied again.
    log.history.truncate()
    run_all(log, 1)
    log.publish()
    assert log.difference() == SAME
    log.history.copy()
    log.publish(copy=2)
    assert find_current(PostgresPublishedFiles(engine), JOB, LOG).base is None
    assert log.difference() == SAME
