"""Directories that tests change while they are listed: on disks, on an SFTP server, on HDFS."""

import os
import shutil
from pathlib import Path, PurePosixPath
from typing import Protocol

from gobblin_assets.fs.tree import Tree
from tests.support.hdfs_place import HdfsClient
from tests.support.hdfs_server import HdfsServer


class TreePlace(Protocol):
    """``root``: an empty directory. ``tree``: what lists it.

    ``tells_files_at_once``: which files a directory has is known once it has been read, and not when each is given.
    """

    root: str
    tree: Tree
    tells_files_at_once: bool

    def make(self, *paths: str) -> None:
        """Files, and directories where a path ends with a slash."""
        ...

    def remove(self, path: str) -> None:
        """A file, or a directory with all that is below it."""
        ...

    def move(self, path: str, to: str) -> None: ...

    def set_mode(self, path: str, mode: int) -> None: ...


class LocalTreePlace:
    """``tree`` may be a server's that has the directory under the same path."""

    def __init__(self, root: Path, tree: Tree, *, tells_files_at_once: bool) -> None:
        self.root = str(root)
        self.tree = tree
        self.tells_files_at_once = tells_files_at_once

    def make(self, *paths: str) -> None:
        for path in paths:
            place = Path(self.root, path)
            (place if path.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
            if not path.endswith("/"):
                place.write_bytes(os.fsencode(path))

    def remove(self, path: str) -> None:
        place = Path(self.root, path)
        shutil.rmtree(place) if place.is_dir() else place.unlink()

    def move(self, path: str, to: str) -> None:
        Path(self.root, path).rename(Path(self.root, to))

    def set_mode(self, path: str, mode: int) -> None:
        Path(self.root, path).chmod(mode)


class HdfsTreePlace:
    """The tree is listed by ``user``, who is not the one that makes the files."""

    tells_files_at_once = True

    def __init__(self, server: HdfsServer, hidden: frozenset[str] = frozenset(), user: str = "stranger") -> None:
        self.root = server.make_root()
        self.tree: Tree = server.open(user=user).open_tree("source", hidden=hidden, follow_links=False)
        self._client = HdfsClient(server.http_address)

    def make(self, *paths: str) -> None:
        for path in paths:
            if path.endswith("/"):
                self._client.ask("PUT", self._at(path), "MKDIRS")
            else:
                self._client.write(self._at(path), path.encode())

    def remove(self, path: str) -> None:
        self._client.ask("DELETE", self._at(path), "DELETE", recursive="true")

    def move(self, path: str, to: str) -> None:
        self._client.ask("PUT", self._at(path), "RENAME", destination=self._at(to), renameoptions="NONE")

    def set_mode(self, path: str, mode: int) -> None:
        self._client.ask("PUT", self._at(path), "SETPERMISSION", permission=f"{mode:o}")

    def _at(self, path: str) -> str:
        return str(PurePosixPath(self.root, path))
