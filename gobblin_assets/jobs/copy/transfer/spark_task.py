"""A task of a Spark job that copies bins, as executors run it, and the orders by which the driver talks to tasks.

Nothing here starts or needs a session. A file that can't be copied is a row of the answer, and so is a bin that can't
be begun: Spark would try a task that raises again, and end the whole job after some tries.

Orders and answers go through the attempt's directory, which both see.

    <attempt>/orders/token                 what a probe of the executors looks for
    <attempt>/orders/<bin>.plan            the work of one bin
    <attempt>/orders/<bin>-<part>.claim    made by the try that writes this part of a split file
    <attempt>/orders/<writer>-<try>/       what one try of that bin's task writes
    <attempt>/orders/<writer>-<try>.count  how far this try has come, for progress lines only

Spark may try a task again while an earlier try still writes. So each try makes a directory of its own, below a
directory that the driver made. The driver takes only the directory of the try whose answer Spark accepted, and renames
it to ``<attempt>/<writer>``. Then it takes ``orders`` away, with all that other tries wrote or still write.
"""

import marshal
import os
import secrets
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa

from gobblin_assets.errors import ErrorFamily, GobblinError
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.fs.posix_sync import sync_file
from gobblin_assets.jobs.copy.transfer.pacing import copy_at_rate
from gobblin_assets.jobs.copy.transfer.transfer_port import TransferProgress
from gobblin_assets.jobs.copy.transfer.writing import BatchingSink, BinWork, ResultRow, RowBatch, unpack_part

ORDERS: Final = "orders"
TOKEN: Final = "token"  # noqa: S105  a file's name
COUNT: Final = ".count"

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_COUNT: Final = struct.Struct("<QQQ")

ANSWER: Final = "bin long, try string, lost string, rows binary"
"""One bin's answer, in one row or more. ``lost``: why all of the bin failed. ``rows``: its results, by ``marshal``."""

SIGHT: Final = "executor string, host string, version string, token string, source long"
"""What one probing task found: ``token`` and ``source`` (an inode) are null if they are not there."""

ROWS_TOGETHER: Final = 4_096
"""In one row of the answer: some hundred kilobytes."""

_ANSWER_FIELDS: Final = pa.schema(
    [("bin", pa.int64()), ("try", pa.string()), ("lost", pa.string()), ("rows", pa.binary())]
)
_SIGHT_FIELDS: Final = pa.schema(
    [(name, pa.string()) for name in ("executor", "host", "version", "token")] + [("source", pa.int64())]
)
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE_OF_COUNT: Final = 0o600
_DISTRIBUTION: Final = "gobblin-assets"


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
    """The progress of all bins: of each, the try that has come farthest. What can't be read is left out."""
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


class _WithdrawnError(Exception):
    """The driver has taken the order away: nobody will look at the rest."""


def probe_executor(orders: str, source_root: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One row about this executor, whatever it is given."""
    for _batch in batches:
        continue
    host = socket.gethostname()
    # Spark starts one daemon of Python workers in each executor.
    found = (f"{host}/{os.getppid()}", host, find_version(), _read_token(orders), _find_inode(source_root))
    yield pa.RecordBatch.from_pylist([dict(zip(_SIGHT_FIELDS.names, found, strict=True))], schema=_SIGHT_FIELDS)


def copy_bins(orders: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Copy the bins whose numbers are given, and answer."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from _answer(orders, number)


def _answer(orders: str, number: int) -> Iterator[pa.RecordBatch]:
    try:
        order = read_plan(orders, number)
        name = f"{order.writer}-{secrets.token_hex(6)}"
        Path(orders, name).mkdir()
        rows = _copy(orders, number, name, order)
    except OSError as error:
        yield _row(number, "", f"{socket.gethostname()} can't reach {orders}: {error.strerror}", [])
        return
    except GobblinError as error:
        yield _row(number, "", str(error), [])
        return
    except _WithdrawnError:
        yield _row(number, "", "the order was withdrawn", [])
        return
    for begin in range(0, max(1, len(rows)), ROWS_TOGETHER):
        yield _row(number, name, None, rows[begin : begin + ROWS_TOGETHER])


def _copy(orders: str, number: int, name: str, order: BinOrder) -> list[ResultRow]:
    rows: list[ResultRow] = []
    plan = plan_path(orders, number)
    work, claimed = _claim_parts(orders, number, order.work)
    with _Count(f"{orders}/{name}{COUNT}") as count:

        def take(batch: RowBatch) -> None:
            rows.extend(batch.rows)
            count.add(batch)
            if not os.path.exists(plan):  # noqa: PTH110  no object for each batch
                raise _WithdrawnError

        sink = BatchingSink(number, take)
        with _durable(f"{orders}/{name}", order):
            copy_at_rate(work._replace(directory=f"{orders}/{name}"), sink)
            sink.finish()
    _sync_parts(work, order)
    return [
        *(row for row in rows if row[0] < len(work.items)),
        *_number_parts(rows, work, claimed, len(order.work.parts)),
    ]


def _claim_parts(orders: str, number: int, work: BinWork) -> tuple[BinWork, list[int]]:
    """The work with those parts that no other try of this task has begun, and their numbers among all parts.

    A try that Spark gave up may still write its part, after another has reported it.
    """
    claimed = []
    for part in range(len(work.parts)):
        with suppress(FileExistsError):
            Path(part_claim(orders, number, part)).mkdir()
            claimed.append(part)
    return work._replace(parts=tuple(work.parts[part] for part in claimed)), claimed


def _number_parts(rows: list[ResultRow], work: BinWork, claimed: list[int], count: int) -> Iterator[ResultRow]:
    """The rows of parts by the numbers that they have in the whole bin, and a failure for each that was not claimed."""
    first = len(work.items)
    for item, entry, staged, failure in rows:
        if item >= first:
            yield first + claimed[item - first], entry, staged, failure
    for part in sorted(set(range(count)) - set(claimed)):
        yield first + part, 0, None, (ErrorFamily.RETRYABLE.value, "another try of its task has begun this part")


def _sync_parts(work: BinWork, order: BinOrder) -> None:
    """The files that others write too; what is in the try's own directory is durable already."""
    for target in {target for _part, target in map(unpack_part, work.parts)}:
        if name_file_system(str(Path(target).parent)) != order.file_system:
            sync_file(target)


def _durable(directory: str, order: BinOrder) -> AbstractContextManager[None]:
    """Where the driver's own sync does not reach what this machine wrote, it is synced here."""
    if name_file_system(directory) == order.file_system:
        return nullcontext()
    return PosixFileSystem().durable_tree(directory, file_count=len(order.work.items))


class _Count:
    """The file that says how far this try has come."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._files = self._failed = self._moved_bytes = 0

    def __enter__(self) -> Self:
        self._descriptor = os.open(self._path, _NEW_FILE, _MODE_OF_COUNT)
        return self

    def __exit__(self, *_error: object) -> None:
        os.close(self._descriptor)

    def add(self, batch: RowBatch) -> None:
        self._failed += sum(failure is not None for _item, _entry, _staged, failure in batch.rows)
        self._files += sum(entry >= 0 and failure is None for _item, entry, _staged, failure in batch.rows)
        self._moved_bytes += batch.moved_bytes
        write_count(self._descriptor, TransferProgress(self._files, self._failed, self._moved_bytes))


def _row(number: int, name: str, lost: str | None, rows: list[ResultRow]) -> pa.RecordBatch:
    columns = [[number], [name], [lost], [marshal.dumps(rows)]]
    arrays = [pa.array(each, field.type) for each, field in zip(columns, _ANSWER_FIELDS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ANSWER_FIELDS)


def find_version() -> str:
    """The version of this package; "" where it is not installed, but found as source."""
    try:
        return version(_DISTRIBUTION)
    except PackageNotFoundError:
        return ""


def _read_token(orders: str) -> str | None:
    try:
        return Path(orders, TOKEN).read_text(encoding="ascii")
    except OSError:
        return None


def _find_inode(source_root: str) -> int | None:
    try:
        return Path(source_root).stat().st_ino
    except OSError:
        return None
