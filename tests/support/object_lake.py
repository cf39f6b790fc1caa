"""A lake whose source is a directory tree and whose destination is a bucket: what differs from ``copy_lake``."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gobblin_assets.commit.object_attempts import MTIME_KEY
from gobblin_assets.destinations.claims import work_root_of
from gobblin_assets.fs.objects import ObjectFiles
from gobblin_assets.fs.registry import open_object_store
from tests.support.copy_lake import CopyLake, CopyWorld


@dataclass(frozen=True)
class ObjectLake(CopyLake):
    """``place``: the destination's path in the store. ``environment``: how processes reach the store."""

    place: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def work_root(self) -> str:
        return f"s3:/{work_root_of(self.place)}"

    def open_world(self) -> "ObjectCopyWorld":
        os.environ.update(self.environment)
        return ObjectCopyWorld(self)

    def open_store(self) -> ObjectFiles:
        return open_object_store(f"s3:/{self.place}", "destination")[0]


@dataclass
class ObjectCopyWorld(CopyWorld):
    """The lake opened by this process."""

    lake: ObjectLake

    def objects(self) -> dict[str, tuple[int, bytes]]:
        """Of each published object, by its key below the place, the time of its origin and its bytes."""
        store, found = self.lake.open_store(), {}
        for entry in store.list_objects(self.lake.place):
            whole = store.find_object(entry.path)
            if not entry.path.startswith(f"{work_root_of(self.lake.place)}/") and whole is not None:
                mtime_ns = int((whole.metadata or {})[MTIME_KEY])
                found[entry.path.removeprefix(f"{self.lake.place}/")] = (mtime_ns, self._read(store, entry.path))
        return found

    def files(self) -> dict[str, tuple[int, bytes]]:
        """The same of the source."""
        files = [path for path in self.lake.source.rglob("*") if path.is_file()]
        return {str(each.relative_to(self.lake.source)): _describe(each) for each in files}

    def slots(self) -> Counter[bytes]:
        store, work = self.lake.open_store(), work_root_of(self.lake.place)
        paths = [entry.path for entry in store.list_objects(work) if "/slots/" in entry.path]
        return Counter(self._read(store, path) for path in paths)

    def check_copied(self) -> None:
        assert self.objects() == self.files(), "the bucket and the tree differ"
        unfinished = "SELECT count(*) FROM gobblin.commit_sequence WHERE state <> 'DONE' AND state <> 'ABORTED'"
        assert self.scalar(unfinished) == 0, "a sequence is still open"
        assert not list(self.lake.open_store().list_uploads(self.lake.place)), "uploads are left"

    def _read(self, store: ObjectFiles, path: str) -> bytes:
        with store.open_input(path) as stream:
            return stream.read()


def _describe(path: Path) -> tuple[int, bytes]:
    return path.stat().st_mtime_ns, path.read_bytes()
