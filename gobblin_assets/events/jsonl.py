"""A sink that appends events to a file, a line of JSON each."""

import errno
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.events.sinks import Event
from gobblin_assets.spec.job_options import EventSinkSpec

_OPEN: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_MODE: Final = 0o640
_CANT_BE_SYNCED: Final = frozenset({errno.EACCES, errno.EINVAL, errno.ENOTSUP})


@dataclass(frozen=True, slots=True)
class JsonLines:
    """Each batch is synced, with its file's name, before it counts as sent. Between two the file may be rotated."""

    path: str

    def send(self, events: Sequence[Event]) -> None:
        content = b"".join(json.dumps(event, ensure_ascii=False).encode() + b"\n" for event in events)
        try:
            descriptor = os.open(self.path, _OPEN, _MODE)
            try:
                if not _ends_a_line(descriptor):
                    # A crash or a full disk left a part of a line.
                    content = b"\n" + content
                while content:
                    content = content[os.write(descriptor, content) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            _sync_directory(str(PurePath(self.path).parent))
        except OSError as error:
            raise RetryableError(f"can't append to {self.path}: {error.strerror}", path=self.path) from error


def _sync_directory(path: str) -> None:
    """Always, since whoever made the file may have died before. Some directories may be written to, not synced."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _CANT_BE_SYNCED:
            raise


def _ends_a_line(descriptor: int) -> bool:
    size_bytes = os.fstat(descriptor).st_size
    return size_bytes == 0 or os.pread(descriptor, 1, size_bytes - 1) == b"\n"


def open_jsonl(spec: EventSinkSpec) -> JsonLines:
    if spec.path is None:
        raise RejectedError("expected a file, found none", field="events.path", hint="Write the path of a file.")
    return JsonLines(spec.path)
