"""A place for files on every file system that the contract suites run over; its methods bypass the port."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol

from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.model.files import FileIdentity
from tests.simulation.disk import SimDisk
from tests.simulation.file_system import SimFileSystem
from tests.support.file_systems import ADAPTERS
from tests.support.mounts import remount_read_only, tmpfs

SIMULATED: Final = "simulated"
PLACES: Final = (*ADAPTERS, SIMULATED)
SMALL_DISK_BYTES: Final = 65_536


class Place(Protocol):
    """An empty directory and its file system. Paths are full ones, as the port takes them."""

    @property
    def fs(self) -> FileSystem: ...

    @property
    def root(self) -> str: ...

    def at(self, name: str) -> str:
        """The path of a name below the place."""
        ...

    def write(self, path: str, content: bytes = b"content") -> str:
        """Write a file, with its missing parents; an existing file keeps its identity. Returns the path."""
        ...

    def mkdir(self, path: str) -> str: ...

    def read(self, path: str) -> bytes: ...

    def exists(self, path: str) -> bool: ...

    def list_all(self) -> list[str]:
        """All files and directories below the place, by their names from it, in order."""
        ...

    def move(self, source: str, target: str) -> None: ...

    def link(self, source: str, target: str) -> None:
        """Give a file a second name."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file or an empty directory."""
        ...

    def set_mode(self, directory: str, mode: int) -> None: ...

    def on_small_disk(self) -> AbstractContextManager["SmallDisk"]:
        """A place on a disk of its own with ``SMALL_DISK_BYTES``."""
        ...


class SmallDisk(Place, Protocol):
    def fill(self, path: str) -> None:
        """Make a file that takes all the space that is left."""
        ...

    def make_read_only(self) -> None: ...


class PosixPlace:
    def __init__(self, fs: FileSystem, root: Path) -> None:
        self.fs = fs
        self.root = str(root)
        self._root = root

    def at(self, name: str) -> str:
        return f"{self.root}/{name}"

    def write(self, path: str, content: bytes = b"content") -> str:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(content)
        return path

    def mkdir(self, path: str) -> str:
        Path(path).mkdir(parents=True, exist_ok=True)
        return path

    def read(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def list_all(self) -> list[str]:
        return sorted(str(path.relative_to(self._root)) for path in self._root.rglob("*"))

    def move(self, source: str, target: str) -> None:
        Path(source).rename(target)

    def link(self, source: str, target: str) -> None:
        Path(target).hardlink_to(source)

    def remove(self, path: str) -> None:
        found = Path(path)
        found.rmdir() if found.is_dir() else found.unlink()

    def set_mode(self, directory: str, mode: int) -> None:
        Path(directory).chmod(mode)

    @contextmanager
    def on_small_disk(self) -> Iterator[SmallDisk]:
        with tmpfs(self._root / "small", options=f"size={SMALL_DISK_BYTES},mode=755") as mount:
            yield PosixSmallDisk(self.fs, mount)


class PosixSmallDisk(PosixPlace):
    def fill(self, path: str) -> None:
        with Path(path).open("wb", buffering=0) as file:
            free = os.statvfs(self._root)
            os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize)

    def make_read_only(self) -> None:
        remount_read_only(self._root)


class SimPlace:
    def __init__(self, disk: SimDisk, root: str = "/lake") -> None:
        self.fs: FileSystem = SimFileSystem(disk)
        self._disk = disk
        self.root = root
        disk.mkdir(root)

    def at(self, name: str) -> str:
        return f"{self.root}/{name}"

    def write(self, path: str, content: bytes = b"content") -> str:
        self._disk.write_file(path, content)
        return path

    def mkdir(self, path: str) -> str:
        self._disk.mkdir(path)
        return path

    def read(self, path: str) -> bytes:
        return self._disk.read(path)

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def list_all(self) -> list[str]:
        found = [self.root]
        for path in found:
            if self._disk.is_directory(path):
                found += [f"{path}/{name}" for name in self._disk.list_names(path)]
        return sorted(path.removeprefix(f"{self.root}/") for path in found[1:])

    def move(self, source: str, target: str) -> None:
        self._disk.rename(source, target)

    def link(self, source: str, target: str) -> None:
        self._disk.link(source, target)

    def remove(self, path: str) -> None:
        self._disk.remove(path)

    def set_mode(self, directory: str, mode: int) -> None:
        self._disk.change_mode(directory, mode)

    @contextmanager
    def on_small_disk(self) -> Iterator[SmallDisk]:
        yield SimSmallDisk(SimDisk(capacity_bytes=SMALL_DISK_BYTES))


class SimSmallDisk(SimPlace):
    def fill(self, path: str) -> None:
        self._disk.write_file(path, bytes(SMALL_DISK_BYTES - self._disk.used_bytes()))

    def make_read_only(self) -> None:
        self._disk.read_only = True


def open_place(kind: str, directory: Path) -> Place:
    """The place of one of ``PLACES``. ``directory`` is empty; places on a real disk use it."""
    return SimPlace(SimDisk()) if kind == SIMULATED else PosixPlace(ADAPTERS[kind](None), directory)


def identity_at(place: Place, path: str) -> FileIdentity:
    found = place.fs.find_identity(path)
    assert found is not None
    return found
