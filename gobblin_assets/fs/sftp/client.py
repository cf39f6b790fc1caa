"""One server, for the threads of this process: connections are opened as they are needed, and again when they are lost.

asyncssh runs in an event loop, which has a thread of its own for all servers.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from gobblin_assets.errors import RetryableError
from gobblin_assets.fs.sftp.login import SftpServer, SftpSettings, log_in
from gobblin_assets.fs.sftp.session import ANSWER_WAIT_S, LostConnectionError, SftpSession, start_sftp

TRIES_MAX: Final = 3
BACK_OFF_S: Final = 0.3
"""Before the second try, and three times as long before the third."""

IDLE_S: Final = 30.0
"""A connection that nobody uses so long is closed."""

_Found = TypeVar("_Found")

Work = Callable[[SftpSession], Coroutine[Any, Any, _Found]]
"""What is asked of a connection; again of another one if it raises LostConnectionError."""


class SftpClient:
    """Safe to share between threads, and after a fork. Nothing is connected to before the first call.

    ``option``: where a person wrote the place, for errors.
    """

    def __init__(
        self,
        server: SftpServer,
        settings: SftpSettings,
        option: str,
        *,
        answer_wait_s: float = ANSWER_WAIT_S,
        idle_s: float = IDLE_S,
    ) -> None:
        self._server = server
        self._settings = settings
        self._option = option
        self._answer_wait_s = answer_wait_s
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._link: _Link | None = None
        self._link_of = 0

    def begin(self, work: "Work[_Found]", action: str, path: str) -> "Future[_Found]":
        """Do it meanwhile. The result, or RetryableError if the connection is lost again and again."""
        return asyncio.run_coroutine_threadsafe(self._open_link().do(work, action, path), _find_loop())

    def run(self, work: "Work[_Found]", action: str, path: str) -> _Found:
        """Do it now. Each wait of the work is bounded, so that this is."""
        future = self.begin(work, action, path)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _open_link(self) -> "_Link":
        """One for each process: connections don't survive a fork."""
        with self._lock:
            if self._link is None or self._link_of != os.getpid():
                self._link = _Link(self._server, self._settings, self._option, self._answer_wait_s, self._idle_s)
                self._link_of = os.getpid()
            return self._link


class _Link:
    """The connection of one process, used in the event loop only."""

    def __init__(
        self, server: SftpServer, settings: SftpSettings, option: str, answer_wait_s: float, idle_s: float
    ) -> None:
        self._server = server
        self._settings = settings
        self._option = option
        self._answer_wait_s = answer_wait_s
        self._idle_s = idle_s
        self._opening = asyncio.Lock()
        self._session: SftpSession | None = None
        self._users = 0
        self._idle: asyncio.TimerHandle | None = None

    async def do(self, work: "Work[_Found]", action: str, path: str) -> _Found:
        self._users += 1
        if self._idle is not None:
            self._idle.cancel()
        try:
            return await self._try(work, action, path)
        finally:
            self._users -= 1
            if not self._users:
                self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._end_idle)

    async def _try(self, work: "Work[_Found]", action: str, path: str) -> _Found:
        wait_s, tries = BACK_OFF_S, 1
        while True:
            session: SftpSession | None = None
            try:
                session = await self._open()
                return await work(session)
            except (LostConnectionError, ConnectionError) as error:
                self._drop(session)
                if tries == TRIES_MAX:
                    raise RetryableError(
                        f"can't {action} {path}: the connection to {self._server} was lost {tries} times: {error}",
                        hint="Is the server up, and does it allow so many connections?",
                        path=path,
                    ) from error
            tries += 1
            await asyncio.sleep(wait_s)
            wait_s *= 3

    async def _open(self) -> SftpSession:
        async with self._opening:
            if self._session is None or not self._session.is_open:
                connection = await log_in(self._server, self._settings, self._option)
                self._session = await start_sftp(connection, self._option, answer_wait_s=self._answer_wait_s)
            return self._session

    def _drop(self, session: SftpSession | None) -> None:
        """Others may have another one by now."""
        if session is not None:
            session.end()
            if self._session is session:
                self._session = None

    def _end_idle(self) -> None:
        if not self._users:
            self._drop(self._session)


_LOOPS: Final[dict[int, asyncio.AbstractEventLoop]] = {}
_LOOPS_LOCK: Final = threading.Lock()


def _find_loop() -> asyncio.AbstractEventLoop:
    """The event loop of this process, in a thread that ends with it."""
    with _LOOPS_LOCK:
        found = _LOOPS.get(os.getpid())
        if found is None:
            found = _LOOPS[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=found.run_forever, name="sftp", daemon=True).start()
        return found
