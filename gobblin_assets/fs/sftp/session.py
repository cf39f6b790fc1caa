"""The requests of one connection, and their answers: entries, and failures as families of errors.

A wait ends when the server has given no answer to anything for a while.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

import asyncssh
from asyncssh.constants import (
    FILEXFER_TYPE_DIRECTORY,
    FILEXFER_TYPE_REGULAR,
    FILEXFER_TYPE_SYMLINK,
    FILEXFER_TYPE_UNKNOWN,
)

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.model.files import FileIdentity

S_NS: Final = 1_000_000_000
"""The third version of SFTP gives times in whole seconds."""

SAID_CHARACTERS_MAX: Final = 200

_MODE_BITS: Final = 0o7777
_KINDS: Final = {
    FILEXFER_TYPE_REGULAR: EntryKind.FILE,
    FILEXFER_TYPE_DIRECTORY: EntryKind.DIRECTORY,
    FILEXFER_TYPE_SYMLINK: EntryKind.LINK,
}

ANSWER_WAIT_S: Final = 60.0

BLOCK_BYTES_MAX: Final = 256 << 10
"""OpenSSH gives no more for one request."""

IN_FLIGHT_BYTES: Final = 4 << 20
"""Asked for at once, of one file: so a file takes a fraction of the round trips that its blocks would take."""

BLOCKS_AT_ONCE_MAX: Final = 128

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class SftpFailure:
    """A status that is no success. ``said``: the server's words."""

    is_missing: bool
    is_forbidden: bool
    said: str

    def __str__(self) -> str:
        return self.said or "no reason was given"


def read_sftp_failure(error: asyncssh.SFTPError) -> SftpFailure:
    return SftpFailure(
        isinstance(error, asyncssh.SFTPNoSuchFile),
        isinstance(error, asyncssh.SFTPPermissionDenied),
        spell_reason(error.reason),
    )


def spell_reason(said: str) -> str:
    """A server's words, on one line of a terminal."""
    shown = "".join(each if each.isprintable() else " " for each in said[:SAID_CHARACTERS_MAX])
    return " ".join(shown.split())


def explain_sftp_failure(failure: SftpFailure, *, action: str, path: str, option: str) -> GobblinError:
    """The error to raise for a failure that is no answer. Most servers call everything else just a failure."""
    said = f"can't {action} {path}: {failure}"
    if failure.is_forbidden:
        hint = "Give the user of the server the right to read and search there, or exclude it."
        return RejectedError(said, field=option, hint=hint, path=path)
    if failure.is_missing:
        return RetryableError(f"{path} is gone", hint="The next plan sees that.", path=path)
    return RetryableError(said, path=path)


def entry_of_attributes(path: str, found: asyncssh.SFTPAttrs) -> TreeEntry | None:
    """The entry; None if the server says too little: a listing of some servers has no attributes."""
    if found.type == FILEXFER_TYPE_UNKNOWN:
        return None
    kind = _KINDS.get(found.type, EntryKind.SPECIAL)
    if kind is EntryKind.FILE and found.size is None:
        return None
    size_bytes = found.size or 0 if kind is EntryKind.FILE else 0
    mtime_ns = None if found.mtime is None else int(found.mtime) * S_NS
    mode = None if found.permissions is None else found.permissions & _MODE_BITS
    return TreeEntry(path, kind, FileIdentity(size_bytes, None, mtime_ns), mode, found.uid, found.gid)


class LostConnectionError(Exception):
    """Nothing is known of what was asked last; it may be asked again by another connection."""


@dataclass(frozen=True, slots=True)
class NamedAttributes:
    """One entry of a directory, as the server spells its name."""

    name: bytes
    attributes: asyncssh.SFTPAttrs


@dataclass(slots=True)
class FileRange:
    """Bytes from ``offset`` on, as far as they have come. ``missing``: the places and sizes of the others."""

    offset: int
    content: bytearray
    missing: list[tuple[int, int]]


class SftpSession:
    """Requests to one server, of tasks of one event loop. ``answers`` counts what the server answered."""

    def __init__(
        self, connection: asyncssh.SSHClientConnection, sftp: asyncssh.SFTPClient, *, answer_wait_s: float
    ) -> None:
        self._connection = connection
        self._sftp = sftp
        self._answer_wait_s = answer_wait_s
        self.answers = 0

    @property
    def is_open(self) -> bool:
        return not self._connection.is_closed()

    def end(self) -> None:
        """At once, whatever is under way."""
        self._connection.abort()

    async def list_directory(self, path: str) -> Sequence[NamedAttributes] | SftpFailure:
        """All but ``.`` and ``..``.

        OpenSSH's server leaves out what it can't look at: without the right to search a directory, that is everything.
        So one that looks empty is asked whether it may be searched.
        """
        found = await self._ask(self._read_names(path))
        if isinstance(found, SftpFailure) or found:
            return found
        itself = await self.look_at(f"{path.rstrip('/')}/.", follow=True)
        return itself if isinstance(itself, SftpFailure) else found

    async def look_at(self, path: str, *, follow: bool) -> asyncssh.SFTPAttrs | SftpFailure:
        name = path.encode()
        return await self._ask(self._sftp.stat(name) if follow else self._sftp.lstat(name))

    async def find_real_path(self, path: str) -> bytes | SftpFailure:
        """The path that links lead to, if the server says it."""
        return await self._ask(self._sftp.realpath(path.encode()))

    async def open_file(self, path: str) -> asyncssh.SFTPClientFile | SftpFailure:
        return await self._ask(self._open(path))

    async def look_into(self, file: asyncssh.SFTPClientFile) -> asyncssh.SFTPAttrs | SftpFailure:
        """The attributes of the open file, whatever has its name now."""
        return await self._ask(file.stat())

    async def read_range(self, file: asyncssh.SFTPClientFile, wanted: "FileRange") -> SftpFailure | None:
        """Read the range by many requests at once. Blocks that come stay, also if others fail.

        A block behind the end is left missing.
        """
        waiting = iter(list(wanted.missing))

        async def read() -> SftpFailure | None:
            for block in waiting:
                place, size_bytes = block
                found = await self._ask(_read_block(file, wanted.offset + place, size_bytes))
                if isinstance(found, SftpFailure):
                    return found
                if len(found) == size_bytes:
                    wanted.content[place : place + size_bytes] = found
                    wanted.missing.remove(block)
            return None

        readers = min(IN_FLIGHT_BYTES // self.block_bytes, BLOCKS_AT_ONCE_MAX, len(wanted.missing))
        failures = await run_together(read() for _ in range(readers))
        return next((each for each in failures if each is not None), None)

    @property
    def block_bytes(self) -> int:
        """The bytes that the server gives for one request."""
        return min(self._sftp.limits.max_read_len or BLOCK_BYTES_MAX, BLOCK_BYTES_MAX)

    async def close_file(self, file: asyncssh.SFTPClientFile) -> None:
        """A connection that is lost has closed it."""
        with suppress(LostConnectionError):
            await self._ask(file.close())

    async def _open(self, path: str) -> asyncssh.SFTPClientFile:
        # Without a block's size asyncssh divides nothing: the requests of its own division outlive a failure.
        return await self._sftp.open(path.encode(), "rb", block_size=None)

    async def _read_names(self, path: str) -> list[NamedAttributes]:
        found = []
        async for each in self._sftp.scandir(path.encode()):
            self.answers += 1
            name = each.filename.encode() if isinstance(each.filename, str) else each.filename
            if name not in {b".", b".."}:
                found.append(NamedAttributes(name, each.attrs))
        return found

    async def _ask(self, request: Coroutine[Any, Any, _Found]) -> _Found | SftpFailure:
        task = asyncio.ensure_future(request)
        try:
            while not task.done():
                seen = self.answers
                await asyncio.wait({task}, timeout=self._answer_wait_s)
                if not task.done() and self.answers == seen:
                    raise LostConnectionError(f"no answer in {self._answer_wait_s:.0f} s")
            self.answers += 1
            return task.result()
        except (asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection) as error:
            raise LostConnectionError(spell_reason(error.reason)) from error
        except asyncssh.SFTPError as error:
            if not self.is_open:
                raise LostConnectionError(spell_reason(error.reason)) from error
            return read_sftp_failure(error)
        except (asyncssh.Error, OSError, EOFError, ValueError) as error:
            raise LostConnectionError(f"{type(error).__name__} ({spell_reason(str(error))})") from error
        finally:
            task.cancel()


async def start_sftp(
    connection: asyncssh.SSHClientConnection, option: str, *, answer_wait_s: float = ANSWER_WAIT_S
) -> SftpSession:
    """RejectedError if the server has no SFTP for this user. LostConnectionError: the connection broke off."""
    try:
        async with asyncio.timeout(answer_wait_s):
            sftp = await connection.start_sftp_client(path_encoding=None)
    except (asyncssh.ChannelOpenError, asyncssh.SFTPError) as error:
        is_open = not connection.is_closed()
        connection.abort()
        if not is_open:
            raise LostConnectionError(spell_reason(error.reason)) from error
        raise RejectedError(
            f"the server lets the user in, and gives no SFTP: {spell_reason(error.reason)}",
            field=option,
            hint="Ask who runs it for the subsystem sftp.",
        ) from error
    except (asyncssh.Error, OSError, EOFError) as error:
        connection.abort()
        raise LostConnectionError(f"{type(error).__name__} ({spell_reason(str(error))})") from error
    return SftpSession(connection, sftp, answer_wait_s=answer_wait_s)


async def _read_block(file: asyncssh.SFTPClientFile, offset: int, size_bytes: int) -> bytes:
    """Fewer bytes at the end of the file only: a server may answer with less than it was asked for."""
    content = b""
    while len(content) < size_bytes:
        found = cast("bytes", await file.read(size_bytes - len(content), offset + len(content)))
        if not found:
            break
        content += found
    return content


async def run_together(works: Iterable[Coroutine[Any, Any, _Found]]) -> list[_Found]:
    """The results in order. The first error ends all of them."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
