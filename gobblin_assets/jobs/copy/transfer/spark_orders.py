"""Orders and answers of the driver and the tasks of a Spark job, through the attempt's directory, which both see.

    <attempt>/orders/token                 what a probe of the executors looks for
    <attempt>/orders/<bin>.plan            the work of one bin
    <attempt>/orders/<bin>-<part>.claim    made by the try that writes this part of a split file
    <attempt>/orders/<writer>-<try>/       what one try of that bin's task writes
    <attempt>/orders/<writer>-<try>.count  how far this try has come, for progress lines only

Spark may try a task again while an earlier try still writes. So each try makes a directory of its own, below a
directory that the driver made, and the driver takes only the directory of the try whose answer Spark accepted: it
renames it to ``<attempt>/<writer>``. Then it takes ``orders`` away, with all that other tries wrote or still write.
"""

import marshal
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from gobblin_assets.jobs.copy.transfer.transfer_port import TransferProgress
from gobblin_assets.jobs.copy.transfer.writing import BinWork

ORDERS: Final = "orders"
TOKEN: Final = "token"  # noqa: S105  a file's name
COUNT: Final = ".count"

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_COUNT: Final = struct.Struct("<QQQ")


class BinOrder(NamedTuple):
    """The work of one bin. ``file_system``: that of the attempt, as the driver names it (``name_file_system``)."""

    writer: str
    work: BinWork
    file_system: str


def plan_path(orders: str, number: int) -> str:
    return f"{orders}/{number}.plan"


def part_claim(orders: str, number: int, part: int) -> str:
    """A directory that the only try makes that may write this part of a file."""
    return f"{orders}/{number}-{part}.claim"


def write_plan(orders: str, number: int, order: BinOrder) -> None:
    work: tuple[Any, ...] = tuple(order.work)
    content = marshal.dumps((order.writer, work, order.file_system))
    Path(plan_path(orders, number)).write_bytes(content)


def read_plan(orders: str, number: int) -> BinOrder:
    """OSError if it is not there: the attempt was taken over, the order was withdrawn, or its disk is not mounted."""
    content: Any = marshal.loads(Path(plan_path(orders, number)).read_bytes())  # noqa: S302  our driver wrote it
    writer, work, file_system = content
    return BinOrder(writer, BinWork(*work), file_system)


def name_file_system(directory: str) -> str:
    """The running kernel and its number of the directory's file system: equal names share what one sync writes."""
    return f"{Path(_BOOT_ID).read_text(encoding='ascii').strip()}/{os.stat(directory).st_dev}"  # noqa: PTH116  no object needed


def write_count(descriptor: int, progress: TransferProgress) -> None:
    os.pwrite(descriptor, _COUNT.pack(progress.files, progress.failed, progress.moved_bytes), 0)


def sum_counts(orders: str) -> TransferProgress:
    """How far all bins have come: of each, the try that has come farthest. What can't be read is left out."""
    farthest: dict[str, tuple[int, int, int]] = {}
    for name, count in _read_counts(orders):
        writer = name.partition("-")[0]
        farthest[writer] = max(farthest.get(writer, (0, 0, 0)), count, key=lambda each: each[2])
    return TransferProgress(*(sum(each) for each in zip(*farthest.values(), strict=True)))


def _read_counts(orders: str) -> Iterator[tuple[str, tuple[int, int, int]]]:
    try:
        names = [name for name in os.listdir(orders) if name.endswith(COUNT)]  # noqa: PTH208  names, not objects
    except OSError:
        return
    for name in names:
        try:
            content = Path(orders, name).read_bytes()
        except OSError:
            continue
        if len(content) == _COUNT.size:
            yield name, _COUNT.unpack(content)
