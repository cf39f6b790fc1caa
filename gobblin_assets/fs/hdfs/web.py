"""WebHDFS requests. Each is sent once: whether a change was made is unknown if no answer came."""

import json
import os
import threading
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError
from urllib3.util import Timeout

from gobblin_assets.errors import OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.fs.hdfs.answers import HdfsFailure, StatusPage, explain_failure, page_of, read_exception
from gobblin_assets.fs.hdfs.hdfs_settings import HOST, PREFIX, WEB_PORT, HdfsSettings

CONNECT_WAIT_S: Final = 5.0
ANSWER_WAIT_S: Final = 60.0
CONNECTIONS_KEPT_MAX: Final = 32

_OK: Final = 200
_CREATED: Final = 201
_UNAUTHORIZED: Final = 401
_ELSEWHERE: Final = frozenset({301, 302, 303, 307, 308})


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
                f"can't reach the NameNode: {_reason(error)}",
                hint=f"Is {PREFIX}WEB_URL right, and the NameNode up?",
                path=path,
            ) from error
        except HTTPError as error:
            raise self._without_answer(action, path, _reason(error), changes=changes) from error
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


def _reason(error: HTTPError) -> str:
    """The kind of failure. urllib3's text names the host and the whole path besides."""
    cause = error.__cause__ or (error.args[-1] if error.args and isinstance(error.args[-1], Exception) else None)
    inner = f" ({type(cause).__name__}: {cause})" if isinstance(cause, OSError) else ""
    return f"{type(error).__name__}{inner}"
