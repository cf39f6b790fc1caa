"""Files of a server, read by ranges, each as the version that was planned.

SFTP tells length and time of a file, by its name and by its open handle, and nothing else of its version. Both are
looked at before the first byte and after each range.
"""

import asyncio
from functools import partial

import asyncssh

from gobblin_assets.errors import GobblinError, RetryableError
from gobblin_assets.fs.sftp.answers import SftpFailure, entry_of_attributes, explain_sftp_failure
from gobblin_assets.fs.sftp.client import SftpClient
from gobblin_assets.fs.sftp.session import FileRange, SftpSession
from gobblin_assets.fs.told_lengths import wrong_length
from gobblin_assets.fs.tree import EntryKind
from gobblin_assets.model.files import FileIdentity


class RangedSftpFile:
    """``RangedFile``. Safe to share between threads. Nothing is asked for before the first call.

    A connection that is lost meanwhile is opened again, and the file with it: what came of a range is not read again.
    """

    def __init__(
        self, client: SftpClient, path: str, identity: FileIdentity, option: str, *, follow_links: bool
    ) -> None:
        self._client = client
        self._path = path
        self._identity = identity
        self._option = option
        self._follow_links = follow_links
        self._opening = asyncio.Lock()
        self._opened: tuple[SftpSession, asyncssh.SFTPClientFile] | None = None

    def require_empty(self) -> None:
        """RetryableError unless the file is the planned version now, without bytes. It is closed then."""

        async def look(session: SftpSession) -> None:
            await self._require_end(session, await self._open(session))

        try:
            self._client.run(look, "read", self._path)
        except BaseException:
            self.close()
            raise

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        wanted = FileRange(offset, bytearray(size_bytes), [])

        async def read(session: SftpSession) -> None:
            file = await self._open(session)
            if not wanted.missing:
                block_bytes = session.block_bytes
                places = range(0, size_bytes, block_bytes)
                wanted.missing = [(place, min(block_bytes, size_bytes - place)) for place in places]
            await self._read(session, file, wanted)
            if offset + size_bytes == self._identity.size_bytes:
                await self._require_end(session, file)

        self._client.run(read, "read", self._path)
        return bytes(wanted.content)

    def close(self) -> None:
        """Nobody waits for it."""
        opened, self._opened = self._opened, None
        if opened is not None and opened[0].is_open:
            session, file = opened
            self._client.begin(partial(_close, session, file), "close", self._path)

    async def _open(self, session: SftpSession) -> asyncssh.SFTPClientFile:
        async with self._opening:
            if self._opened is not None and self._opened[0] is session:
                return self._opened[1]
            named, file = await asyncio.gather(
                session.look_at(self._path, follow=self._follow_links), session.open_file(self._path)
            )
            if isinstance(file, SftpFailure):
                raise self._explain(file)
            self._opened = (session, file)
            self._require_planned(named, "since it was planned")
            return file

    async def _read(self, session: SftpSession, file: asyncssh.SFTPClientFile, wanted: FileRange) -> None:
        failure = await session.read_range(file, wanted)
        found = await asyncio.gather(session.look_into(file), session.look_at(self._path, follow=self._follow_links))
        for each in found:
            self._require_planned(each, "while it was read")
        if failure is not None:
            raise self._explain(failure)
        if wanted.missing:
            raise wrong_length(self._path, self._identity.size_bytes, has_more=False)

    async def _require_end(self, session: SftpSession, file: asyncssh.SFTPClientFile) -> None:
        """Of a file that is the planned one: what came behind its end since would have another length."""
        behind = FileRange(self._identity.size_bytes, bytearray(1), [(0, 1)])
        failure = await session.read_range(file, behind)
        if failure is not None:
            raise self._explain(failure)
        if not behind.missing:
            raise wrong_length(self._path, self._identity.size_bytes, has_more=True)

    def _require_planned(self, found: asyncssh.SFTPAttrs | SftpFailure, when: str) -> None:
        if isinstance(found, SftpFailure):
            raise self._explain(found)
        entry = entry_of_attributes(self._path, found)
        if entry is None or entry.kind is not EntryKind.FILE or not entry.identity.matches(self._identity):
            raise self._changed(when)

    def _explain(self, failure: SftpFailure) -> GobblinError:
        return explain_sftp_failure(failure, action="read", path=self._path, option=self._option)

    def _changed(self, when: str) -> RetryableError:
        return RetryableError(
            f"{self._path} changed {when}", hint="The next plan sees it as it is then.", path=self._path
        )


async def _close(session: SftpSession, file: asyncssh.SFTPClientFile, _current: SftpSession) -> None:
    await session.close_file(file)
