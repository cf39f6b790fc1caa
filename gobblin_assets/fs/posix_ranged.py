"""Files of a local or mounted file system, read by ranges, each as the version that was planned."""

import errno
import os
import stat
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.posix_errors import translate_error
from gobblin_assets.fs.tree import require_end, wrong_length
from gobblin_assets.model.files import FileIdentity

_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM})


@dataclass(frozen=True, slots=True)
class PosixRangedFile:
    """``RangedFile`` of an open descriptor. Safe to share between threads."""

    path: str
    identity: FileIdentity
    changed_ns: int | None
    descriptor: int

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """RetryableError if the file changed; RejectedError if it ends elsewhere than it says."""
        try:
            content = os.pread(self.descriptor, size_bytes, offset)
            while len(content) < size_bytes and (more := self._read_more(content, offset, size_bytes)):
                content += more
            self.require_planned()
            if offset + size_bytes == self.identity.size_bytes:
                require_end(self.descriptor, self.path, self.identity.size_bytes)
        except OSError as error:
            raise translate_error(error, action="read", path=self.path, changes=False) from error
        if len(content) < size_bytes:
            raise wrong_length(self.path, self.identity.size_bytes, has_more=False)
        return content

    def _read_more(self, content: bytes, offset: int, size_bytes: int) -> bytes:
        return os.pread(self.descriptor, size_bytes - len(content), offset + len(content))

    def require_planned(self) -> None:
        """RetryableError unless the file is the planned version still."""
        found = os.fstat(self.descriptor)
        identity = FileIdentity(found.st_size, found.st_ino, found.st_mtime_ns)
        is_changed = self.changed_ns is not None and found.st_ctime_ns != self.changed_ns
        if is_changed or not stat.S_ISREG(found.st_mode) or not identity.matches(self.identity):
            raise _changed(self.path)

    def close(self) -> None:
        os.close(self.descriptor)


def open_posix_ranged(
    path: str, identity: FileIdentity, changed_ns: int | None = None, *, follow_links: bool
) -> PosixRangedFile:
    """The file of this identity and ctime. RetryableError if it is missing or another version."""
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow_links else os.O_NOFOLLOW)
        opened = PosixRangedFile(path, identity, changed_ns, os.open(path, flags))
    except OSError as error:
        if error.errno in _GONE:
            gone = f"{path} is gone since it was planned"
            raise RetryableError(gone, hint="The next plan sees that.", path=path) from error
        if error.errno in _FORBIDDEN:
            raise RejectedError(
                f"can't read {path}: {errno.errorcode[error.errno]} ({error.strerror})",
                field="source",
                hint="Give the user that runs this the right to read it.",
                path=path,
            ) from error
        raise translate_error(error, action="read", path=path, changes=False) from error
    try:
        opened.require_planned()
        if not identity.size_bytes:
            require_end(opened.descriptor, path, 0)
    except BaseException:
        opened.close()
        raise
    return opened


def _changed(path: str) -> RetryableError:
    return RetryableError(
        f"{path} changed since it was planned", hint="The next plan sees it as it is then.", path=path
    )
