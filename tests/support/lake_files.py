"""The files of a lake's destination, as a person sees and changes them: on a disk, in an object store, or on HDFS."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from gobblin_assets.fs.objects import ObjectFiles, PendingUpload
from gobblin_assets.fs.registry import is_object_store, open_object_store
from gobblin_assets.fs.s3.client import S3Client
from gobblin_assets.fs.s3.requests import Repeat, S3Request, split_key
from gobblin_assets.fs.s3.s3_settings import read_s3_settings
from tests.support.hdfs_place import HdfsClient


class LakeFiles(Protocol):
    """Paths are those of the log."""

    def list_all(self) -> list[str]:
        """All files below the root."""
        ...

    def list_left(self, name: str) -> list[str]:
        """What stands in the directories of this name, and what was begun and is not visible yet."""
        ...

    def read(self, path: str) -> bytes: ...

    def write(self, path: str, content: bytes) -> None:
        """As a stranger: whatever is there gives way."""
        ...

    def remove(self, path: str) -> None: ...


@dataclass(frozen=True)
class FilesOnDisk:
    root: str

    def list_all(self) -> list[str]:
        return sorted(str(path) for path in Path(self.root).rglob("*") if path.is_file())

    def list_left(self, name: str) -> list[str]:
        return sorted(map(str, Path(self.root).rglob(f"{name}/*")))

    def read(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def write(self, path: str, content: bytes) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(content)

    def remove(self, path: str) -> None:
        Path(path).unlink()


@dataclass(frozen=True)
class FilesInStore:
    objects: ObjectFiles
    root: str

    def list_all(self) -> list[str]:
        return sorted(each.path for each in self.objects.list_objects(self.root))

    def list_left(self, name: str) -> list[str]:
        # A process that is killed before it writes down what it has begun leaves an upload without bytes.
        pending = [each.path for each in self.objects.list_uploads(self.root) if has_parts(each)]
        return sorted([*pending, *(path for path in self.list_all() if f"/{name}/" in path)])

    def read(self, path: str) -> bytes:
        with self.objects.open_input(path) as stream:
            return stream.read()

    def write(self, path: str, content: bytes) -> None:
        if self.objects.find_object(path) is not None:
            self.remove(path)
        self.objects.put_if_absent(path, content)

    def remove(self, path: str) -> None:
        found = self.objects.find_object(path)
        assert found is not None, f"{path} is not there"
        self.objects.remove_object(path, found.etag)


@dataclass(frozen=True)
class FilesOnHdfs:
    client: HdfsClient
    root: str

    def list_all(self) -> list[str]:
        return sorted(path for path, status in self.client.walk(self.root) if status["type"] == "FILE")

    def list_left(self, name: str) -> list[str]:
        return sorted(path for path, _status in self.client.walk(self.root) if f"/{name}/" in path)

    def read(self, path: str) -> bytes:
        return self.client.read(path)

    def write(self, path: str, content: bytes) -> None:
        self.client.write(path, content)

    def remove(self, path: str) -> None:
        self.client.ask("DELETE", path, "DELETE")


def has_parts(pending: PendingUpload) -> bool:
    """Asked by the client that the environment describes: the product has no need to know."""
    client = S3Client(read_s3_settings(os.environ), "destination")
    query = {"uploadId": pending.upload}
    answer = client.send(S3Request("list the parts of", "GET", *split_key(pending.path), Repeat.ANY, query))
    return b"<Part>" in answer.body


def open_lake_files(root_uri: str) -> LakeFiles:
    if root_uri.startswith("hdfs:"):
        address = urlsplit(os.environ["GOBBLIN_HDFS_WEB_URL"]).netloc
        return FilesOnHdfs(HdfsClient(address), urlsplit(root_uri).path)
    if not is_object_store(root_uri):
        return FilesOnDisk(root_uri)
    return FilesInStore(*open_object_store(root_uri, "destination"))
