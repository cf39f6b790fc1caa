"""The verdict on copies, after everything has come to rest: both trees, the log, and what is left of attempts."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gobblin_assets.commit.published.verification import Verification, VerificationProgress
from gobblin_assets.destinations.claims import work_root_of
from gobblin_assets.destinations.fixed_names.trash import Trash
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.urn import DatasetUrn, JobName
from tests.support.copy_lake import CopyWorld, Look, look_at
from tests.torture.copy_source import SourceTree
from tests.torture.copy_watch import Identity, read_names
from tests.torture.history import Destination, check_history, check_log
from tests.torture.observer import Connection, Remembered, Subject
from tests.torture.tally import Tally

_NAMED_MAX: Final = 3
_LAST_CHANGES: Final = 4


@dataclass(frozen=True, slots=True)
class CopyDestination(Destination):
    """``source`` and ``root``: the directories above those of the datasets."""

    source: Path
    root: Path
    subjects: Sequence[Subject]
    world: CopyWorld


def describe_destination(world: CopyWorld) -> CopyDestination:
    """Of a job whose datasets are in one directory of the source."""
    lake = world.lake
    return CopyDestination(
        job=lake.job_name,
        work=Path(work_root_of(lake.root), lake.job_name),
        events=lake.events,
        acknowledged=lake.acknowledged,
        source=lake.source / lake.urns[0].partition("/")[0],
        root=lake.tree,
        subjects=[Subject(lake.job_name, urn) for urn in lake.urns],
        world=world,
    )


def check_copies(
    connect: Callable[[], Connection], destinations: Sequence[CopyDestination], seen: Remembered, tally: Tally
) -> None:
    """Report every difference to ``tally``. ``seen``: an observer's view on the way; the end must agree with it."""
    with connect() as connection:
        for destination in destinations:
            _check_trees(destination, tally)
            tally.add("files at the sources", len(_files_of(look_at(destination.source))))
            _check_names(connection, destination, tally)
            _verify(destination, tally)
            check_history(connection, destination, destination.subjects, seen, tally)
        check_log(connection, tally)


def _check_trees(destination: CopyDestination, tally: Tally) -> None:
    """By name, bytes, mode and time. Directories that the source lost are left, and have no file."""
    source, copy = look_at(destination.source), look_at(destination.root)
    differing = {
        "are missing": source.keys() - copy.keys(),
        "are too many": _files_of(copy).keys() - source.keys(),
        "differ in bytes, mode or time": {path for path in source.keys() & copy.keys() if source[path] != copy[path]},
    }
    for said, paths in differing.items():
        if paths:
            tally.violate(f"{destination.job}: {len(paths)} names {said}, such as {sorted(paths)[:_NAMED_MAX]}")


def _files_of(found: Look) -> Look:
    return {path: entry for path, entry in found.items() if len(entry) > 1}


def _check_names(connection: Connection, destination: CopyDestination, tally: Tally) -> None:
    """What the log says of names is what is there, file by file."""
    known: dict[str, Identity] = {}
    for subject in destination.subjects:
        names = read_names(connection, subject, destination.root).current
        known.update({path: identity for path, identity in names.items() if identity is not None})
    found = _identities_below(destination.root)
    differing = {path for path in known.keys() | found.keys() if known.get(path) != found.get(path)}
    if differing:
        some = sorted(differing)[:_NAMED_MAX]
        tally.violate(f"{destination.job}: {len(differing)} names are not those of the log, such as {some}")


def _identities_below(root: Path) -> dict[str, Identity]:
    entries = {path: (root / path).lstat() for path in _files_of(look_at(root))}
    return {path: (entry.st_size, entry.st_ino, entry.st_mtime_ns) for path, entry in entries.items()}


def _verify(destination: CopyDestination, tally: Tally) -> None:
    """The product's own comparison of log and storage finds nothing, and looks at every file."""
    stores = destination.world.stores
    job = JobName(destination.job)
    verification = Verification(
        store=stores.commits,
        published=stores.published,
        open_file_system=open_file_system,
        destination=str(destination.work.parent),
        job=job,
        progress=VerificationProgress(SystemClock(), lambda _line: None),
    )
    states = stores.datasets.load(job, [DatasetUrn(subject.urn) for subject in destination.subjects])
    verified = [verification.verify(urn, state.dataset_id, checksums=False) for urn, state in states.items()]
    for each in verified:
        if each.faults:
            tally.violate(f"{destination.job}: verify says of {each.urn}: {each.faults[:_NAMED_MAX]}")
    tally.add("files that verify looked at", sum(each.file_count for each in verified))


def check_last_change(destination: CopyDestination, trees: Iterable[SourceTree], tally: Tally) -> None:
    """One more change of everything, one more run: the slots hold what it replaced and removed, and nothing else."""
    world = destination.world
    for tree in trees:
        for _change in range(_LAST_CHANGES):
            tree.change()
    before = _identities_below(destination.root)
    failed = [f"{each.urn}: {each.error}" for each in world.run(news_only=True).failed]
    if failed:
        tally.violate(f"{destination.job}: the last run failed: {failed}")
    _check_trees(destination, tally)
    after = _identities_below(destination.root)
    moved = {path: identity for path, identity in before.items() if after.get(path) != identity}
    trash = Trash(world.stores.commits, world.stores.published, open_file_system, JobName(destination.job))
    start = len(str(destination.root)) + 1
    kept = [
        (each.path[start:], (each.identity.size_bytes, each.identity.inode, each.identity.mtime_ns))
        for subject in destination.subjects
        for each in trash.list_files(DatasetUrn(subject.urn))
    ]
    if sorted(kept) != sorted(moved.items()):
        tally.violate(f"{destination.job}: the slots hold {sorted(kept)}, and these were moved away: {sorted(moved)}")
    tally.add("versions in slots after the last change", len(kept))
