"""The bytes of one file of a store, by ranges, for a new file of a staging directory. All ranges are of one version."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import chain
from typing import Final

import google_crc32c

from gobblin_assets.errors import RetryableError
from gobblin_assets.fs.network_files import RangedFile
from gobblin_assets.fs.registry import open_ranged
from gobblin_assets.jobs.copy.transfer.moving import Moved, write_all
from gobblin_assets.model.files import FileIdentity

RANGE_BYTES: Final = 8 << 20
"""Read by one request, and held in memory by each writer: a smaller file is one request."""


@contextmanager
def opened_ranges(
    source: str, identity: FileIdentity, moved: Moved, *, checksum: bool, follow_links: bool
) -> Iterator[Callable[[int], int | None]]:
    """Gives what writes all bytes of the URI ``source`` into an open file; it returns their CRC32C if ``checksum``.

    The first range is read before the block begins.
    """
    files, path = open_ranged(source, "source", follow_links=follow_links)
    with closing(files.open_ranged(path, identity)) as opened:
        ranges = read_in_ranges(opened, source, identity.size_bytes, RANGE_BYTES)
        first = next(ranges)

        def write(out: int) -> int | None:
            crc = 0
            for content in chain((first,), ranges):
                write_all(out, content)
                crc = google_crc32c.extend(crc, content) if checksum else crc
                moved(len(content))
            return crc if checksum else None

        yield write


def read_in_ranges(opened: RangedFile, source: str, size_bytes: int, range_bytes: int) -> Iterator[bytes]:
    """All bytes of the file, a range at a time; of an empty file, one empty range."""
    position = 0
    while True:
        count = min(range_bytes, size_bytes - position)
        content = opened.read_at(position, count) if count else b""
        if len(content) != count:
            raise RetryableError(f"{source} changed while it was read", hint="The next plan sees it as it is then.")
        yield content
        position += count
        if position >= size_bytes:
            return
