"""Copies of trees beside rclone, cp, rsync and distcp: many small files, and a few large ones.

Ours is the time from the plan (the listed source) to the staged files, with attributes and checksums; nothing is
published (``copy_runs`` measures whole runs). A row shows what the listing adds. Ours runs in a driver that is there
already, as in a Dagster run; the others are started for each copy.
"""

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.copy_trees import (
    GIB,
    KIB,
    MEMORY,
    MIB,
    Copy,
    Load,
    find_room,
    make_tree,
    open_place,
    require_whole,
    time_copy,
)
from benchmarks.machine import find_file_system
from benchmarks.peers.copy_tools import CP, DISTCP, RCLONE, RCLONE_FAST, CopyTools, list_copy_tools
from benchmarks.tables import Options, Samples, Table, in_turns, seconds, verdict_at_least
from benchmarks.world import World
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.jobs.copy.copyable import CopyItem, PlannedFile
from gobblin_assets.jobs.copy.transfer.bins import plan_bins
from gobblin_assets.jobs.copy.transfer.local import LocalTransfer, bins_max_of
from gobblin_assets.jobs.copy.transfer.preserve import parse_preserve
from gobblin_assets.jobs.copy.transfer.transfer_port import Transfer, TransferOrder
from gobblin_assets.model.files import FileIdentity

SMALL_RCLONE_RATIO_MIN: Final = 1.5
SMALL_CP_RATIO_MIN: Final = 0.7

_OURS: Final = "ours, directories that are new as a whole"
_OURS_COLD: Final = "ours, the same, and the processes are started first"
_OURS_LISTING: Final = "ours, with the listing of the source"
_OURS_BY_FILE: Final = "ours, each file by itself"
_OURS_UNCHECKED: Final = "ours, without checksums"
_PRESERVE: Final = parse_preserve("ugpt")
_NOTES: Final = (
    "Ours: as many workers as processors; attributes u, g, p, t; CRC32C of each file unless it says otherwise.",
    "After each copy the file system of the target is synced, which counts.",
)


def measure(world: World, options: Options) -> list[Table]:
    tools = list_copy_tools(world.home / "copies")
    small = Load("small files", 2_000 if options.quick else 20_000, 4 * KIB)
    # Source and target of four files, in memory.
    large = Load("large files", 4, find_room(8, 64 * MIB if options.quick else GIB))
    few, once = Load("small files", 500, 4 * KIB), Options(1, options.quick)
    quick_tools = tools.without_distcp()
    with LocalTransfer() as transfer:
        transfer.prepare(count_processors())
        return [
            _measure(small, MEMORY, transfer, quick_tools, options, (SMALL_RCLONE_RATIO_MIN, SMALL_CP_RATIO_MIN)),
            _measure(large, MEMORY, transfer, tools, options, (1.0, 1.0)),
            _measure(small, world.home, transfer, quick_tools, options, (1.0, None)),
            # Once is enough for what takes a hundred times as long.
            _measure(few, MEMORY, transfer, tools.only(CP, DISTCP), once, (1.0, None)),
        ]


def count_processors() -> int:
    return len(os.sched_getaffinity(0))


def _list_ours(transfer: LocalTransfer, source: Path) -> dict[str, Copy]:
    directories, files = list(plan_directories(source)), list(_plan_files(source))

    def cold(_source: Path, target: Path) -> None:
        with LocalTransfer() as fresh:
            stage_items(fresh, directories, source, target)

    def listing(_source: Path, target: Path) -> None:
        stage_items(transfer, list(plan_directories(source)), source, target)

    return {
        _OURS: partial(stage_items, transfer, directories),
        _OURS_COLD: cold,
        _OURS_LISTING: listing,
        _OURS_BY_FILE: partial(stage_items, transfer, files),
        _OURS_UNCHECKED: partial(stage_items, transfer, directories, checksum=False),
    }


def stage_items(
    transfer: Transfer, items: Sequence[CopyItem], source: Path, target: Path, *, checksum: bool = True
) -> None:
    """Copy the items into the new directory ``target``, as an attempt does."""
    bins = plan_bins(items, bins_max_of(count_processors()))
    for found in bins:
        (target / found.writer).mkdir(parents=True)
    order = TransferOrder(str(source), str(target), bins, count_processors(), "a measure", checksum)
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


def _list_files(directory: Path) -> Iterator[PlannedFile]:
    with os.scandir(directory) as entries:
        for each in entries:
            origin = _entry(f"{directory.name}/{each.name}", each.stat(follow_symlinks=False))
            yield PlannedFile.of(origin.path, origin, _PRESERVE.attributes_of(origin))


def _entry(path: str, found: os.stat_result) -> TreeEntry:
    kind = EntryKind.DIRECTORY if stat.S_ISDIR(found.st_mode) else EntryKind.FILE
    identity = FileIdentity(found.st_size, found.st_ino, found.st_mtime_ns)
    return TreeEntry(path, kind, identity, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)


def _measure(
    load: Load,
    parent: Path,
    transfer: LocalTransfer,
    tools: CopyTools,
    options: Options,
    needed: tuple[float, float | None],
) -> Table:
    samples, unsynced = Samples(), Samples()
    with open_place(parent) as folder:
        source, target = folder / "source", folder / "target"
        make_tree(source, load)
        copies = {**_list_ours(transfer, source), **tools.copies}
        for name in in_turns(list(copies), options.runs):
            time_copy(name, copies[name], source, target, samples, unsynced)
            require_whole(target, load)
            shutil.rmtree(target)
    place = find_file_system(parent)
    judged = [_OURS] if load.file_bytes <= MIB else [_OURS, _OURS_UNCHECKED]
    verdicts = [line for ours in judged for line in judge_copies(ours, samples, *needed)]
    title = f"Copies: {load.describe()}, {place} to {place}"
    return write_copy_table(title, load, samples, unsynced, (*_NOTES, *tools.notes, *verdicts))


def write_copy_table(title: str, load: Load, samples: Samples, unsynced: Samples, notes: Sequence[str]) -> Table:
    return Table(
        title,
        ("tool", "median", "min", "max", "median without the sync", "files/s", "GB/s"),
        tuple(
            samples.row(name, seconds(unsynced.median(name)), *load.describe_speed(samples.median(name)))
            for name in samples.by_name
        ),
        tuple(notes),
    )


def judge_copies(ours: str, samples: Samples, rclone_min: float, cp_min: float | None) -> Iterator[str]:
    """Lines for the notes: how many times as fast ours is. ``cp_min`` None: beside cp, nothing is required."""
    spent_s = samples.median(ours)
    rclone = [samples.median(name) for name in (RCLONE, RCLONE_FAST) if name in samples.by_name]
    if rclone:
        yield verdict_at_least(f"{ours}, against the faster rclone", min(rclone) / spent_s, rclone_min, "times as fast")
    if cp_min is not None and CP in samples.by_name:
        yield verdict_at_least(f"{ours}, against cp -r", samples.median(CP) / spent_s, cp_min, "times as fast")
