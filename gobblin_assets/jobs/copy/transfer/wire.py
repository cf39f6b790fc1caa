"""Messages between the driver and its copying processes: a length, then what ``marshal`` makes of plain values.

Both ends are one interpreter of one version. Pickling the dataclasses of a plan takes as long as copying small files.
"""

import marshal
import os
import struct
from collections.abc import Iterator
from typing import Any, Final

from gobblin_assets.jobs.copy.copyable import Attributes
from gobblin_assets.jobs.copy.transfer.batches import RowBatch
from gobblin_assets.jobs.copy.transfer.file_copy import CopyOptions, PlannedFile, StagedFile
from gobblin_assets.jobs.copy.transfer.writing import BinWork, PlannedItem, ResultRow

HEADER: Final = struct.Struct("<I")


class MessageBuffer:
    """Takes bytes as they come, and gives whole messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, content: bytes) -> Iterator[object]:
        self._bytes += content
        begin = 0
        while len(self._bytes) - begin >= HEADER.size:
            (length,) = HEADER.unpack_from(self._bytes, begin)
            end = begin + HEADER.size + length
            if len(self._bytes) < end:
                break
            yield marshal.loads(memoryview(self._bytes)[begin + HEADER.size : end])  # noqa: S302  our own process wrote it
            begin = end
        del self._bytes[:begin]


def send_message(descriptor: int, message: object) -> None:
    """Write it whole; this waits until the other end takes it."""
    content = marshal.dumps(message)
    rest = memoryview(HEADER.pack(len(content)) + content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def pack_work(number: int, work: BinWork) -> tuple[object, ...]:
    """The work of the order's bin ``number``."""
    items = tuple(
        (
            item.number,
            item.is_directory,
            tuple((*file[:-1], _pack_attributes(file.desired)) for file in item.files),
            tuple((place, _pack_attributes(desired)) for place, desired in item.directories),
            _pack_attributes(item.desired),
        )
        for item in work.items
    )
    return number, work.source_root, work.directory, tuple(work.options), items


def unpack_work(packed: Any) -> tuple[int, BinWork]:
    number, source_root, directory, options, items = packed
    work = BinWork(
        source_root,
        directory,
        CopyOptions(*options),
        tuple(
            PlannedItem(
                item,
                is_directory,
                tuple(PlannedFile(*file[:-1], Attributes(*file[-1])) for file in files),
                tuple((place, Attributes(*desired)) for place, desired in directories),
                Attributes(*desired_of_item),
            )
            for item, is_directory, files, directories, desired_of_item in items
        ),
    )
    return number, work


def _pack_attributes(desired: Attributes) -> tuple[object, ...]:
    return desired.mode, desired.owner, desired.group, desired.mtime_ns, desired.xattrs


def pack_batch(batch: RowBatch) -> tuple[object, ...]:
    rows = [(row.item, row.entry, None if row.staged is None else tuple(row.staged), row.failure) for row in batch.rows]
    return batch.bin, batch.moved_bytes, rows, batch.is_last


def unpack_batch(packed: Any) -> RowBatch:
    number, moved_bytes, rows, is_last = packed
    return RowBatch(
        number,
        moved_bytes,
        tuple(
            ResultRow(item, entry, None if staged is None else StagedFile(*staged), failure)
            for item, entry, staged, failure in rows
        ),
        is_last=is_last,
    )
