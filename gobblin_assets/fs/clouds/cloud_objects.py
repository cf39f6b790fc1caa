"""The port of stores that are read, over one bucket."""

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Final

from gobblin_assets.fs.clouds.client import CloudClient, CloudObject
from gobblin_assets.fs.clouds.listing import ListedKey, is_folder
from gobblin_assets.fs.objects import ObjectEntry, mark_lost

ListKeys = Callable[[CloudClient, str, str], Iterator[ListedKey]]
"""Gives the keys below a prefix that lie behind another key, in byte order."""

_NEVER: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class CloudObjects:
    """``ReadableObjects``. ``scheme``: of URIs. ``bucket``: the first name of all paths, as in URIs."""

    def __init__(self, client: CloudClient, scheme: str, bucket: str, list_keys: ListKeys) -> None:
        self._client = client
        self._scheme = scheme
        self._bucket = bucket
        self._list_keys = list_keys

    def to_uri(self, path: str) -> str:
        return f"{self._scheme}:/{path}"

    def find_object(self, path: str) -> ObjectEntry | None:
        found = self._client.find(self._key_of(path))
        return None if found is None or is_folder(found) else self._entry_of(found.path, found)

    def list_objects(self, directory: str, after: str = "") -> Iterator[ObjectEntry]:
        for each in self._list_keys(self._client, self._key_of(directory), self._key_of(after)):
            if each.found is None:
                yield ObjectEntry(f"/{self._bucket}/{mark_lost(each.key)}", 0, "", _NEVER)
            else:
                yield self._entry_of(mark_lost(each.key), each.found)

    def read_range(self, path: str, etag: str, offset: int, size_bytes: int) -> bytes:
        return self._client.read(self._key_of(path), etag, offset, size_bytes)

    def _key_of(self, path: str) -> str:
        return path.removeprefix(f"/{self._bucket}").removeprefix("/")

    def _entry_of(self, key: str, found: CloudObject) -> ObjectEntry:
        return ObjectEntry(f"/{self._bucket}/{key}", found.size_bytes, found.etag, found.modified_at, found.metadata)
