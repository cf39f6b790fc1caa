"""A lake whose source is a directory tree: jobs of the kind ``distcp`` copy it, and every part is the product's own.

Each version of a file has bytes and a time of its own, so that a version can be told wherever it stands.
"""

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.destinations.claims import WORK_NAME, work_root_of
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.copy.copy_spec import TRASH_KEEP_S, CopySpec
from gobblin_assets.jobs.copy.parsing import CopyDataset, read_copy
from gobblin_assets.jobs.copy.running import list_copy_datasets, open_copy_run
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import WHOLE, AssetPartition
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.run_values import RunReport, RunRequest
from gobblin_assets.run.runner import run_request
from tests.support.confined import give_up_writing_everywhere
from tests.support.lake import Lake, World
from tests.support.stopping_files import StoppingFiles

Open = Callable[..., "CopyWorld"]

Look = dict[str, tuple[object, ...]]
"""By path below a root: of a file its mode, time and bytes; of a directory its mode."""

STRANGER: Final = b"mine"
"""What somebody else writes."""

_FIRST_MTIME_S: Final = 1_700_000_000


@dataclass(frozen=True)
class CopyLake(Lake):
    """``options``: more options of the job. ``stops_before``: the act before which a process stops, from 1.

    ``is_confined``: who opens it may not write everywhere any more, as root may; for processes of their own.
    """

    urns: tuple[str, ...] = ("albums", "logs/app")
    trash_keep_s: float = TRASH_KEEP_S
    stops_before: int | None = None
    is_confined: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def work_root(self) -> str:
        return work_root_of(self.root)

    @property
    def source(self) -> Path:
        return Path(self.directory, "source")

    @property
    def tree(self) -> Path:
        """The destination."""
        return Path(self.root)

    def look(self) -> Look:
        """All that is published, by path below the root."""
        return look_at(self.tree)

    def files(self) -> Look:
        """The same without directories."""
        return _without_directories(self.look())

    def identities(self) -> dict[str, object]:
        """Which file is at which name, where that can be told."""
        return dict(inodes_of(self.tree))

    def write_stranger(self, path: str) -> object:
        """Put somebody else's file at the name, in the place of what is there; returns which one it is."""
        place = self.tree / path
        place.unlink(missing_ok=True)
        place.write_bytes(STRANGER)
        return self.identify(path)

    def identify(self, path: str) -> object:
        """What is at the name, to be compared."""
        place = self.tree / path
        return place.stat().st_ino, place.read_bytes()

    def open_world(self) -> "CopyWorld":
        if self.is_confined:
            give_up_writing_everywhere()
        return CopyWorld(self)

    def copy_job(self) -> CopySpec:
        written: dict[str, Any] = {
            "job": self.job_name,
            "kind": "distcp",
            "source": str(self.source),
            "destination": self.root,
            "parallelism": 1,
            "workers": 2,
            "retry": {"task_tries_max": 2, "back_off_s": 0},
            "lease": {"ttl_s": self.lease_ttl_s, "wait_s": self.lease_wait_s},
            "publish_tries_max": self.publish_tries_max,
            "trash_keep_s": self.trash_keep_s,
            "defaults": {"deletes": "ours"},
            "datasets": [{"urn": urn} for urn in self.urns],
        }
        return read_copy({**written, **self.options})

    def write(self, path: str, version: int) -> Path:
        """Write this version of a source file; its bytes are those of ``content_of``."""
        place = self.source / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content_of(path, version))
        place.chmod(0o600 + version)
        os.utime(place, (_FIRST_MTIME_S, _FIRST_MTIME_S + version))
        return place

    def make_source(self) -> None:
        for path in OF_VERSION_1:
            self.write(path, 1)
        for path, mode in MODES_OF_DIRECTORIES.items():
            (self.source / path).chmod(mode)

    def change_source(self) -> None:
        """New, replaced and removed files, metadata, new directories with files and without."""
        for path in OF_VERSION_2:
            self.write(path, 2)
        (self.source / REMOVED).unlink()
        (self.source / "albums/empty/nested").mkdir(parents=True)
        (self.source / "albums/empty").chmod(0o750)

    def change_again(self) -> None:
        """A third version of what the second wrote, and the removed file is there again."""
        for path in (*OF_VERSION_2, REMOVED):
            self.write(path, 3)


REMOVED: Final = "albums/removed.bin"
REPLACED: Final = ("albums/changed.bin", "albums/_SUCCESS", "logs/app/today.log")
OF_VERSION_1: Final = ("albums/kept.bin", REMOVED, *REPLACED)
MODES_OF_DIRECTORIES: Final = {"albums": 0o700, "logs": 0o711, "logs/app": 0o750}
OF_VERSION_2: Final = ("albums/new.bin", "albums/trip/first.bin", "albums/trip/sea/second.bin", *REPLACED)
ACTS_OF_THE_CHANGE: Final = 11
"""Two directories, a file and a directory placed, three replacements of two renames, a removal."""


def settle(lake: CopyLake) -> None:
    """Let directories of the source look old: what was changed just now would be listed again in any case."""
    for directory in lake.source.rglob("*"):
        if directory.is_dir() and directory.stat().st_mtime > _FIRST_MTIME_S + 100:
            os.utime(directory, (_FIRST_MTIME_S, _FIRST_MTIME_S + directory.stat().st_ino % 100))


def content_of(path: str, version: int) -> bytes:
    return f"version {version} of {path}\n".encode() * version


def look_at(root: Path) -> Look:
    """All below ``root`` but the work directory."""
    found: Look = {}
    for path in root.rglob("*"):
        name = path.relative_to(root)
        if name.parts[0] != WORK_NAME:
            entry = path.lstat()
            mode = stat.S_IMODE(entry.st_mode)
            is_file = stat.S_ISREG(entry.st_mode)
            found[str(name)] = (mode, entry.st_mtime_ns, path.read_bytes()) if is_file else (mode,)
    return found


def inodes_of(root: Path) -> dict[str, int]:
    """Of all below ``root`` but the work directory: which file is at which name."""
    return {name: (root / name).lstat().st_ino for name in look_at(root)}


def files_of(root: Path) -> Look:
    """The same without directories."""
    return _without_directories(look_at(root))


def _without_directories(look: Look) -> Look:
    return {name: found for name, found in look.items() if len(found) > 1}


def _partitions_of(dataset: CopyDataset) -> tuple[AssetPartition, ...]:
    sets = dataset.found.file_sets
    return tuple(AssetPartition(each.key, each.window) if each.key else WHOLE for each in sets)


@dataclass
class CopyWorld(World):
    """The lake opened by this process."""

    lake: CopyLake

    def __post_init__(self) -> None:
        super().__post_init__()
        number = self.lake.stops_before
        self._stopping = None if number is None else StoppingFiles(number)

    def open_file_system(self, uri: str) -> tuple[FileSystem, str]:
        found, root = open_file_system(uri)
        return self._stopping or found, root

    def operations(self) -> LogOperations:
        return replace(super().operations(), open_file_system=self.open_file_system)

    def run(
        self,
        *,
        mode: Mode = Mode.APPEND,
        urns: Sequence[str] | None = None,
        by_hand: bool = True,
        news_only: bool = False,
        confirm_deletes: bool = False,
    ) -> RunReport:
        job = self.lake.copy_job()
        datasets = list_copy_datasets(job)
        selection = {DatasetUrn(urn): _partitions_of(datasets[DatasetUrn(urn)]) for urn in urns or datasets}
        with open_copy_run(job, self.stores, self.lines.append, self._record_event) as opened:
            ports = replace(opened, open_file_system=self.open_file_system)
            asked = RunRequest(job, selection, mode, by_hand, news_only=news_only, confirm_deletes=confirm_deletes)
            return run_request(asked, ports)

    def slots(self) -> Counter[bytes]:
        """The bytes of every version that was moved aside and is kept."""
        found = (self.lake.tree / WORK_NAME).rglob("slots/*")
        return Counter(path.read_bytes() for path in found if path.is_file())

    def check_copied(self) -> None:
        """Check both trees, the log and what is left of attempts, after all work has ended."""
        self.check_trees()
        unfinished = "SELECT count(*) FROM gobblin.commit_sequence WHERE state <> 'DONE' AND state <> 'ABORTED'"
        assert self.scalar(unfinished) == 0, "a sequence is still open"
        kept = """
            SELECT count(*) FROM gobblin.attempt a JOIN gobblin.commit_sequence s USING (sequence_id)
             WHERE s.state = 'DONE' AND a.state = 'STAGED' AND a.cleaned_at IS NULL
        """
        assert len(self.attempts_left()) == self.scalar(kept), "staging is left, or slots are gone before their time"

    def check_trees(self) -> None:
        assert look_at(self.lake.tree) == look_at(self.lake.source), "the trees differ"

    def attempts_left(self) -> list[Path]:
        """The directories of attempts, under the names that they have now."""
        return sorted({path.parent for path in (self.lake.tree / WORK_NAME).rglob("slots")})


@contextmanager
def opening(lake: CopyLake) -> Iterator[Open]:
    """Opens the lake with options of every dataset, and ``job`` for those of the job; closes what was opened."""
    opened = []

    def open_world(job: dict[str, Any] | None = None, **defaults: Any) -> CopyWorld:
        world = replace(lake, options={"defaults": defaults, **(job or {})}).open_world()
        opened.append(world)
        return world

    yield open_world
    for world in opened:
        world.close()


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> CopyLake:
    """With the first version of its source."""
    made = CopyLake(database_url, str(tmp_path))
    made.make_source()
    return made


@pytest.fixture
def world(lake: CopyLake) -> Iterator[CopyWorld]:
    opened = lake.open_world()
    yield opened
    opened.close()


@pytest.fixture
def changed(lake: CopyLake, world: CopyWorld) -> CopyWorld:
    """The first version was copied, and then the source changed."""
    assert not world.run().failed
    lake.change_source()
    return world


@pytest.fixture
def job(lake: CopyLake) -> Iterator[Open]:
    with opening(lake) as open_world:
        yield open_world
