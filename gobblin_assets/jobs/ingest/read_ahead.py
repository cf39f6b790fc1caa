"""Reading and writing at the same time: both release Python's lock while they work."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa


@contextmanager
def reading_ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[Iterator[pa.RecordBatch]]:
    """The same batches; one is read while the caller works on the one before.

    The block waits for the read that is under way, so that the caller may close the source of the batches next.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="arrow-ahead") as pool:
        yield _one_ahead(batches, pool)


def _one_ahead(batches: Iterator[pa.RecordBatch], pool: ThreadPoolExecutor) -> Iterator[pa.RecordBatch]:
    coming = pool.submit(next, batches, None)
    while (batch := coming.result()) is not None:
        coming = pool.submit(next, batches, None)
        yield batch
