"""Reading and writing at the same time: both release Python's lock while they work."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa


@contextmanager
def reading_ahead(batches: Iterator[pa.RecordBatch], *, ahead: int = 1) -> Iterator[Iterator[pa.RecordBatch]]:
    """The same batches; up to ``ahead`` are read while the caller works on the one before.

    The block waits for the read that is under way, so that the caller may close the source of the batches next.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="arrow-ahead")
    try:
        yield _some_ahead(batches, pool, ahead)
    finally:
        pool.shutdown(cancel_futures=True)


def _some_ahead(batches: Iterator[pa.RecordBatch], pool: ThreadPoolExecutor, ahead: int) -> Iterator[pa.RecordBatch]:
    coming = deque(pool.submit(next, batches, None) for _batch in range(ahead))
    while (batch := coming.popleft().result()) is not None:
        coming.append(pool.submit(next, batches, None))
        yield batch
