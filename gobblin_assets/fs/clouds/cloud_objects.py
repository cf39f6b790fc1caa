"""Keys in byte order. obstore gives them without the slash at their end: a marker of a directory looks like a file.

Google lists in byte order, in pages: whether an empty object is a file or a marker is looked at. Azure may list in
another order: where an account has directories, what is below ``a`` comes before ``a-b``. So each directory is listed
by itself, and sorted.
"""

import datetime as dt
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from gobblin_assets.fs.clouds.client import CloudClient, CloudDirectory, CloudObject, CloudPage
from gobblin_assets.fs.objects import ObjectEntry, mark_lost

REQUESTS_AHEAD: Final = 8

_FOLDER: Final = "hdi_isfolder"

_NEVER: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class ListedKey:
    """A key of a listing.

    ``found``: None for a directory without an object of its own; its key ends with a slash.
    """

    key: str
    found: CloudObject | None


def is_folder(found: CloudObject) -> bool:
    """Whether Hadoop's drivers of Azure mean a directory by this object."""
    return not found.size_bytes and (found.metadata or {}).get(_FOLDER, "").lower() == "true"


def list_by_key(client: CloudClient, prefix: str, after: str) -> Iterator[ListedKey]:
    """The keys below ``prefix`` of a store that lists in byte order. ``after``: only keys behind this one."""
    files: list[str] = []
    last = floor = after
    pages = client.list_pages(prefix, after)
    with ThreadPoolExecutor(REQUESTS_AHEAD) as threads:
        for page in pages:
            if not page.follows:
                files, floor = [], last
            for each in _tell_markers(client, prefix, page, files, threads):
                if each.key > floor:
                    last = each.key
                    yield each


def _tell_markers(
    client: CloudClient, prefix: str, page: CloudPage, files: list[str], threads: Executor
) -> Iterator[ListedKey]:
    """``files``: those that were given before, with whose path that of the last object begins."""
    empty = _find_empty(client, page.objects, threads)
    for found in page.objects:
        while files and not found.path.startswith(files[-1]):
            files.pop()
        is_marker = found.path == prefix or found.path in files
        if not is_marker and not found.size_bytes:
            looked_at = empty[found.path]
            if looked_at is None and not _has_marker(client, found.path):
                continue
            is_marker = looked_at is None or is_folder(looked_at)
        if not is_marker:
            files.append(found.path)
        yield ListedKey(f"{found.path}/" if is_marker else found.path, found)


def _has_marker(client: CloudClient, path: str) -> bool:
    """A file that vanished meanwhile has none."""
    first = next(client.list_pages(path, ""), None)
    return first is not None and first.objects[0].path == path


def _find_empty(
    client: CloudClient, objects: Iterable[CloudObject], threads: Executor
) -> dict[str, CloudObject | None]:
    paths = [each.path for each in objects if not each.size_bytes]
    return dict(zip(paths, threads.map(client.find, paths), strict=True))


def list_by_directory(client: CloudClient, prefix: str, after: str) -> Iterator[ListedKey]:
    """The keys below ``prefix`` of a store that lists in any order.

    What is directly in one directory is held and sorted.
    """
    threads = ThreadPoolExecutor(REQUESTS_AHEAD)
    try:
        yield from _Walk(client, after, threads).list_below(prefix, threads.submit(client.list_directory, prefix))
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class _Walk:
    client: CloudClient
    after: str
    threads: Executor

    def list_below(self, directory: str, listed: Future[CloudDirectory]) -> Iterator[ListedKey]:
        answer = listed.result()
        keys = self._sort(directory, answer)
        # Of markers alone it is known that nothing is below them.
        below = {f"{each}/" for each in answer.directories}
        waiting = deque(each.key for each in keys if each.key in below)
        ahead: deque[Future[CloudDirectory]] = deque()
        for each in keys:
            if each.key > self.after:
                yield each
            if each.key not in below:
                continue
            while waiting and len(ahead) < REQUESTS_AHEAD:
                ahead.append(self.threads.submit(self.client.list_directory, waiting.popleft().removesuffix("/")))
            yield from self.list_below(each.key.removesuffix("/"), ahead.popleft())

    def _sort(self, directory: str, answer: CloudDirectory) -> list[ListedKey]:
        """The keys in order, without what lies before ``after`` as a whole."""
        keys: dict[str, CloudObject | None] = {}
        empty = _find_empty(self.client, answer.objects, self.threads)
        for found in answer.objects:
            looked_at = found if found.size_bytes else empty[found.path]
            if looked_at is None or found.path == directory:
                continue
            keys[f"{found.path}/" if is_folder(looked_at) else found.path] = found
        for each in answer.directories:
            if not each.startswith(f"{directory}/" if directory else "") or len(each) <= len(directory):
                raise self.client.refuse_name(directory)
            keys[f"{each}/"] = None
        return [ListedKey(key, keys[key]) for key in sorted(keys) if key > self.after or self.after.startswith(key)]


ListKeys = Callable[[CloudClient, str, str], Iterator[ListedKey]]
"""Gives the keys below a prefix that lie behind another key, in byte order."""


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
