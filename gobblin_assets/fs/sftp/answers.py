"""Answers of an SFTP server: entries, and failures as families of errors."""

from dataclasses import dataclass
from typing import Final

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
"""The third version of SFTP tells times in whole seconds."""

SAID_CHARACTERS_MAX: Final = 200

_MODE_BITS: Final = 0o7777
_KINDS: Final = {
    FILEXFER_TYPE_REGULAR: EntryKind.FILE,
    FILEXFER_TYPE_DIRECTORY: EntryKind.DIRECTORY,
    FILEXFER_TYPE_SYMLINK: EntryKind.LINK,
}


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
    """The entry; None if the server tells too little: a listing of some servers has no attributes."""
    if found.type == FILEXFER_TYPE_UNKNOWN:
        return None
    kind = _KINDS.get(found.type, EntryKind.SPECIAL)
    if kind is EntryKind.FILE and found.size is None:
        return None
    size_bytes = found.size or 0 if kind is EntryKind.FILE else 0
    mtime_ns = None if found.mtime is None else int(found.mtime) * S_NS
    mode = None if found.permissions is None else found.permissions & _MODE_BITS
    return TreeEntry(path, kind, FileIdentity(size_bytes, None, mtime_ns), mode, found.uid, found.gid)
