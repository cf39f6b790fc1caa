"""The number of rows that Spark sends to a Python worker at once.

Spark bounds a batch by rows and by bytes. For the latter it computes the size of the batch anew with each row, which
takes more than a quarter of the time of such a task. Where the source holds so many rows in memory anyway, a bound of
rows is enough.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS_DEFAULT: Final = 10_000
_BYTES_UNBOUNDED: Final = str(2**31 - 1)

_lock: Final = threading.Lock()
_writes: Final[WeakKeyDictionary[SparkSession, list[int]]] = WeakKeyDictionary()
"""What the writes that go on in a session hold. Its configuration is that of all its threads."""


@contextmanager
def batches_by_rows(spark: SparkSession, rows_held: int | None) -> Iterator[None]:
    """In the block, batches have at most ``rows_held`` rows, and any number of bytes.

    Nothing is changed without ``rows_held``, or where the user has set a bound.
    """
    if rows_held is None:
        yield
        return
    with _lock:
        active = _writes.setdefault(spark, [])
        is_bounded = not active and any(spark.conf.get(name, None) is not None for name in (_ROWS, _BYTES))
        if not is_bounded:
            active.append(rows_held)
            _apply(spark, active)
    try:
        yield
    finally:
        with _lock:
            if not is_bounded:
                active.remove(rows_held)
                _apply(spark, active)


def _apply(spark: SparkSession, active: list[int]) -> None:
    if active:
        spark.conf.set(_ROWS, str(min(_ROWS_DEFAULT, *active)))
        spark.conf.set(_BYTES, _BYTES_UNBOUNDED)
    else:
        spark.conf.unset(_ROWS)
        spark.conf.unset(_BYTES)
