"""Trees of ``sftp://[user@]host[:port]/path``, and their files, as the environment says how to reach their servers."""

import asyncio
import os
import re
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, TypeVar

import asyncssh

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.servers import find_own_name
from gobblin_assets.fs.sftp.client import SftpClient
from gobblin_assets.fs.sftp.listing import SftpListing, find_sftp_entry
from gobblin_assets.fs.sftp.login import PREFIX, SftpServer, SftpSettings, read_sftp_settings
from gobblin_assets.fs.sftp.session import (
    S_NS,
    FileRange,
    SftpFailure,
    SftpSession,
    entry_of_attributes,
    explain_sftp_failure,
)
from gobblin_assets.fs.tree import Descend, EntryKind, TreeEntry, wrong_length
from gobblin_assets.model.files import FileIdentity

_Found = TypeVar("_Found")

SSH_PORT: Final = 22
PORT_MAX: Final = 65_535
CLIENTS_KEPT_MAX: Final = 8

_PASSWORD: Final = re.compile(r"[^@]*:.*@")
_AUTHORITY: Final = re.compile(
    r"((?P<user>[^/@:\s]{1,128})@)?(?P<host>[A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\])(:(?P<port>[0-9]{1,5}))?"
)


class RangedSftpFile:
    """``RangedFile`` of the version that was planned. Safe to share between threads. Nothing is asked for at first.

    A connection that is lost meanwhile is opened again, and the file with it: what came of a range is not read again.
    SFTP gives length and time of a file, by its name and by its open handle, and nothing else of its version. Both are
    looked at before the first byte and after each range.
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


class SftpTree:
    """``RangedFiles``, ``FoundEntries`` and ``LinkedPlaces`` over one server. Safe to share between threads.

    ``address``: as in URIs. ``hidden``, ``follow_links``: as in ``ListedFiles``.
    """

    def __init__(
        self, address: str, client: SftpClient, option: str, *, hidden: frozenset[str], follow_links: bool
    ) -> None:
        self._address = address
        self._client = client
        self._option = option
        self._hidden = hidden
        self._follow_links = follow_links

    @property
    def mtime_precision_ns(self) -> int:
        return S_NS

    @property
    def has_owners(self) -> bool:
        return True

    def to_uri(self, path: str) -> str:
        return f"sftp://{self._address}{path}"

    def list_tree(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        """Some directories are read ahead; the entries of those and of the ones on the way are held and sorted."""
        listing = SftpListing(
            self._client, _clean(root), self._option, self._hidden, descend, follow_links=self._follow_links
        )
        return listing.list_entries()

    def find_entry(self, path: str) -> TreeEntry | None:
        place = _clean(path)
        return self._ask(partial(find_sftp_entry, place, self._follow_links), place)

    def find_link_target(self, path: str) -> str | None:
        place = _clean(path)
        found = self._ask(partial(find_sftp_entry, place, False), place)
        return self.find_real_path(place) if found is not None and found.kind is EntryKind.LINK else None

    def find_real_path(self, path: str) -> str:
        place = _clean(path)

        async def find(session: SftpSession) -> bytes | SftpFailure:
            return await session.find_real_path(place)

        return _clean(self._ask(find, place).decode(errors="surrogateescape"))

    def find_file(self, path: str) -> FileIdentity | None:
        found = self.find_entry(path)
        return None if found is None or found.kind is not EntryKind.FILE else found.identity

    def open_ranged(self, path: str, identity: FileIdentity) -> RangedSftpFile:
        file = RangedSftpFile(self._client, _clean(path), identity, self._option, follow_links=self._follow_links)
        if not identity.size_bytes:
            file.require_empty()
        return file

    def _ask(self, look: Callable[[SftpSession], Coroutine[Any, Any, _Found | SftpFailure]], place: str) -> _Found:
        found = self._client.run(look, "look at", place)
        if isinstance(found, SftpFailure):
            raise explain_sftp_failure(found, action="look at", path=place, option=self._option)
        return found


def _clean(path: str) -> str:
    """The root of the server is one slash, and what is below it begins with one."""
    return f"/{path.strip('/')}"


@dataclass(frozen=True, slots=True)
class SftpFiles:
    """``ListedFiles`` of one server. ``address``: as in URIs."""

    address: str
    client: SftpClient

    def open_tree(
        self, option: str, *, hidden: frozenset[str], follow_links: bool, order: Callable[[str], str] | None = None
    ) -> SftpTree:
        if order is not None:
            raise RejectedError(
                "files of SFTP are not converted on the way",
                field=option,
                hint="Copy them as they are, and convert them from there.",
            )
        return SftpTree(self.address, self.client, option, hidden=hidden, follow_links=follow_links)


def open_sftp(uri: str, option: str) -> tuple[SftpFiles, str]:
    """The ``SourceFactory`` of the scheme ``sftp``. Nothing is connected to. Errors never show the URI."""
    user, host, port, path = _split(uri, option)
    settings = read_sftp_settings(os.environ, Path(os.path.expanduser("~")))  # noqa: PTH111  a user without a home is no error
    server = SftpServer(host.strip("[]"), port, user or settings.user or find_own_name(f"{PREFIX}USER"))
    address = f"{f'{user}@' if user else ''}{host}:{port}"
    return SftpFiles(address, _open(server, settings, option)), path


def _split(uri: str, option: str) -> tuple[str | None, str, int, str]:
    """The user, if there is one, host, port and path. Names of the path stand for themselves."""
    authority, slash, rest = uri.partition("://")[2].partition("/")
    if _PASSWORD.match(authority):
        raise RejectedError(
            "the URI holds a password", field=option, hint=f"Take it out, change it, and give it as {PREFIX}PASSWORD."
        )
    found = _AUTHORITY.fullmatch(authority)
    if found is None or not slash or not 0 < int(found["port"] or SSH_PORT) <= PORT_MAX:
        raise RejectedError(
            "expected sftp://user@host:port/path, found something else",
            field=option,
            hint="Correct it; user and port may be left out, and the path begins at the server's root.",
        )
    parts = [part for part in rest.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise RejectedError("expected a path without '..'", field=option, hint="Write the path that was meant.")
    return found["user"], found["host"].lower(), int(found["port"] or SSH_PORT), "/" + "/".join(parts)


@lru_cache(CLIENTS_KEPT_MAX)
def _open(server: SftpServer, settings: SftpSettings, option: str) -> SftpClient:
    """One for each way to reach a server: clients keep connections."""
    return SftpClient(server, settings, option)
