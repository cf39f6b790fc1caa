"""One bucket of Google's, or one container of Azure's: requests that are sent again within bounds."""

import datetime as dt
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, TypeVar

import obstore
from obstore.exceptions import BaseError, PreconditionError
from obstore.store import AzureStore, GCSStore

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.clouds.cloud_settings import CloudWords
from gobblin_assets.fs.servers import BUSY_TRIES_MAX, TRIES_MAX, back_off_s

NOT_FOUND: Final = 404
RANGE_WRONG: Final = 416

_TOO_MANY: Final = 429
_UNAVAILABLE: Final = 503
_SERVER_FAILED: Final = 500
_NO_CONNECTION: Final = "Connect"
_FORBIDDEN: Final = frozenset({401, 403})

_STATUS: Final = re.compile(r"\n\s+inner: Status \{\n\s+status: (\d{3}),")
_KIND: Final = re.compile(r"\bHttpError \{\n\s+kind: (\w+),")
_WORD: Final = re.compile(r"<Code>(\w{1,80})</Code>")
_ABOUT_KEYS: Final = re.compile(r"\n\s+source: (Token\w*|\w*Credential\w*) \{")
_MACHINE: Final = re.compile(r"\n\s+https?://(169\.254\.169\.254|metadata\.google\.internal)[/:]")
_UNTRUSTED: Final = re.compile(r"\b(InvalidCertificate|UnknownIssuer)\b")
_BAD_KEY: Final = re.compile(r"\b(?:BadSegment|EmptySegment) \{\n\s+path: (\"(?:[^\"\\\n]|\\.)*\"),\n")

PAGE_MAX: Final = 1_000

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class CloudFailure:
    """A failure of obstore. Its text repeats URLs and whole bodies of answers, so that only these are taken from it.

    ``status``: None if there was no answer. ``word``: the store's own, such as ``AccessDenied``, or the kind of a
    failure without an answer, such as ``Connect``.

    ``is_about_keys``: of the request by which a token is got; ``of_machine``: of the machine's own identity.
    ``bad_key``: a key that no path can have, in quotes.
    """

    status: int | None
    word: str
    is_about_keys: bool = False
    of_machine: bool = False
    is_untrusted: bool = False
    bad_key: str = ""

    @property
    def is_busy(self) -> bool:
        return self.status in {_TOO_MANY, _UNAVAILABLE}

    def __str__(self) -> str:
        return " ".join(filter(None, (str(self.status or ""), self.word))) or "the answer makes no sense"


def read_cloud_failure(error: Exception) -> CloudFailure:
    text = str(error)
    status, kind, word, bad_key = (pattern.search(text) for pattern in (_STATUS, _KIND, _WORD, _BAD_KEY))
    said = word or (None if status else kind)
    return CloudFailure(
        int(status[1]) if status else None,
        said[1] if said else "",
        _ABOUT_KEYS.search(text) is not None,
        _MACHINE.search(text) is not None,
        _UNTRUSTED.search(text) is not None,
        bad_key[1] if bad_key else "",
    )


def explain_cloud_failure(
    failure: CloudFailure, words: CloudWords, *, action: str, uri: str, option: str
) -> GobblinError:
    """The error to raise for a failure that is no answer."""
    said = f"can't {action} {uri}: {failure}"
    is_refused = failure.status is not None and failure.status < _SERVER_FAILED and not failure.is_busy
    if failure.of_machine and (failure.status is None or is_refused):
        return RejectedError(
            f"expected keys for {words.provider}, found none",
            field=words.key_variable,
            hint="Set it, or another variable of docs/STORES_REFERENCE.md, "
            f"or let {words.provider}'s own chain have keys.",
        )
    if failure.is_about_keys and is_refused:
        return RejectedError(
            f"{words.provider} gives no token for these keys: {failure}", field=words.key_variable, hint="Correct them."
        )
    if failure.is_untrusted:
        fix = f"Correct it, or name the certificates to trust: {words.ca_variable}."
        return RejectedError(
            "no TLS with the store: its certificate is not trusted", field=words.endpoint_variable, hint=fix
        )
    if failure.bad_key:
        return refuse_cloud_key(failure.bad_key, uri, option)
    if failure.status in _FORBIDDEN:
        hint = f"Give the keys the right to list and read there, or correct {words.key_variable}."
        return RejectedError(said, field=option, hint=hint)
    if is_refused:
        return RejectedError(said, field=option, hint="Look at what the store says.")
    is_away = failure.status is None and failure.word == _NO_CONNECTION
    return RetryableError(said, hint=f"Is {words.endpoint_variable} right, and the store up?" if is_away else "")


def refuse_cloud_key(key: str, uri: str, option: str) -> RejectedError:
    """``uri``: where it was found, or asked for."""
    return RejectedError(
        f"{uri}: the key {key} can't be read: a name in it is empty, `.`, `..`, or has a control character",
        field=option,
        hint="Rename the object, or remove it.",
    )


@dataclass(frozen=True, slots=True)
class CloudObject:
    """An object of a store. ``path``: the key, without the slash at its end. ``metadata`` is None in listings."""

    path: str
    size_bytes: int
    etag: str
    modified_at: dt.datetime
    metadata: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class CloudDirectory:
    """The entries directly below one prefix, in no order.

    ``directories``: longer prefixes, without a slash at the end.
    """

    directories: Sequence[str]
    objects: Sequence[CloudObject]


@dataclass(frozen=True, slots=True)
class CloudPage:
    """Objects in the store's order. ``follows``: the page before, with nothing that was given already."""

    objects: Sequence[CloudObject]
    follows: bool


class _Absence(Enum):
    """The absence of the object that was asked for. CHANGED: another version is there."""

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
        """The entries directly below ``prefix``, or at the top of the bucket if it is empty."""

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
    """Times in whole seconds: listings of some stores give finer ones, answers about one object don't."""
    etag = (found["e_tag"] or "").strip('"')
    if not etag:
        raise RetryableError(f"the store tells no ETag of {found['path']}", path=found["path"])
    modified_at = found["last_modified"].replace(microsecond=0)
    return CloudObject(found["path"], found["size"], etag, modified_at, metadata)
