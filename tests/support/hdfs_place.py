"""What tests do and see on HDFS. It speaks WebHDFS by itself, so that it shares no code with the adapter."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import urllib3

from tests.support.hdfs_server import USER, HdfsServer
from tests.support.places import SmallDisk


class HdfsClient:
    """``http_address``: of the NameNode."""

    def __init__(self, http_address: str) -> None:
        self._url = f"http://{http_address}/webhdfs/v1"
        self._http = urllib3.PoolManager()

    def write(self, path: str, content: bytes, **options: str) -> None:
        """``options``: those of WebHDFS's CREATE."""
        begun = self.ask("PUT", path, "CREATE", overwrite="true", noredirect="true", **options)
        sent = self._http.request("PUT", begun["Location"], body=content)
        assert sent.status == 201, sent.data

    def read(self, path: str) -> bytes:
        begun = self.ask("GET", path, "OPEN", noredirect="true")
        found: bytes = self._http.request("GET", begun["Location"]).data
        return found

    def find(self, path: str) -> dict[str, Any] | None:
        answer = self._http.request("GET", f"{self._url}{quote(path)}?op=GETFILESTATUS&user.name={USER}")
        assert answer.status in {200, 404}, answer.data
        found: dict[str, Any] = json.loads(answer.data)["FileStatus"] if answer.status == 200 else None
        return found

    def walk(self, root: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """The full path and the status of all that is below ``root``. What disappears meanwhile is left out."""
        pending = [root]
        while pending:
            current = pending.pop()
            answer = self._http.request("GET", f"{self._url}{quote(current)}?op=LISTSTATUS&user.name={USER}")
            assert answer.status in {200, 404}, answer.data
            for each in json.loads(answer.data)["FileStatuses"]["FileStatus"] if answer.status == 200 else ():
                path = f"{current}/{each['pathSuffix']}"
                yield path, each
                if each["type"] == "DIRECTORY":
                    pending.append(path)

    def ask(self, method: str, path: str, op: str, **query: str) -> dict[str, Any]:
        asked = urlencode({"op": op, "user.name": USER, **query}, quote_via=quote)
        answer = self._http.request(method, f"{self._url}{quote(path)}?{asked}")
        assert answer.status == 200, answer.data
        found: dict[str, Any] = json.loads(answer.data) if answer.data else {}
        return found


class HdfsPlace:
    def __init__(self, server: HdfsServer) -> None:
        self.fs = server.open()
        self.root = server.make_root()
        self._client = HdfsClient(server.http_address)

    def at(self, name: str) -> str:
        return f"{self.root}/{name}"

    def write(self, path: str, content: bytes = b"content") -> str:
        self._client.write(path, content)
        return path

    def mkdir(self, path: str) -> str:
        self._client.ask("PUT", path, "MKDIRS")
        return path

    def read(self, path: str) -> bytes:
        return self._client.read(path)

    def exists(self, path: str) -> bool:
        return self._client.find(path) is not None

    def list_all(self) -> list[str]:
        return sorted(path.removeprefix(f"{self.root}/") for path, _status in self._client.walk(self.root))

    def move(self, source: str, target: str) -> None:
        self._client.ask("PUT", source, "RENAME", destination=target, renameoptions="NONE")

    def link(self, source: str, target: str) -> None:
        pytest.skip(f"HDFS has no second names for files ({source}, {target})")

    def remove(self, path: str) -> None:
        self._client.ask("DELETE", path, "DELETE")

    def set_mode(self, directory: str, mode: int) -> None:
        self._client.ask("PUT", directory, "SETPERMISSION", permission=f"{mode:o}")

    def on_small_disk(self) -> AbstractContextManager[SmallDisk]:
        pytest.skip("the cluster's disks are as large as the machine's")
