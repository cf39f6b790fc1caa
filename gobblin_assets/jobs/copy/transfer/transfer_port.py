"""The order to copy, the results, and the port that each way to copy implements."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from gobblin_assets.errors import ErrorFamily
from gobblin_assets.jobs.copy.copyable import CopyItem
from gobblin_assets.jobs.copy.transfer.bins import Bin
from gobblin_assets.jobs.copy.transfer.journal import FinishedFile
from gobblin_assets.jobs.copy.transfer.preserve import NOTHING_PRESERVED, Preserve
from gobblin_assets.model.files import FileIdentity


class TransferWay(StrEnum):
    """The machine that copies files: this one, Spark's executors, or whichever the run has reason for."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class CopyFailure:
    """The reason why a file or directory was not copied. RETRYABLE: another attempt may succeed, after a new plan."""

    family: ErrorFamily
    message: str


@dataclass(frozen=True, slots=True)
class FileResult:
    """One file, or one directory item, that was copied or has failed.

    ``item``: the item's number. ``path``: the place below the dataset's destination. ``staged_path``: the place below
    the attempt. ``identity``: of what is staged, after its attributes; of a directory, the inode decides. ``checksum``:
    the CRC32C of the bytes, if the order wants it. Either ``identity`` or ``failure`` is None.

    A directory item has a result of its own, after those of all its files; it fails if any of them fails. A
    subdirectory has a result only if it fails.
    """

    item: int
    path: str
    staged_path: str
    is_directory: bool = False
    identity: FileIdentity | None = None
    checksum: int | None = None
    failure: CopyFailure | None = None


@dataclass(frozen=True, slots=True)
class TransferProgress:
    """The state of a transfer: ``files`` that were copied, ``failed`` files and directories, and ``moved_bytes`` of
    begun files too.
    """

    files: int = 0
    failed: int = 0
    moved_bytes: int = 0


def unheard_progress(_progress: TransferProgress) -> None:
    """A report that nobody asked for."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Bytes and files a second that may be copied; None: as many as can."""

    bytes_per_s: float | None = None
    files_per_s: float | None = None


UNLIMITED: Final = Rate()


@dataclass(frozen=True, slots=True)
class TransferOrder:
    """An order to copy the bins' items from below ``source_root``, a full path or a store's URI, into ``attempt``, a
    full path or the URI of one.

    ``<attempt>/<bin.writer>`` is there for each bin, and empty. The file item ``n`` becomes ``<bin.writer>/<n>``, and a
    file of the directory item ``n`` lies below ``<bin.writer>/<n>/``. ``workers``: how many bins are copied at a time.
    ``checksum``: whether the CRC32C of each file is wanted. ``preserve``: only access lists and extended attributes of
    files are read from the source; the rest is in the items. ``tag`` names the work for a later ``cancel``.
    ``on_progress`` is called by the thread that takes the results. ``follows_links``: the plan gave links as what they
    lead to; otherwise a link at a planned file's name fails the file. ``journals``: writers say in a journal which
    files are finished; it needs ``checksum``. ``finished``: by work guid, files of earlier attempts that writers take
    instead of copying, if they are still as they were finished. ``split_bytes``: the bins were planned with it, and
    whoever plans them anew does the same; a file that several writers fill becomes ``splits/<n>``. ``rate``: of all
    writers together; each keeps an equal part. ``converters``: the chain of the items' conversions.
    """

    source_root: str
    attempt: str
    bins: tuple[Bin, ...]
    workers: int
    tag: str
    checksum: bool = False
    preserve: Preserve = NOTHING_PRESERVED
    on_progress: Callable[[TransferProgress], None] = unheard_progress
    follows_links: bool = False
    journals: bool = False
    finished: Mapping[str, FinishedFile] = field(default_factory=dict)
    split_bytes: int | None = None
    rate: Rate = UNLIMITED
    converters: str = ""


@dataclass(frozen=True, slots=True)
class Executors:
    """The executors that a probe of Spark found.

    ``slots``: the tasks that run at once. ``blind``: why hosts can't copy, one sentence each.
    """

    count: int
    slots: int
    blind: tuple[str, ...] = ()


class Transfer(Protocol):
    """A way to copy. It is called from several threads at once, with different tags."""

    def copy(self, order: TransferOrder) -> Iterator[tuple[FileResult, ...]]:
        """Batches of results, as they come; each file and each directory item of the order has exactly one.

        A file that can't be copied is a result. RetryableError if the work was cancelled, or if no writer could be
        started. Once the iterator is exhausted, closed, or has raised, nobody writes to what was reported, and nothing
        new appears in the attempt.
        """
        ...

    def describe_interruption(self, tag: str, items: Sequence[CopyItem]) -> Mapping[str, object] | None:
        """What another process needs to end the copy of ``items`` under ``tag``, as JSON, before it begins.

        None: the copy ends with this process.
        """
        ...

    def cancel(self, tag: str) -> None:
        """End the work of that tag within a second, or before it begins; a tag that comes never is no error."""
        ...
