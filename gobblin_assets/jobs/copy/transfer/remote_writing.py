"""One bin, written over a network: as ``writing`` does it by descriptors, on a file system that has none.

A file waits for answers most of its time, so that several of a bin are copied at once. Rows keep the bin's order.

Sources of every kind are read by ranges, and each file is proved to be the planned version when its last byte was read.
"""

import stat
import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import lru_cache
from itertools import chain, groupby, islice
from typing import Final

import google_crc32c

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.network_files import RangedFile, StagingFiles
from gobblin_assets.fs.posix_ranged import open_posix_ranged
from gobblin_assets.fs.registry import open_file_system, open_ranged
from gobblin_assets.jobs.copy.copyable import Attributes, PlannedFile
from gobblin_assets.jobs.copy.transfer.file_copy import CopyOptions, PlannedEntry, StagedFile, read_in_ranges
from gobblin_assets.jobs.copy.transfer.writing import (
    BinWork,
    FailureText,
    ResultRow,
    RowSink,
    copy_directory,
    text_of,
    unpack_item,
)
from gobblin_assets.model.files import FileIdentity

RANGE_BYTES: Final = 4 << 20
"""Held in memory for each file that is being copied."""

FILES_AT_ONCE: Final = 8
"""Of each bin. An HDFS client waits 0.4 s for most files: until the NameNode has heard of the last block."""

PLACES_KEPT_MAX: Final = 16

_OWN_RIGHTS: Final = 0o700


def copy_remote_bin(work: BinWork, sink: RowSink) -> None:
    """``copy_bin`` where the writer's directory is a URI."""
    items = ((number, unpack_item(packed)) for number, packed in enumerate(work.items))
    with ThreadPoolExecutor(FILES_AT_ONCE, thread_name_prefix="copy-file") as pool:
        writer = _RemoteWriter(work, CopyOptions(*work.options), sink, pool)
        for is_directory, found in groupby(items, key=lambda each: each[1].is_directory):
            if is_directory:
                for number, item in found:
                    copy_directory(writer, number, item)
            else:
                writer.copy_entries(
                    ((number, 0), item.files[0], f"{writer.directory}/{item.number}") for number, item in found
                )


class _RemoteWriter:
    """``BinWriter`` over a network."""

    def __init__(self, work: BinWork, options: CopyOptions, sink: RowSink, pool: ThreadPoolExecutor) -> None:
        self._files, self.directory = _open_staging(work.directory)
        self._source_root = work.source_root
        self._options = options
        self._sink = sink
        self._pool = pool
        self._lock = threading.Lock()

    def copy_entries(self, entries: Iterable[PlannedEntry]) -> list[FailureText]:
        begun: deque[tuple[tuple[int, int], Future[StagedFile]]] = deque()
        failures: list[FailureText] = []
        waiting = iter(entries)
        try:
            while True:
                for place, file, target in islice(waiting, FILES_AT_ONCE - len(begun)):
                    begun.append((place, self._pool.submit(self._copy_file, file, target)))
                if not begun:
                    return failures
                place, future = begun.popleft()
                failure = self._report(place, future)
                if failure is not None:
                    failures.append(failure)
        finally:
            for _place, future in begun:
                future.cancel()

    def _report(self, place: tuple[int, int], future: "Future[StagedFile]") -> FailureText | None:
        try:
            staged = future.result()
        except GobblinError as error:
            reason = text_of(error)
            self.end((*place, None, reason))
            return reason
        self.end((*place, staged, None))
        return None

    def end(self, row: ResultRow) -> None:
        with self._lock:
            self._sink.ended(row)

    def _move(self, count: int) -> None:
        with self._lock:
            self._sink.moved(count)

    def make_directory(self, path: str, desired: Attributes) -> None:
        mode = None if desired.mode is None else desired.mode | _OWN_RIGHTS
        self._files.make_staged_directory(path, mode)

    def finish_directory(self, path: str, desired: Attributes) -> StagedFile:
        identity = self._files.set_attributes(path, desired.mode, desired.mtime_ns, desired.placement).identity
        return _staged_of(path, identity, None)

    def _copy_file(self, file: PlannedFile, target: str) -> StagedFile:
        """The first bytes are read before anything is made."""
        source, desired = f"{self._source_root}/{file.origin}", file.desired
        with closing(_open_source(source, file, self._options)) as opened:
            pieces = read_in_ranges(opened, source, file.size_bytes, RANGE_BYTES)
            first = next(pieces)
            # Its time can be set only while its owner may write to it.
            made = None if desired.mode is None else desired.mode | stat.S_IWUSR
            stream = self._files.create_staged(target, made, desired.placement)
            try:
                checksum = 0
                for content in chain((first,), pieces):
                    stream.write(content)
                    checksum = int(google_crc32c.extend(checksum, content))
                    self._move(len(content))
                stream.finish()
            except BaseException:
                stream.abandon()
                raise
        mode = None if desired.mode == made else desired.mode
        identity = self._files.set_attributes(target, mode, desired.mtime_ns, desired.placement).identity
        if identity.size_bytes != file.size_bytes:
            raise RetryableError(
                f"wrote {file.size_bytes:,} bytes to {target}, which has {identity.size_bytes:,}", path=target
            )
        return _staged_of(target, identity, checksum if self._options.checksum else None)


def _open_source(source: str, file: PlannedFile, options: CopyOptions) -> RangedFile:
    if source[0] == "/":
        return open_posix_ranged(source, file.identity, file.changed_ns, follow_links=options.follows_links)
    files, path = open_ranged(source, "source", follow_links=options.follows_links)
    return files.open_ranged(path, file.identity)


def _staged_of(path: str, identity: FileIdentity, checksum: int | None) -> StagedFile:
    if identity.inode is None or identity.mtime_ns is None:
        raise RetryableError(f"{path} has no file id", path=path)
    return identity.size_bytes, identity.inode, identity.mtime_ns, checksum


@lru_cache(PLACES_KEPT_MAX)
def _open_staging(uri: str) -> tuple[StagingFiles, str]:
    files, directory = open_file_system(uri)
    if not isinstance(files, StagingFiles):
        raise RejectedError(
            f"the file system {files.scheme} can't be written by copies",
            field="destination",
            hint="Copy to a local disk, a mounted file system, HDFS or an object store.",
        )
    return files, directory
