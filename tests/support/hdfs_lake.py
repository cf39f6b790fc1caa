"""A lake of copies whose destination is a directory of HDFS."""

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from gobblin_assets.destinations.claims import WORK_NAME
from tests.support.copy_lake import STRANGER, CopyLake, CopyWorld, Look, look_at
from tests.support.hdfs_place import HdfsClient
from tests.support.hdfs_server import HdfsServer

_MS_NS = 1_000_000


@dataclass(frozen=True)
class HdfsLake(CopyLake):
    """``place``: the path of the destination's root. ``environment``: how the cluster is reached."""

    place: str = ""
    address: str = ""
    http_address: str = ""
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def root(self) -> str:
        return f"hdfs://{self.address}{self.place}"

    @property
    def tree(self) -> Path:
        """The path of the destination: it is on no disk."""
        return Path(self.place)

    def write_stranger(self, path: str) -> object:
        HdfsClient(self.http_address).write(f"{self.place}/{path}", STRANGER)
        return self.identify(path)

    def identify(self, path: str) -> object:
        return self.identities()[path], HdfsClient(self.http_address).read(f"{self.place}/{path}")

    def open_world(self) -> "HdfsWorld":
        os.environ.update(self.environment)
        return HdfsWorld(self)

    def look(self) -> Look:
        client, found = HdfsClient(self.http_address), Look()
        for path, status in client.walk(self.place):
            name = path.removeprefix(f"{self.place}/")
            if name.split("/")[0] != WORK_NAME:
                mode = int(status["permission"], 8)
                is_file = status["type"] == "FILE"
                mtime_ns = status["modificationTime"] * _MS_NS
                found[name] = (mode, mtime_ns, client.read(path)) if is_file else (mode,)
        return found

    def identities(self) -> dict[str, object]:
        found = HdfsClient(self.http_address).walk(self.place)
        names = ((path.removeprefix(f"{self.place}/"), status["fileId"]) for path, status in found)
        return {name: file_id for name, file_id in names if name.split("/")[0] != WORK_NAME}


@dataclass
class HdfsWorld(CopyWorld):
    lake: HdfsLake = field()

    def slots(self) -> Counter[bytes]:
        client = HdfsClient(self.lake.http_address)
        kept = [path for path, status in self._work() if status == "FILE" and path.split("/")[-2] == "slots"]
        return Counter(client.read(path) for path in kept)

    def attempts_left(self) -> list[Path]:
        return sorted({Path(path).parent for path, _kind in self._work() if path.endswith("/slots")})

    def check_trees(self) -> None:
        assert self.lake.look() == look_at(self.lake.source), "the trees differ"

    def _work(self) -> list[tuple[str, str]]:
        """The path and the kind of all that is below the work directory."""
        client = HdfsClient(self.lake.http_address)
        return [(path, status["type"]) for path, status in client.walk(f"{self.lake.place}/{WORK_NAME}")]


def make_hdfs_lake(server: HdfsServer, database_url: str, folder: Path) -> HdfsLake:
    """A source with its first version, and an empty directory to copy to."""
    made = HdfsLake(
        database_url,
        str(folder),
        place=server.make_root(),
        address=server.address,
        http_address=server.http_address,
        environment=tuple(server.environment.items()),
    )
    made.make_source()
    return made
