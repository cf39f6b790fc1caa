"""A table is rebuilt from its change log: by random histories against a model, and what can't be told is refused."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from sqlalchemy import Engine

from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.rows.change_log import LOG_COLUMNS, rebuild_table
from gobblin_assets.rows.current_reader import read_current
from tests.support.publishing import Publisher
from tests.support.shares import Share
from tests.support.table_history import COLUMNS, KEY, TableHistory, Values

pytestmark = pytest.mark.turns(of=8)

TABLES = 120
"""In one log: a read of it costs far more than its rows do."""

URN = "public.orders"
NONE: Mapping[str, list[Values]] = {"too much": [], "missing": []}


def _rebuild(spark: SparkSession, history: TableHistory, folder: Path) -> DataFrame:
    log = spark.read.parquet(history.save(folder))
    # The log's names are the source's, but for the case.
    key = [name.upper() for name in KEY] if history.has_key else None
    return rebuild_table(log, key=key, columns=COLUMNS, label="the log").rows


def _difference(frame: DataFrame, wanted: Counter[Values]) -> Mapping[str, list[Values]]:
    found = Counter(tuple(row) for row in frame.collect())
    too_much, missing = found - wanted, wanted - found
    return {"too much": sorted(too_much.elements(), key=str), "missing": sorted(missing.elements(), key=str)}


@pytest.mark.core
@pytest.mark.parametrize(
    "kind",
    [{}, {"is_full": True}, {"is_full": True, "has_key": False}],
    ids=["by key", "by key and whole", "whole"],
)
def test_random_histories(spark: SparkSession, tmp_path: Path, share: Share, kind: dict[str, Any]) -> None:
    history = TableHistory(f"{share.seed}", **kind)
    for table in range(TABLES):
        history.run(6, table=table)
    history.copy()
    for table in range(TABLES):
        history.run(20, table=table)
    history.wander(20, table=TABLES)
    frame = _rebuild(spark, history, tmp_path / "log")
    assert frame.columns == list(COLUMNS)
    assert _difference(frame, history.current()) == NONE


@pytest.mark.parametrize("has_key", [True, False])
def test_truncations_and_copies(spark: SparkSession, tmp_path: Path, share: Share, *, has_key: bool) -> None:
    history = TableHistory(f"{share.seed}", is_full=not has_key, has_key=has_key, moves=False)
    for number, then in enumerate([history.truncate, history.copy, history.truncate]):
        history.run(5, table=0)
        then()
        assert _difference(_rebuild(spark, history, tmp_path / f"{number}"), history.current()) == NONE


_OURS = {
    "_op": "STRING",
    "_lsn": "BIGINT",
    "_seq": "BIGINT",
    "_xid": "BIGINT",
    "_commit_at": "TIMESTAMP",
    "_unchanged": "ARRAY<STRING>",
    "_copy": "INT",
}


def _log(spark: SparkSession, *changes: str, types: str = "id INT, doc STRING") -> DataFrame:
    """Changes of the first copy, one a transaction: the letter, the columns, and what is unchanged, in SQL."""
    rows = (f"({change}, {lsn}L, 1L, NULL, NULL, 1)" for lsn, change in enumerate(changes, start=1))
    names = ", ".join(each.split()[0] for each in types.split(", "))
    frame = spark.sql(
        f"SELECT * FROM VALUES {', '.join(rows)} AS t(_op, {names}, _unchanged, _lsn, _seq, _xid, _commit_at, _copy)"
    )
    casts = [f"CAST({each.split()[0]} AS {each.split()[1]})" for each in types.split(", ")]
    ours = [f"CAST({name} AS {kind})" for name, kind in _OURS.items()]
    return frame.selectExpr(*casts, *ours)


def _rows(frame: DataFrame) -> list[Values]:
    return sorted((tuple(row) for row in frame.collect()), key=str)


def test_a_log_that_began_without_a_copy_does_not_know_what_was_never_sent(spark: SparkSession) -> None:
    unsent = "array('DOC')"
    log = _log(spark, f"'u', 1, NULL, {unsent}", "'c', 2, 'x', NULL", f"'u', 2, NULL, {unsent}")
    assert _rows(rebuild_table(log, key=["id"], columns=["id", "doc"], label="the log").rows) == [(1, None), (2, "x")]
    # A row that came from a key of which nothing is known, to one that had another row before.
    moved = _log(spark, "'c', 3, 'old', NULL", "'d', 3, NULL, NULL", "'b', 7, NULL, NULL", f"'u', 3, NULL, {unsent}")
    one = {"_lsn": "_lsn - int(_op = 'u') AS _lsn", "_seq": "_seq + int(_op = 'u') AS _seq"}
    moved = moved.selectExpr("id", "doc", *(one.get(name, name) for name in LOG_COLUMNS))
    assert _rows(rebuild_table(moved, key=["id"], columns=["id", "doc"], label="the log").rows) == [(3, None)]


ZEROS = "id DOUBLE, n FLOAT, each ARRAY<DOUBLE>"


def _zeros(spark: SparkSession, *changes: tuple[str, str, str, str]) -> DataFrame:
    written = (f"'{op}', double('{a}'), float('{b}'), array(double('{c}')), NULL" for op, a, b, c in changes)
    return _log(spark, *written, types=ZEROS)


def test_zeros_keep_their_signs(spark: SparkSession) -> None:
    columns = ["id", "n", "each"]
    log = _zeros(
        spark, ("c", "0.0", "-0.0", "0.0"), ("c", "-0.0", "0.0", "0.0"), ("c", "0.0", "0.0", "-0.0"),
        ("c", "NaN", "NaN", "NaN"), ("c", "NaN", "NaN", "NaN"), ("c", "0.1", "3.4028235e38", "5e-324"),
    )  # fmt: skip
    by_text = [str(row) for row in _rows(rebuild_table(log, key=None, columns=columns, label="L").rows)]
    nans, zeros = ["(nan, nan, [nan])"] * 2, ["(0.0, -0.0, [0.0])", "(-0.0, 0.0, [0.0])", "(0.0, 0.0, [-0.0])"]
    assert sorted(by_text) == sorted([*nans, *zeros, "(0.1, 3.4028234663852886e+38, [5e-324])"])
    # Each row removes the one that has its signs.
    log = _zeros(spark, ("c", "0.0", "0.0", "-0.0"), ("c", "0.0", "0.0", "0.0"), ("d", "0.0", "0.0", "-0.0"))
    assert str(_rows(rebuild_table(log, key=None, columns=columns, label="L").rows)) == "[(0.0, 0.0, [0.0])]"
    # As keys, both zeros are one: the newest row has its own.
    log = _zeros(spark, ("c", "0.0", "1", "1"), ("b", "0.0", "1", "1"), ("u", "-0.0", "-0.0", "-0.0"))
    rebuilt = rebuild_table(log, key=["id"], columns=columns, label="L").rows
    assert str(_rows(rebuilt)) == "[(-0.0, -0.0, [-0.0])]"


def test_what_the_log_does_not_tell_any_more_fails_the_query(spark: SparkSession) -> None:
    """A key that changed, and a column that was added with a default: rows of before have no value of it."""
    columns = ["id", "doc"]
    keyless = rebuild_table(
        _log(spark, "'c', 1, NULL, NULL", "'d', 1, '?', NULL"), key=None, columns=columns, label="L"
    ).rows
    with pytest.raises(PySparkException, match="L removes a row that it does not have"):
        keyless.count()
    other_key = rebuild_table(_log(spark, "'c', NULL, 'x', NULL"), key=["id"], columns=columns, label="L").rows
    with pytest.raises(PySparkException, match="L has a change without a value of 'id'"):
        other_key.collect()
    with pytest.raises(CorruptionError, match="L has no column 'gone'"):
        rebuild_table(_log(spark, "'c', 1, 'x', NULL"), key=["gone"], columns=columns, label="L")


@pytest.fixture
def publisher(engine: Engine, tmp_path: Path) -> Publisher:
    return Publisher(engine, tmp_path / "lake")


def _publish(publisher: Publisher, log: DataFrame, key: Sequence[str] | None, columns: Sequence[str] | None) -> None:
    said: dict[str, object] = {"source_facts": {"postgres_log": {"key": key}}}
    if columns is not None:
        said["source_columns"] = [[name, "?"] for name in columns]
    publisher.publish(log, URN, details=said)


@pytest.mark.core
def test_the_current_rows_are_those_of_the_published_log(spark: SparkSession, publisher: Publisher) -> None:
    def read() -> DataFrame:
        return read_current(spark, URN, job="shop", database=publisher.engine)

    with pytest.raises(RejectedError, match="No run of job 'shop'"):
        read()
    first = _log(spark, "'r', 1, 'a', NULL", "'r', 2, 'b', NULL", "'r', 2, 'b', NULL")
    publisher.publish(first.limit(0), URN)
    with pytest.raises(RejectedError, match=r"'public\.orders' of job shop is no change log.*read_dataset"):
        read()
    _publish(publisher, first, ["id"], None)
    publisher.publish(first.limit(0), URN, replaces=True)
    assert read().columns == ["id", "doc"]
    assert _rows(read()) == []
    _publish(publisher, first, None, None)
    assert _rows(read()) == [(1, "a"), (2, "b"), (2, "b")]
    # A column is dropped, and another one added.
    later = _log(spark, *["'r', 0, 0, NULL"] * 3, "'u', 1, 7, NULL", "'d', 2, 0, NULL", types="id INT, more INT")
    _publish(publisher, later.where("_op <> 'r'"), ["ID"], ["id", "more", *LOG_COLUMNS])
    assert read().columns == ["id", "more"]
    assert _rows(read()) == [(1, 7)]
    _publish(publisher, later.limit(0), [], None)
    with pytest.raises(CorruptionError, match="has no key"):
        read()


def test_a_copy_that_is_not_complete_counts_for_nothing(spark: SparkSession, publisher: Publisher) -> None:
    """Ranges of it are published one by one: until the last of them, the copy before it is the table."""
    whole = _log(spark, "'r', 1, 'a', NULL", "'r', 2, 'b', NULL", "'d', 2, NULL, NULL")
    part = _log(spark, "'t', NULL, NULL, NULL", "'r', 1, 'new', NULL").withColumn("_copy", f.lit(2))

    def read(whole: int | None) -> DataFrame:
        said = {"key": ["id"], "copying": {"copy": 2, "whole": whole}}
        publisher.publish(part.limit(0), URN, details={"source_facts": {"postgres_log": said}})
        return read_current(spark, URN, job="shop", database=publisher.engine)

    _publish(publisher, whole, ["id"], None)
    publisher.publish(part, URN)
    assert _rows(read(1)) == [(1, "a")]
    with pytest.raises(RejectedError, match=r"the first copy of 'public\.orders' of job shop is not complete.*status"):
        read(None)
