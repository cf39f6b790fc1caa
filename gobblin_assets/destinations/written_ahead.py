"""Rows that are read and written in a destination's own form while it takes those before them."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

W = TypeVar("W")


def write_ahead(rows: Iterable[pa.RecordBatch], write: Callable[[pa.RecordBatch], W]) -> Iterator[W]:
    """What ``write`` makes of each batch, which is one batch ahead. Errors of both come where the batch would."""
    batches = iter(rows)

    def write_next() -> tuple[W] | None:
        batch = next(batches, None)
        return None if batch is None else (write(batch),)

    with ThreadPoolExecutor(1, thread_name_prefix="write-ahead") as pool:
        waiting = pool.submit(write_next)
        while (found := waiting.result()) is not None:
            waiting = pool.submit(write_next)
            yield found[0]
