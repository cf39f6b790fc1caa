"""Rows of one writer, handed on some at a time: one by one, the handing on would take longer than the copies."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from gobblin_assets.jobs.copy.transfer.writing import ResultRow

BATCH_ROWS: Final = 256

BATCH_EVERY_S: Final = 0.2
"""Large files come slowly; so often, at least, a writer that gets on says so."""


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Of the order's bin ``bin``: what was reported, and the bytes that were moved, since the batch before.

    ``is_last``: the writer is done with the bin.
    """

    bin: int
    moved_bytes: int
    rows: tuple[ResultRow, ...]
    is_last: bool

    def pack(self) -> tuple[Any, ...]:
        """As a value that ``marshal`` takes; ``RowBatch(*packed)`` is this batch again."""
        return self.bin, self.moved_bytes, self.rows, self.is_last


class BatchingSink:
    """The RowSink of one bin's writer. ``send`` may raise, to end the work."""

    def __init__(self, number: int, send: Callable[[RowBatch], None]) -> None:
        self._number = number
        self._send = send
        self._moved_bytes = 0
        self._rows: list[ResultRow] = []
        self._sent_at = time.monotonic()

    def moved(self, count: int) -> None:
        self._moved_bytes += count
        if time.monotonic() - self._sent_at > BATCH_EVERY_S:
            self._flush()

    def ended(self, row: ResultRow) -> None:
        self._rows.append(row)
        if len(self._rows) >= BATCH_ROWS:
            self._flush()

    def finish(self) -> None:
        self._flush(is_last=True)

    def _flush(self, *, is_last: bool = False) -> None:
        self._send(RowBatch(self._number, self._moved_bytes, tuple(self._rows), is_last))
        self._rows, self._moved_bytes = [], 0
        self._sent_at = time.monotonic()
