"""Objects of a store as a tree that copies read: the slashes of keys divide directories, as people mean them.

A key that ends with a slash, of an empty object, says that there is a directory. A key that no directory tree can hold
is refused by its name: empty names, ``.`` and ``..``, and an object whose key is also the beginning of others.
"""

import datetime as dt
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.objects import ObjectEntry, ReadableObjects
from gobblin_assets.fs.tree import Descend, EntryKind, TreeEntry, is_utf8_name, wrong_length
from gobblin_assets.model.files import FileIdentity

MTIME_PRECISION_NS: Final = 1_000_000_000
"""S3 gives the time of a change in whole seconds."""

LEFT_OUT_MAX: Final = 1_000
"""So many objects of a directory that is left out are passed over, before the listing goes on behind it."""

UNLISTABLE: Final = re.compile("[\\0-\\x08\\x0b\\x0c\\x0e-\\x1f\\ud800-\\udfff\\ufffd-\\uffff]")
"""Characters that XML can't carry, and the one that stands for them where a store tells keys as they are."""

_LAST: Final = "\U0010ffff"
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class ObjectTree:
    """``RangedFiles`` over a store's objects. Safe to share between threads.

    ``option``: where a person wrote the root, for errors. ``hidden``: as in ``PosixTree``.
    """

    def __init__(self, files: ReadableObjects, option: str, *, hidden: frozenset[str] = frozenset()) -> None:
        self._files = files
        self._option = option
        self._hidden = hidden

    @property
    def mtime_precision_ns(self) -> int:
        return MTIME_PRECISION_NS

    @property
    def has_owners(self) -> bool:
        return False

    def to_uri(self, path: str) -> str:
        return self._files.to_uri(path)

    def list_tree(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        """One request for each thousand objects; nothing but the directories on the way is remembered."""
        return _Listing(self._files, root, self._option, self._hidden, descend).list_entries()

    def find_file(self, path: str) -> FileIdentity | None:
        found = self._files.find_object(path)
        return None if found is None else _identity_of(found)

    def open_ranged(self, path: str, identity: FileIdentity) -> "_RangedObject":
        if identity.tag is None:
            raise RetryableError(f"{self.to_uri(path)} was planned without its ETag", path=path)
        if not identity.size_bytes:
            found = self._files.find_object(path)
            if found is None or found.etag != identity.tag:
                state = "is gone" if found is None else "changed"
                raise RetryableError(f"{self.to_uri(path)} {state} since it was planned", path=path)
            if found.size_bytes:
                raise wrong_length(self.to_uri(path), 0, has_more=True)
        return _RangedObject(self._files, path, identity.tag)


@dataclass(frozen=True, slots=True)
class _RangedObject:
    files: ReadableObjects
    path: str
    etag: str

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        return self.files.read_range(self.path, self.etag, offset, size_bytes)

    def close(self) -> None:
        """Nothing is open between two reads."""


@dataclass(slots=True)
class _Listing:
    """One listing. ``directories``: those on the way to the last object, whose key is ``last``.

    ``prefixes``: objects with whose key that of the last one begins. ``left_out``: a directory, with its slash, whose
    objects are passed over; empty for none.
    """

    files: ReadableObjects
    root: str
    option: str
    hidden: frozenset[str]
    descend: Descend | None
    directories: list[str] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    left_out: str = ""
    last: str = ""
    is_empty: bool = True

    def list_entries(self) -> Iterator[TreeEntry]:
        after = yield from self._list_from("")
        while after:
            after = yield from self._list_from(after)
        if self.is_empty:
            self._require_root()

    def _list_from(self, after: str) -> Generator[TreeEntry, None, str]:
        """The path from which the listing is to go on, behind a large directory that is left out; empty at the end."""
        passed = 0
        for found in self.files.list_objects(self.root, after):
            self.is_empty = False
            key = self._key_of(found)
            if not self.left_out or not key.startswith(self.left_out):
                self.left_out = ""
                yield from self._list_object(key, found)
                continue
            passed += 1
            if passed > LEFT_OUT_MAX:
                return f"{self.root}/{self.left_out}{_LAST}"
        return ""

    def _key_of(self, found: ObjectEntry) -> str:
        """The key below the root. The order is proved: where it is another one, trees can't be compared."""
        key = found.path.removeprefix(f"{self.root}/")
        if key == found.path:
            raise RetryableError(f"the store lists {found.path!a} below {self.root}", path=found.path)
        if self.last and key <= self.last:
            raise self._refuse(
                key, "the store does not list objects in the order of their keys", "Copy from a store that does."
            )
        self.last = key
        return key

    def _list_object(self, key: str, found: ObjectEntry) -> Iterator[TreeEntry]:
        *above, name = key.split("/")
        while self.prefixes and not key.startswith(self.prefixes[-1]):
            self.prefixes.pop()
        shared = 0
        while shared < min(len(above), len(self.directories)) and above[shared] == self.directories[shared]:
            shared += 1
        del self.directories[shared:]
        for each in above[shared:]:
            if not (yield from self._enter(key, each)):
                return
        if not name:
            if found.size_bytes:
                raise self._refuse(key, "an object with bytes has the key of a directory", "Rename it, or remove it.")
            return
        self._check_name(key, name)
        self.prefixes.append(key)
        yield TreeEntry(key, EntryKind.FILE, _identity_of(found))

    def _enter(self, key: str, name: str) -> Generator[TreeEntry, None, bool]:
        """Whether what is below the directory is listed."""
        self._check_name(key, name)
        path = "/".join([*self.directories, name])
        if not self.directories and name in self.hidden:
            self.left_out = f"{path}/"
            return False
        if path in self.prefixes:
            raise self._refuse(path, f"is an object, and others lie below it, such as {key!a}", "Rename one of them.")
        self.directories.append(name)
        yield TreeEntry(path, EntryKind.DIRECTORY, FileIdentity(0))
        if self.descend is not None and not self.descend(path):
            self.left_out = f"{path}/"
            return False
        if name in self.hidden:
            raise self._refuse(
                path,
                "another copy's destination lies inside: this is its working directory",
                "Exclude the directory that holds it, or choose another root.",
            )
        return True

    def _check_name(self, key: str, name: str) -> None:
        if name in {"", ".", ".."}:
            raise self._refuse(key, f"the name {name!r} is none of a file", "Rename the object, or remove it.")
        if "\0" in name or not is_utf8_name(name):
            raise self._refuse(key, "has a character that no listing can tell", "Rename the object, or remove it.")

    def _require_root(self) -> None:
        """A prefix without objects is there as little as a missing directory; an empty bucket is there."""
        if "/" not in self.root[1:]:
            return
        uri = self.files.to_uri(self.root)
        if self.files.find_object(self.root) is None:
            raise RejectedError(f"there is nothing below {uri}", field=self.option, hint="Correct the prefix.")
        raise RejectedError(f"{uri} is an object, expected a prefix", field=self.option, hint="Correct the prefix.")

    def _refuse(self, key: str, message: str, hint: str) -> RejectedError:
        path = f"{self.root}/{key}"
        return RejectedError(f"{self.files.to_uri(path)!a}: {message}", field=self.option, hint=hint, path=path)


def _identity_of(found: ObjectEntry) -> FileIdentity:
    mtime_ns = (found.modified_at - _EPOCH) // dt.timedelta(microseconds=1) * 1_000
    return FileIdentity(found.size_bytes, None, mtime_ns, found.etag)
