"""A lake whose source is a directory tree and whose destination is a bucket: what differs from ``copy_lake``."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from gobblin_assets.commit.object_attempts import MTIME_KEY
from gobblin_assets.destinations.claims import work_root_of
from gobblin_assets.fs.objects import ObjectFiles
from gobblin_assets.fs.registry import open_object_store
from tests.support.copy_lake import STRANGER, CopyLake, CopyWorld, Look


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

    def look(self) -> Look:
        """The time of its origin and the bytes of each published object."""
        store, found = self.open_store(), Look()
        for entry in store.list_objects(self.place):
            whole = store.find_object(entry.path)
            if not entry.path.startswith(f"{work_root_of(self.place)}/") and whole is not None:
                mtime_ns = int((whole.metadata or {})[MTIME_KEY])
                found[entry.path.removeprefix(f"{self.place}/")] = (mtime_ns, read_object(store, entry.path))
        return found

    def identities(self) -> dict[str, object]:
        """None: an object that is given back is another one."""
        return {}

    def write_stranger(self, path: str) -> object:
        store, at = self.open_store(), f"{self.place}/{path}"
        if (old := store.find_object(at)) is not None:
            store.remove_object(at, old.etag)
        store.put_if_absent(at, STRANGER)
        return self.identify(path)

    def identify(self, path: str) -> object:
        return self.open_store().find_object(f"{self.place}/{path}")

    def look_at_source(self) -> Look:
        """As ``look``."""
        files = [path for path in self.source.rglob("*") if path.is_file()]
        return {str(each.relative_to(self.source)): (each.stat().st_mtime_ns, each.read_bytes()) for each in files}

    def open_store(self) -> ObjectFiles:
        return open_object_store(f"s3:/{self.place}", "destination")[0]


@dataclass
class ObjectCopyWorld(CopyWorld):
    """The lake opened by this process."""

    lake: ObjectLake

    def slots(self) -> Counter[bytes]:
        store, work = self.lake.open_store(), work_root_of(self.lake.place)
        paths = [entry.path for entry in store.list_objects(work) if "/slots/" in entry.path]
        return Counter(read_object(store, path) for path in paths)

    def check_copied(self) -> None:
        self.check_trees()
        unfinished = "SELECT count(*) FROM gobblin.commit_sequence WHERE state <> 'DONE' AND state <> 'ABORTED'"
        assert self.scalar(unfinished) == 0, "a sequence is still open"
        assert not list(self.lake.open_store().list_uploads(self.lake.place)), "uploads are left"

    def check_trees(self) -> None:
        assert self.lake.look() == self.lake.look_at_source(), "the bucket and the tree differ"


def read_object(store: ObjectFiles, path: str) -> bytes:
    with store.open_input(path) as stream:
        return stream.read()
