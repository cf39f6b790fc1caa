"""WebHDFS requests, and the answers of a NameNode: entries, and exceptions as families of errors.

Each request is sent once: whether a change was made is unknown if no answer came.
"""

import json
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError
from urllib3.util import Timeout

from gobblin_assets.errors import GobblinError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.fs.hdfs.hdfs_settings import HOST, PREFIX, WEB_PORT, HdfsSettings
from gobblin_assets.fs.servers import reason_of
from gobblin_assets.fs.tree import EntryKind, TreeEntry, make_placement
from gobblin_assets.model.files import FileIdentity

MS_NS: Final = 1_000_000
"""HDFS keeps times in milliseconds."""

MISSING: Final = frozenset({"FileNotFoundException"})
STANDS: Final = frozenset({"FileAlreadyExistsException"})
NO_DIRECTORY: Final = frozenset({"ParentNotDirectoryException", "PathIsNotDirectoryException"})
NOT_EMPTY: Final = frozenset({"PathIsNotEmptyDirectoryException"})

_WAITS: Final = {
    "SafeModeException": "The NameNode takes no changes until it leaves safe mode.",
    "NSQuotaExceededException": "Raise the quota of names, or remove some; the next try goes on from here.",
    "DSQuotaExceededException": "Raise the quota of space, or free some; the next try goes on from here.",
    "QuotaByStorageTypeExceededException": "Raise the quota, or free some space; the next try goes on from here.",
    "StandbyException": f"Another NameNode is active: name that one in the URI and in {PREFIX}WEB_URL.",
    "RetriableException": "The NameNode starts, or is busy.",
    "LeaseExpiredException": "Another run took the attempt over, or somebody removed it.",
    "AlreadyBeingCreatedException": "Another writer has it open.",
    "RecoveryInProgressException": "Another writer has it open.",
    "UnresolvedPathException": "A symbolic link lies on the way.",
}
_PASSING: Final = _WAITS.keys() - {"LeaseExpiredException", "UnresolvedPathException"}
FORBIDDEN: Final = frozenset({"AccessControlException", "AuthorizationException", "SecurityException"})
_BAD_NAMES: Final = frozenset({"InvalidPathException", "IllegalArgumentException", "PathComponentTooLongException"})
_TOO_LONG: Final = frozenset(
    {"FSLimitException", "PathComponentTooLongException", "MaxDirectoryItemsExceededException"}
)

_NO_DIRECTORY_SAID: Final = "(is not a directory"
"""How a NameNode tells those who may not do everything that a file lies on the way."""

_RPC: Final = re.compile(r'RPCError\("(?P<kind>[\w.$]+)", "(?P<said>.*)', re.DOTALL)
_TRACE: Final = re.compile(r"(\\n|\n)(\\t|\t)at .*", re.DOTALL)
_KINDS: Final = {"FILE": EntryKind.FILE, "DIRECTORY": EntryKind.DIRECTORY, "SYMLINK": EntryKind.LINK}

CONNECT_WAIT_S: Final = 5.0
ANSWER_WAIT_S: Final = 60.0
CONNECTIONS_KEPT_MAX: Final = 32

_OK: Final = 200
_CREATED: Final = 201
_UNAUTHORIZED: Final = 401
_ELSEWHERE: Final = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class HdfsFailure:
    """An exception of the NameNode's: the name of its class without the package, and its first line."""

    kind: str
    said: str

    def __str__(self) -> str:
        return f"{self.kind} ({self.said})"


@dataclass(frozen=True, slots=True)
class StatusPage:
    """Some FileStatus of a directory's entries, each with its name as ``pathSuffix``."""

    statuses: Sequence[Mapping[str, Any]]
    is_last: bool


def read_exception(content: bytes) -> HdfsFailure | None:
    """The exception in the body of an answer; None if there is none."""
    try:
        found = json.loads(content)["RemoteException"]
        return _read_failure(str(found["exception"]), str(found["message"]))
    except (ValueError, KeyError, TypeError):
        return None


def failure_of_native(error: Exception) -> HdfsFailure:
    """The exception that hdfs-native reports. Most have no class of their own in Python."""
    text = str(error)
    if found := _RPC.search(text):
        return _read_failure(found["kind"], found["said"])
    if isinstance(error, FileNotFoundError):
        return HdfsFailure("FileNotFoundException", _first_line(text))
    if isinstance(error, FileExistsError):
        return HdfsFailure("FileAlreadyExistsException", _first_line(text))
    return HdfsFailure(type(error).__name__, _first_line(text))


def explain_failure(failure: HdfsFailure, *, action: str, path: str, option: str, changes: bool) -> GobblinError:
    """The error to raise for an exception that is no answer. ``changes``: ``action`` changes names if it succeeds."""
    said = f"can't {action} {path}: {failure}"
    if failure.kind in _WAITS:
        return RetryableError(said, passes=failure.kind in _PASSING, hint=_WAITS[failure.kind], path=path)
    if failure.kind in FORBIDDEN:
        return RejectedError(
            said, field=option, hint="Give the HDFS user that runs this the right to do it there.", path=path
        )
    if failure.kind in MISSING:
        return RejectedError(said, field=option, hint="Make the missing parent directory, or correct the path.",
                             path=path, errno="ENOENT")  # fmt: skip
    if failure.kind in NO_DIRECTORY | STANDS:
        hint = "Correct the path: something on the way to it is a file."
        return RejectedError(said, field=option, hint=hint, path=path)
    if failure.kind in _BAD_NAMES | _TOO_LONG:
        return RejectedError(said, field=option, hint="HDFS can't have this name: rename it, or leave it out.",
                             path=path)  # fmt: skip
    if changes:
        return OutcomeUnknownError(said, hint="Check what is there before you do anything else.", path=path)
    return RetryableError(said, path=path)


def entry_of_status(path: str, found: Mapping[str, Any]) -> TreeEntry:
    """The entry of a FileStatus. HDFS's file id is the inode of its namespace; owners have names, and no numbers."""
    try:
        kind = _KINDS.get(str(found["type"]), EntryKind.SPECIAL)
        size_bytes = int(found["length"]) if kind is EntryKind.FILE else 0
        identity = FileIdentity(size_bytes, int(found["fileId"]), int(found["modificationTime"]) * MS_NS)
        # A directory has neither, and tells them as 0.
        stored = (int(found.get("replication", 0)) or None, int(found.get("blockSize", 0)) or None)
        placement = make_placement(found.get("owner"), found.get("group"), *stored)
        return TreeEntry(path, kind, identity, int(str(found["permission"]), 8), placement=placement)
    except (KeyError, TypeError, ValueError) as error:
        raise _incomplete(path) from error


def status_of(path: str, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The FileStatus of an answer. RetryableError without one: a proxy or a NameNode that begins said something."""
    found = answer.get("FileStatus")
    if not isinstance(found, dict):
        raise _incomplete(path)
    return found


def page_of(path: str, answer: Mapping[str, Any]) -> StatusPage:
    """A page of a directory's entries; RetryableError as ``status_of``."""
    try:
        listing = answer["DirectoryListing"]
        found: list[Mapping[str, Any]] = listing["partialListing"]["FileStatuses"]["FileStatus"]
        is_last = int(listing["remainingEntries"]) == 0
        is_complete = all(isinstance(each["pathSuffix"], str) for each in found) and (is_last or bool(found))
    except (KeyError, TypeError, ValueError) as error:
        raise _incomplete(path) from error
    if not is_complete:
        raise _incomplete(path)
    return StatusPage(found, is_last=is_last)


def _incomplete(path: str) -> RetryableError:
    return RetryableError(
        f"can't look at {path}: the answer lacks what was asked for",
        hint=f"Is {PREFIX}WEB_URL a NameNode's?",
        path=path,
    )


def _read_failure(kind: str, said: str) -> HdfsFailure:
    name, line = kind.rpartition(".")[2].rpartition("$")[2], _first_line(said)
    is_file_on_the_way = name == "AccessControlException" and _NO_DIRECTORY_SAID in line
    return HdfsFailure("ParentNotDirectoryException" if is_file_on_the_way else name, line)


def _first_line(text: str) -> str:
    return _TRACE.sub("", text).split("\n", 1)[0].split("\\n", 1)[0].rstrip('")')


class WebHdfs:
    """The NameNode of ``host``. Safe to share between threads. Nothing is connected to before the first request.

    ``option``: where a person wrote the place, for errors.
    """

    def __init__(self, host: str, settings: HdfsSettings, option: str, *, answer_wait_s: float = ANSWER_WAIT_S) -> None:
        self._host = host
        self._settings = settings
        self._url = (settings.web_url or f"http://{HOST}:{WEB_PORT}").replace(HOST, host)
        who = {"user.name": settings.user}
        if settings.proxy_user is not None:
            who["doas"] = settings.proxy_user
        self._who = urlencode(who)
        self._option = option
        self._wait = Timeout(connect=CONNECT_WAIT_S, read=answer_wait_s)
        self._lock = threading.Lock()
        self._pool: urllib3.HTTPConnectionPool | None = None
        self._pool_of = 0

    @property
    def option(self) -> str:
        return self._option

    def for_option(self, option: str) -> "WebHdfs":
        """The same NameNode, with the place written elsewhere."""
        return self if option == self._option else WebHdfs(self._host, self._settings, option)

    def ask(self, path: str, op: str, **query: str) -> Mapping[str, Any] | HdfsFailure:
        """The answer to a question, or the NameNode's exception."""
        return self._send("GET", path, op, query, action="look at")

    def change(self, method: str, path: str, op: str, *, action: str, **query: str) -> Mapping[str, Any] | HdfsFailure:
        """The answer to a change, or the NameNode's exception. OutcomeUnknownError if no answer came."""
        return self._send(method, path, op, query, action=action)

    def get(self, path: str, op: str, *, action: str, **query: str) -> Mapping[str, Any]:
        """The answer to a question; an exception is raised as its family."""
        return self.require(self._send("GET", path, op, query, action=action), action, path, changes=False)

    def put(self, path: str, op: str, *, action: str, **query: str) -> Mapping[str, Any]:
        """The answer to a change; an exception is raised as its family."""
        return self.require(self._send("PUT", path, op, query, action=action), action, path, changes=True)

    def require(
        self, answer: Mapping[str, Any] | HdfsFailure, action: str, path: str, *, changes: bool
    ) -> Mapping[str, Any]:
        if isinstance(answer, HdfsFailure):
            raise explain_failure(answer, action=action, path=path, option=self._option, changes=changes)
        return answer

    def list_page(self, path: str, after: str = "") -> StatusPage | HdfsFailure:
        """Entries of a directory behind the name ``after``; for a file, its own one with an empty ``pathSuffix``."""
        # Hadoop's documentation writes startAfter; its NameNodes take startafter alone.
        query = {"startafter": after, "startAfter": after} if after else {}
        answer = self._send("GET", path, "LISTSTATUS_BATCH", query, action="list")
        return answer if isinstance(answer, HdfsFailure) else page_of(path, answer)

    def _send(
        self, method: str, path: str, op: str, query: Mapping[str, str], *, action: str
    ) -> Mapping[str, Any] | HdfsFailure:
        changes = method != "GET"
        url = f"/webhdfs/v1{quote(path)}?op={op}&{self._who}"
        if query:
            url = f"{url}&{urlencode(query, quote_via=quote, safe='')}"
        try:
            answer = self._open_pool().request(
                method, url, retries=False, redirect=False, timeout=self._wait, headers={"accept": "application/json"}
            )
        except (ConnectTimeoutError, NewConnectionError) as error:
            raise RetryableError(
                f"can't reach the NameNode: {reason_of(error)}",
                hint=f"Is {PREFIX}WEB_URL right, and the NameNode up?",
                path=path,
            ) from error
        except HTTPError as error:
            raise self._without_answer(action, path, reason_of(error), changes=changes) from error
        if answer.status in {_OK, _CREATED}:
            return self._read(answer.data, action, path, changes=changes)
        failure = read_exception(answer.data)
        if failure is not None:
            return failure
        if answer.status == _UNAUTHORIZED:
            raise RejectedError(
                "the cluster asks for Kerberos or another login, which is not supported",
                field=f"{PREFIX}WEB_URL",
                hint="Use a cluster with simple authentication, or a gateway that logs in.",
            )
        if answer.status in _ELSEWHERE:
            raise RejectedError(
                f"WebHDFS sends elsewhere (HTTP {answer.status})", field=f"{PREFIX}WEB_URL", hint="Correct it."
            )
        raise self._without_answer(action, path, f"HTTP {answer.status}", changes=changes)

    def _read(self, content: bytes, action: str, path: str, *, changes: bool) -> Mapping[str, Any]:
        if not content:
            return {}
        try:
            found = json.loads(content)
        except ValueError as error:
            raise self._without_answer(action, path, "an answer that is no JSON", changes=changes) from error
        return found if isinstance(found, dict) else {}

    def _without_answer(
        self, action: str, path: str, reason: str, *, changes: bool
    ) -> RetryableError | OutcomeUnknownError:
        if not changes:
            return RetryableError(f"can't {action} {path}: {reason}", path=path)
        return OutcomeUnknownError(
            f"can't say whether this happened: {action} {path}: {reason}",
            hint="Check what is there before you do anything else.",
            path=path,
        )

    def _open_pool(self) -> urllib3.HTTPConnectionPool:
        """One for each process: a connection that a fork shares would mix answers."""
        with self._lock:
            if self._pool is None or self._pool_of != os.getpid():
                parts = urlsplit(self._url)
                is_tls = parts.scheme == "https"
                kind = urllib3.HTTPSConnectionPool if is_tls else urllib3.HTTPConnectionPool
                self._pool = kind(parts.hostname or "", parts.port, maxsize=CONNECTIONS_KEPT_MAX)
                self._pool_of = os.getpid()
            return self._pool
