"""One bucket of Google's, or one container of Azure's: requests that are sent again within bounds."""

import datetime as dt
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, TypeVar

import obstore
from obstore.exceptions import BaseError, PreconditionError
from obstore.store import AzureStore, GCSStore

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.clouds.answers import (
    NOT_FOUND,
    RANGE_WRONG,
    CloudFailure,
    explain_cloud_failure,
    read_cloud_failure,
    refuse_cloud_key,
)
from gobblin_assets.fs.clouds.cloud_settings import CloudWords
from gobblin_assets.fs.patience import BUSY_TRIES_MAX, TRIES_MAX, back_off_s

PAGE_MAX: Final = 1_000

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class CloudObject:
    """``path``: the key, without the slash at its end. ``metadata`` is None in listings."""

    path: str
    size_bytes: int
    etag: str
    modified_at: dt.datetime
    metadata: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class CloudDirectory:
    """What is directly below one prefix, in no order. ``directories``: longer prefixes, without a slash at the end."""

    directories: Sequence[str]
    objects: Sequence[CloudObject]


@dataclass(frozen=True, slots=True)
class CloudPage:
    """Objects in the store's order. ``follows``: the page before, with nothing that was given already."""

    objects: Sequence[CloudObject]
    follows: bool


class _Absence(Enum):
    """Of the object that was asked for. CHANGED: another version stands there."""

    GONE = auto()
    CHANGED = auto()


class CloudClient:
    """Safe to share between threads. ``uri``: of the bucket. ``option``: where a person wrote it, for errors."""

    def __init__(
        self,
        store: GCSStore | AzureStore,
        uri: str,
        words: CloudWords,
        option: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._uri = uri
        self._words = words
        self._option = option
        self._sleep = sleep

    def __reduce__(self) -> str:
        """Obstore's stores are pickled with their keys."""
        raise TypeError("a client is not passed on between processes: open it again by its URI")

    def to_uri(self, path: str) -> str:
        return f"{self._uri}/{path}"

    def refuse_name(self, path: str) -> RejectedError:
        """For a name below ``path`` that no directory can have."""
        return refuse_cloud_key(ascii(f"{path}/"), self.to_uri(path), self._option)

    def find(self, path: str) -> CloudObject | None:
        """The object, with its metadata; None if there is none."""

        def ask() -> CloudObject:
            found = obstore.get(self._store, path, options={"head": True})
            return _read_object(found.meta, {str(name).lower(): value for name, value in found.attributes.items()})

        answer = self._repeat("look at", path, ask)
        return None if isinstance(answer, _Absence) else answer

    def read(self, path: str, etag: str, offset: int, size_bytes: int) -> bytes:
        """As ``ReadableObjects.read_range``."""

        def ask() -> tuple[str, bytes]:
            found = obstore.get(
                self._store, path, options={"range": (offset, offset + size_bytes), "if_match": f'"{etag}"'}
            )
            return (found.meta["e_tag"] or "").strip('"'), bytes(found.bytes())

        answer = self._repeat("read", path, ask)
        if answer is _Absence.GONE:
            raise RetryableError(f"{self.to_uri(path)} is gone", hint="The next plan sees that.", path=path)
        # Not every store keeps the condition.
        if isinstance(answer, _Absence) or answer[0] != etag or len(answer[1]) != size_bytes:
            raise RetryableError(
                f"{self.to_uri(path)} is another version now", hint="The next plan sees that.", path=path
            )
        return answer[1]

    def list_pages(self, prefix: str, after: str) -> Iterator[CloudPage]:
        """All objects below ``prefix``, or those of the whole bucket if it is empty, in the store's order.

        ``after``: only those behind this path. After a failure the listing goes on behind the last object that came.
        Not every store keeps to that: the page that does not follow may have objects before it.
        """
        stream: Iterator[Sequence[Any]] | None = None
        follows = False

        def ask() -> list[CloudObject]:
            nonlocal stream, follows
            opened, follows = stream, stream is not None
            if opened is None:
                listed = obstore.list(self._store, prefix or None, offset=after or None, chunk_size=PAGE_MAX)
                opened = iter(listed)
            stream = None
            page = [_read_object(each) for each in next(opened, ())]
            stream = opened
            return page

        while page := self._require_bucket(self._repeat("list", prefix, ask)):
            yield CloudPage(page, follows)
            after = page[-1].path

    def list_directory(self, prefix: str) -> CloudDirectory:
        """What is directly below ``prefix``, or at the top of the bucket if it is empty."""

        def ask() -> CloudDirectory:
            found = obstore.list_with_delimiter(self._store, prefix or None)
            return CloudDirectory(found["common_prefixes"], [_read_object(each) for each in found["objects"]])

        return self._require_bucket(self._repeat("list", prefix, ask))

    def _require_bucket(self, answer: _Answer | _Absence) -> _Answer:
        if isinstance(answer, _Absence):
            raise RejectedError(
                f"there is no bucket {self._uri}", field=self._option, hint="Correct the name, or make the bucket."
            )
        return answer

    def _repeat(self, action: str, path: str, ask: Callable[[], _Answer]) -> _Answer | _Absence:
        for number in range(1, BUSY_TRIES_MAX + 1):
            found = _try(path, ask)
            if not isinstance(found, CloudFailure):
                return found
            tries_max = BUSY_TRIES_MAX if found.is_busy else TRIES_MAX
            error = explain_cloud_failure(found, self._words, action=action, uri=self.to_uri(path), option=self._option)
            if not isinstance(error, RetryableError) or number >= tries_max:
                raise error
            self._sleep(back_off_s(number))
        raise AssertionError(BUSY_TRIES_MAX)


def _try(path: str, ask: Callable[[], _Answer]) -> _Answer | _Absence | CloudFailure:
    try:
        return ask()
    except FileNotFoundError:
        return _Absence.GONE
    except PreconditionError:
        return _Absence.CHANGED
    except BaseError as error:
        failure = read_cloud_failure(error)
    except ValueError:
        # Of a path, before anything is sent.
        failure = CloudFailure(None, "", bad_key=ascii(path))
    absent = {NOT_FOUND: _Absence.GONE, RANGE_WRONG: _Absence.CHANGED}
    return absent.get(failure.status or 0, failure)


def _read_object(found: Any, metadata: Mapping[str, str] | None = None) -> CloudObject:
    """Times in whole seconds: listings of some stores tell finer ones, answers about one object don't."""
    etag = (found["e_tag"] or "").strip('"')
    if not etag:
        raise RetryableError(f"the store tells no ETag of {found['path']}", path=found["path"])
    modified_at = found["last_modified"].replace(microsecond=0)
    return CloudObject(found["path"], found["size"], etag, modified_at, metadata)
