"""One file of a store, copied by ranges into a new file of a staging directory. All ranges are of one version."""

from collections.abc import Callable
from contextlib import closing
from typing import Final

import google_crc32c

from gobblin_assets.errors import RetryableError
from gobblin_assets.fs.ranged import RangedFile
from gobblin_assets.fs.source_trees import open_ranged
from gobblin_assets.jobs.copy.transfer.file_copy import CopyOptions, PlannedFile, StagedFile, make_file
from gobblin_assets.jobs.copy.transfer.moving import Moved, write_all
from gobblin_assets.model.files import FileIdentity

RANGE_BYTES: Final = 8 << 20
"""Read by one request, and held in memory by each writer: a smaller file is one request."""


def copy_ranged(source: str, file: PlannedFile, target: str, options: CopyOptions, moved: Moved) -> StagedFile:
    """As ``copy_file``, from the URI ``source``. The first range is read before anything is made."""
    files, path = open_ranged(source, "source", follow_links=options.follows_links)
    identity = FileIdentity(file.size_bytes, file.inode, file.mtime_ns, file.tag)
    with closing(files.open_ranged(path, identity)) as opened:
        first = _read(opened, source, file.size_bytes, 0)
        return make_file(source, file, target, (), _writer_of(opened, source, first, file.size_bytes, options, moved))


def _writer_of(
    opened: RangedFile, source: str, first: bytes, size_bytes: int, options: CopyOptions, moved: Moved
) -> Callable[[int], int | None]:
    def write(out: int) -> int | None:
        content, position, crc = first, 0, 0
        while True:
            write_all(out, content)
            crc = google_crc32c.extend(crc, content) if options.checksum else crc
            position += len(content)
            moved(len(content))
            if position == size_bytes:
                return crc if options.checksum else None
            content = _read(opened, source, size_bytes, position)

    return write


def _read(opened: RangedFile, source: str, size_bytes: int, position: int) -> bytes:
    count = min(RANGE_BYTES, size_bytes - position)
    if not count:
        return b""
    content = opened.read_at(position, count)
    if len(content) != count:
        raise RetryableError(f"{source} changed while it was read", hint="The next plan sees it as it is then.")
    return content
