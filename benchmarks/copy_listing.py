"""How long a copy takes to see that nothing changed, and how much memory: both trees are listed and compared.

The destination's files are hard links of the source's, so that lengths and times are the same. Generated listings show
what the comparison costs without a file system.
"""

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.memory import peak_mb, reset_peak, resident_mb
from benchmarks.tables import Laps, Options, Samples, Table, seconds, verdict
from benchmarks.world import World
from gobblin_assets.fs.posix_tree import PosixTree
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.jobs.copy.difference import Deletes, DifferenceKind, DifferenceRules, compare_trees
from gobblin_assets.jobs.copy.sameness import Sameness
from gobblin_assets.model.files import FileIdentity

FILES: Final = 1_000_000
FILES_QUICK: Final = 20_000
GENERATED_PER_FILE: Final = 10
FILES_PER_DIRECTORY: Final = 1_000
COMPARED_S_MAX: Final = 30.0
COMPARED_MB_MAX: Final = 500.0
GENERATED_MB_MAX: Final = 1_000.0

_MEMORY_DISK: Final = Path("/dev/shm")
_INODES_LEFT: Final = 200_000
_EPOCH_NS: Final = 1_760_000_000_000_000_000


def measure(world: World, options: Options) -> list[Table]:
    count = FILES_QUICK if options.quick else FILES
    samples, processor, growths, peaks = Samples(), Samples(), Samples(), Samples()
    shapes = {f"{FILES_PER_DIRECTORY:,} files a directory": FILES_PER_DIRECTORY, "one directory": count}
    for shape, per_directory in shapes.items():
        with _open_place(world, count) as place:
            _make_trees(place, count, per_directory)
            tree = PosixTree("source", hidden=frozenset({".gobblin"}))
            for _run in range(options.runs):
                listings = [tree.list_tree(str(place / side)) for side in ("source", "destination")]
                _compare(shape, listings, count, samples, processor, growths, peaks)
    generated = f"generated, {GENERATED_PER_FILE * count:,} files"
    _compare(generated, [_generate(GENERATED_PER_FILE * count) for _side in "ab"], GENERATED_PER_FILE * count,
             samples, processor, growths, peaks)  # fmt: skip
    notes = [
        (
            f"{count:,} files on each side, all unchanged, in {place.parent}; listed and compared by length and "
            "time, with deletions on. The destination's are hard links."
        ),
        *(f"{name}: the process grew by {growths.median(name):.0f} MB at most." for name in growths.by_name),
        *(verdict(f"{count:,} files, {shape}", samples.median(shape), COMPARED_S_MAX) for shape in shapes),
        *(verdict(f"{shape}, the whole process", peaks.median(shape), COMPARED_MB_MAX, "MB") for shape in shapes),
        verdict(f"{generated}, the whole process", peaks.median(generated), GENERATED_MB_MAX, "MB"),
        "The generated listings were compared once.",
    ]
    rows = tuple(samples.row(name, seconds(processor.median(name))) for name in samples.by_name)
    columns = ("tree", "median", "min", "max", "of it, the processor's time")
    return [Table("Copies: comparing trees", columns, rows, tuple(notes))]


def _compare(
    name: str,
    listings: list[Iterator[TreeEntry]],
    count: int,
    samples: Samples,
    processor: Samples,
    growths: Samples,
    peaks: Samples,
) -> None:
    reset_peak()
    resident, laps, processed_s = resident_mb(), Laps(), time.process_time()
    source, destination = listings
    rules = DifferenceRules(Sameness(mtime_precision_ns=1), deletes=Deletes.ALL)
    kinds = Counter((each.kind, each.source is not None) for each in compare_trees(source, destination, rules))
    laps.lap("compared")
    samples.add(name, laps.spent["compared"])
    processor.add(name, time.process_time() - processed_s)
    growths.add(name, peak_mb() - resident)
    peaks.add(name, peak_mb())
    if kinds.keys() != {(DifferenceKind.SAME, True)} or kinds.total() < count:
        raise RuntimeError(f"expected unchanged files only, found {kinds}")


@contextmanager
def _open_place(world: World, count: int) -> Iterator[Path]:
    """In memory where that has room for the names, each of which takes an inode there, else beside the server."""
    fits = _MEMORY_DISK.is_dir() and os.statvfs(_MEMORY_DISK).f_favail > 2 * count + _INODES_LEFT
    place = Path(tempfile.mkdtemp(prefix="copy-listing-", dir=_MEMORY_DISK if fits else world.home))
    try:
        yield place
    finally:
        shutil.rmtree(place)


def _make_trees(root: Path, count: int, per_directory: int) -> None:
    for first in range(0, count, per_directory):
        source, destination = (root / side / f"part-{first // per_directory:05d}" for side in ("source", "destination"))
        source.mkdir(parents=True)
        destination.mkdir(parents=True)
        for number in range(first, min(first + per_directory, count)):
            name = f"{source}/file-{number:08d}.parquet"
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o644))
            os.link(name, f"{destination}/file-{number:08d}.parquet")


def _generate(count: int) -> Iterator[TreeEntry]:
    for number in range(count):
        directory = f"part-{number // FILES_PER_DIRECTORY:05d}"
        if number % FILES_PER_DIRECTORY == 0:
            yield TreeEntry(directory, EntryKind.DIRECTORY, FileIdentity(0, number, _EPOCH_NS), 0o755, 0, 0)
        identity = FileIdentity(number, number, _EPOCH_NS + number)
        yield TreeEntry(f"{directory}/file-{number:08d}.parquet", EntryKind.FILE, identity, 0o644, 0, 0)
