"""Real trees to copy, and the orders that copy them."""

import os
import stat
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.jobs.copy.copyable import Attributes, CopyItem, PlannedFile
from gobblin_assets.jobs.copy.transfer.bins import Bin, weigh_item
from gobblin_assets.jobs.copy.transfer.local import LocalTransfer
from gobblin_assets.jobs.copy.transfer.preserve import Preserve, parse_preserve
from gobblin_assets.jobs.copy.transfer.transfer_port import (
    FileResult,
    TransferOrder,
    TransferProgress,
    unheard_progress,
)
from gobblin_assets.model.files import FileIdentity

TAG: Final = "a copy"
ALL_OF_TREE: Final = parse_preserve("ugpt")


def fill(path: Path, content: bytes = b"content") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def entry_of(root: Path, path: str) -> TreeEntry:
    found = (root / path).lstat()
    kind = EntryKind.DIRECTORY if stat.S_ISDIR(found.st_mode) else EntryKind.FILE
    identity = FileIdentity(found.st_size, found.st_ino, found.st_mtime_ns)
    mode = stat.S_IMODE(found.st_mode)
    return TreeEntry(path, kind, identity, mode, found.st_uid, found.st_gid, changed_ns=found.st_ctime_ns)


def plan_file(root: Path, path: str, preserve: Preserve = ALL_OF_TREE) -> PlannedFile:
    origin = entry_of(root, path)
    return PlannedFile.of(path, origin, preserve.attributes_of(origin))


def file_items(root: Path, preserve: Preserve = ALL_OF_TREE) -> list[CopyItem]:
    """Each file below ``root`` as an item of its own, by path."""
    paths = sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())
    return [CopyItem(number, path, (plan_file(root, path, preserve),)) for number, path in enumerate(paths, start=1)]


def directory_item(number: int, root: Path, path: str, preserve: Preserve = ALL_OF_TREE) -> CopyItem:
    """The directory with all that is below it."""
    top = root / path
    below = sorted(str(each.relative_to(root)) for each in top.rglob("*"))
    files = tuple(plan_file(root, each, preserve) for each in below if not (root / each).is_dir())
    directories: tuple[tuple[str, Attributes], ...] = tuple(
        (each[len(path) + 1 :], preserve.attributes_of(entry_of(root, each)))
        for each in below
        if (root / each).is_dir()
    )
    return CopyItem(number, path, files, True, directories, preserve.attributes_of(entry_of(root, path)))


def divide(items: Iterable[CopyItem], count: int) -> tuple[Bin, ...]:
    """Bins in turns: small trees would not be worth more than one."""
    given = list(items)
    parts = [tuple(given[number::count]) for number in range(count)]
    return tuple(Bin(n, part, sum(map(weigh_item, part))) for n, part in enumerate(parts) if part)


def order_of(
    root: Path,
    attempt: Path,
    bins: tuple[Bin, ...],
    *,
    workers: int = 2,
    checksum: bool = True,
    preserve: Preserve = ALL_OF_TREE,
    on_progress: Callable[[TransferProgress], None] = unheard_progress,
) -> TransferOrder:
    """The order, with the writers' directories made as the driver makes them."""
    for found in bins:
        (attempt / found.writer).mkdir(parents=True)
    return TransferOrder(str(root), str(attempt), bins, workers, TAG, checksum, preserve, on_progress)


def copy_all(order: TransferOrder) -> dict[str, FileResult]:
    """The results by path; each path has exactly one."""
    with LocalTransfer() as transfer:
        results = [result for batch in transfer.copy(order) for result in batch]
    by_path = {result.path: result for result in results}
    assert len(by_path) == len(results)
    return by_path


def copying_processes(parent: int) -> set[int]:
    """The copying processes that ``parent`` started and that still run."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            text = (path / "stat").read_text(encoding="ascii")
            command = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if int(text.rpartition(")")[2].split()[1]) == parent and b"copy_process" in command:
            found.add(int(path.name))
    return found


def is_running(pid: int) -> bool:
    """Neither gone nor a zombie that nobody has waited for yet."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in {"Z", "X"}


def staged(order: TransferOrder, result: FileResult) -> Path:
    return Path(order.attempt, result.staged_path)


def identity_of(path: Path) -> FileIdentity:
    found = os.lstat(path)
    return FileIdentity(found.st_size, found.st_ino, found.st_mtime_ns)


def access_list(user: int) -> bytes:
    """Read for one more user, as the kernel keeps it: a version, then tag, permissions and id of each entry."""
    entries = [(0x01, 6, -1), (0x02, 4, user), (0x04, 4, -1), (0x10, 4, -1), (0x20, 0, -1)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
