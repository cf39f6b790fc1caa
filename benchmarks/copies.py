"""Copies of trees beside rclone, cp and rsync: many small files, and a few large ones, from tmpfs to tmpfs.

Ours is the time from the plan (the listed source) to the staged files, with attributes and checksums; nothing is
published. A row shows what the listing adds. Ours runs in a driver that is there already, as in a Dagster run; the
others are started for each copy.
"""

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.peers.debian import Program, find_program
from benchmarks.tables import Options, Samples, Table, in_turns, timed, verdict_at_least
from benchmarks.world import World
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.jobs.copy.copyable import CopyableFile, CopyItem
from gobblin_assets.jobs.copy.transfer.bins import plan_bins
from gobblin_assets.jobs.copy.transfer.local import LocalTransfer, bins_max_of
from gobblin_assets.jobs.copy.transfer.port import TransferOrder
from gobblin_assets.jobs.copy.transfer.preserve import parse_preserve
from gobblin_assets.model.files import FileIdentity

MEMORY: Final = Path("/dev/shm")
KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
DIRECTORIES: Final = 100
RCLONE_RATIO_MIN: Final = 1.5
CP_RATIO_MIN: Final = 0.7

_OURS: Final = "ours, directories that are new as a whole"
_OURS_COLD: Final = "ours, the same, and the processes are started first"
_OURS_LISTING: Final = "ours, with the listing of the source"
_OURS_BY_FILE: Final = "ours, each file by itself"
_OURS_UNCHECKED: Final = "ours, without checksums"
_RCLONE: Final = "rclone copy"
_RCLONE_FAST: Final = "rclone copy --transfers 16 --checkers 16 --no-traverse"
_CP: Final = "cp -r"
_PRESERVE: Final = parse_preserve("ugpt")

Copy = Callable[[Path, Path], None]
"""Copies a tree into a new directory."""


@dataclass(frozen=True, slots=True)
class Load:
    title: str
    file_count: int
    file_bytes: int


def measure(world: World, options: Options) -> list[Table]:
    peers, notes = _list_peers(world.home / "copies")
    loads = [Load("small files", 2_000 if options.quick else 20_000, 4 * KIB), _large_load(options)]
    with LocalTransfer() as transfer:
        transfer.prepare(_count_workers())
        return [_measure(load, transfer, peers, options, notes) for load in loads]


def _count_workers() -> int:
    return len(os.sched_getaffinity(0))


def _large_load(options: Options) -> Load:
    """4 x 1 GiB, or what fits twice into the free memory, with as much again to spare."""
    free = os.statvfs(MEMORY)
    room = free.f_bavail * free.f_frsize // 16
    size = min(64 * MIB if options.quick else GIB, room // MIB * MIB)
    return Load("large files", 4, size)


def _list_ours(transfer: LocalTransfer, source: Path) -> dict[str, Copy]:
    directories, files = list(plan_directories(source)), list(_plan_files(source))

    def cold(_source: Path, target: Path) -> None:
        with LocalTransfer() as fresh:
            _copy(fresh, directories, source, target)

    def listing(_source: Path, target: Path) -> None:
        _copy(transfer, list(plan_directories(source)), source, target)

    return {
        _OURS: partial(_copy, transfer, directories),
        _OURS_COLD: cold,
        _OURS_LISTING: listing,
        _OURS_BY_FILE: partial(_copy, transfer, files),
        _OURS_UNCHECKED: partial(_copy, transfer, directories, checksum=False),
    }


def _list_peers(folder: Path) -> tuple[dict[str, Copy], list[str]]:
    tools: dict[str, Copy] = {}
    notes = ["ours: as many workers as processors; attributes u, g, p, t; CRC32C of each file."]
    peers: dict[str, tuple[Sequence[str], dict[str, Sequence[str]]]] = {
        "cp": ((), {_CP: ["-r"], "cp -a": ["-a"]}),
        "rclone": (["rclone"], {_RCLONE: ["copy"], _RCLONE_FAST: _RCLONE_FAST.split()[1:]}),
        "rsync": (["rsync", "libpopt0", "libxxhash0", "liblz4-1", "libzstd1"], {"rsync -a": ["-a"]}),
    }
    for name, (packages, commands) in peers.items():
        try:
            program = find_program(name, folder / name, packages)
        except RuntimeError as error:
            notes.append(f"{name} is left out: {error}")
            continue
        notes.append(f"{name}: {program.version}.")
        tools |= {title: _peer(program, words) for title, words in commands.items()}
    return tools, notes


def _peer(program: Program, words: Sequence[str]) -> Copy:
    def copy(source: Path, target: Path) -> None:
        # With the slash rsync copies what is in the directory, as the others do when the target is missing.
        tree = f"{source}/" if program.path.endswith("rsync") else str(source)
        environment = {**os.environ, **program.environment, "RCLONE_CONFIG": os.devnull}
        subprocess.run([program.path, *words, tree, str(target)], env=environment, check=True, capture_output=True)

    return copy


def _copy(
    transfer: LocalTransfer, items: Sequence[CopyItem], source: Path, target: Path, *, checksum: bool = True
) -> None:
    bins = plan_bins(items, bins_max_of(_count_workers()))
    for found in bins:
        (target / found.writer).mkdir(parents=True)
    order = TransferOrder(str(source), str(target), bins, _count_workers(), "a measure", checksum)
    for batch in transfer.copy(order):
        for result in batch:
            if result.failure is not None:
                raise RuntimeError(result.failure.message)


def plan_directories(root: Path) -> Iterator[CopyItem]:
    for number, directory in enumerate(sorted(root.iterdir())):
        desired = _PRESERVE.attributes_of(_entry(directory.name, directory.stat()))
        yield CopyItem(number, directory.name, tuple(_list_files(directory)), True, (), desired)


def _plan_files(root: Path) -> Iterator[CopyItem]:
    files = (file for directory in sorted(root.iterdir()) for file in _list_files(directory))
    for number, file in enumerate(files):
        yield CopyItem(number, file.path, (file,))


def _list_files(directory: Path) -> Iterator[CopyableFile]:
    with os.scandir(directory) as entries:
        for each in entries:
            origin = _entry(f"{directory.name}/{each.name}", each.stat(follow_symlinks=False))
            yield CopyableFile(origin.path, origin, _PRESERVE.attributes_of(origin))


def _entry(path: str, found: os.stat_result) -> TreeEntry:
    kind = EntryKind.DIRECTORY if stat.S_ISDIR(found.st_mode) else EntryKind.FILE
    identity = FileIdentity(found.st_size, found.st_ino, found.st_mtime_ns)
    return TreeEntry(path, kind, identity, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)


def _measure(
    load: Load, transfer: LocalTransfer, peers: dict[str, Copy], options: Options, notes: Sequence[str]
) -> Table:
    samples = Samples()
    folder = Path(tempfile.mkdtemp(prefix="gobblin-copies-", dir=MEMORY))
    try:
        source, target = folder / "source", folder / "target"
        make_tree(source, load)
        tools = {**_list_ours(transfer, source), **peers}
        for name in in_turns(list(tools), options.runs):
            samples.add(name, timed(partial(tools[name], source, target)))
            require_whole(target, load)
            shutil.rmtree(target)
    finally:
        shutil.rmtree(folder)
    total = load.file_count * load.file_bytes
    rows = tuple(
        samples.row(name, f"{load.file_count / samples.median(name):,.0f}", f"{total / samples.median(name) / 1e9:.2f}")
        for name in tools
    )
    return Table(
        f"Copies: {load.file_count:,} {load.title} of {load.file_bytes / KIB:,.0f} KiB, tmpfs to tmpfs",
        ("tool", "median", "smallest", "largest", "files/s", "GB/s"),
        rows,
        (*notes, *_judge(load, samples)),
    )


def _judge(load: Load, samples: Samples) -> Iterator[str]:
    is_small = load.file_bytes <= MIB
    ours = samples.median(_OURS if is_small else _OURS_UNCHECKED)
    rclone = [samples.median(name) for name in (_RCLONE, _RCLONE_FAST) if name in samples.by_name]
    if rclone:
        needed = RCLONE_RATIO_MIN if is_small else 1.0
        yield verdict_at_least("ours against the faster rclone", min(rclone) / ours, needed, "times as fast")
    needed = CP_RATIO_MIN if is_small else 1.0
    yield verdict_at_least("ours against cp -r", samples.median(_CP) / ours, needed, "times as fast")


def make_tree(root: Path, load: Load) -> None:
    block = os.urandom(min(load.file_bytes, MIB))
    for number in range(load.file_count):
        path = root / f"d{number % DIRECTORIES:03}" / f"f{number:06}"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as out:
            for _ in range(load.file_bytes // len(block)):
                out.write(block)


def require_whole(target: Path, load: Load) -> None:
    sizes = [path.stat().st_size for path in target.rglob("*") if path.is_file()]
    if len(sizes) != load.file_count or set(sizes) != {load.file_bytes}:
        raise RuntimeError(f"expected {load.file_count} files of {load.file_bytes} bytes, found {len(sizes)}")
