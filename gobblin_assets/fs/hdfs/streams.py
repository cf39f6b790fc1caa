"""The bytes of files, by hdfs-native.

hdfs-native takes the name of the HDFS user from the environment variable ``HADOOP_USER_NAME`` alone, at each new
connection, so that this module sets it: a process acts as one HDFS user.

Its calls have no bound: when a DataNode dies, a sync that was under way never returns. So each call has a thread,
which is left behind if it takes too long. (hdfs-native's own asynchronous client panics when it repeats a call.)
"""

import io
import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, TypeVar, cast

from hdfs_native import Client, FileReader, FileWriter, WriteOptions

from gobblin_assets.errors import ConflictError, GobblinError, RetryableError
from gobblin_assets.fs.hdfs.hdfs_settings import HdfsSettings, act_as
from gobblin_assets.fs.hdfs.web import MS_NS, STANDS, explain_failure, failure_of_native
from gobblin_assets.fs.tree import AS_GIVEN, Placement
from gobblin_assets.model.files import FileIdentity

FILE_MODE: Final = 0o644
DIRECTORY_MODE: Final = 0o755

READ_AHEAD_BYTES: Final = 1 << 20

CALL_S_MAX: Final = 60.0
"""One call's time: a few MiB, their sync, or the end of a file. hdfs-native replaces a DataNode within it."""

_CONFIGURATION: Final = {"dfs.client.failover.max.attempts": "2", "dfs.client.failover.sleep.base.millis": "200"}
"""How often hdfs-native repeats a call by itself: with its default a run hangs for minutes."""

_PANIC: Final = "PanicException"
"""Of ``pyo3_runtime``, a module that can't be imported. It is no Exception."""

_Found = TypeVar("_Found")


class HdfsStreams:
    """Safe to share between threads, and after a fork. Nothing is connected to before the first call.

    ``option``: where a person wrote the place, for errors.
    """

    def __init__(self, address: str, settings: HdfsSettings, option: str) -> None:
        self._address = address
        self._settings = settings
        self._option = option
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._client_of = 0
        self._block_bytes: int | None = None

    def create(self, path: str, mode: int = FILE_MODE, placement: Placement = AS_GIVEN) -> "HdfsWriter":
        """A new file. ConflictError if something is there; a RejectedError with ``errno`` ENOENT: no parent."""
        options = WriteOptions(
            permission=mode,
            overwrite=False,
            create_parent=False,
            replication=placement.replication or self._settings.replication,
            block_size=placement.block_bytes,
        )
        client = self._open()

        def begin() -> FileWriter:
            writer = client.create(path, options)
            if placement.block_bytes is None and self._block_bytes is None:
                self._block_bytes = client.get_file_info(path).blocksize
            return writer

        writer = self.attempt(begin, "make", path)
        return HdfsWriter(self, writer, path, placement.block_bytes or self._block_bytes or 0)

    def make_directory(self, path: str, mode: int = DIRECTORY_MODE) -> None:
        """A directory that is there stays. A RejectedError with ``errno`` ENOENT: no parent."""
        client = self._open()
        self.attempt(lambda: client.mkdirs(path, mode, create_parent=False), "make", path)

    def open(self, path: str) -> FileReader:
        client = self._open()
        return self.attempt(lambda: client.read(path), "read", path)

    def has_version(self, path: str, identity: FileIdentity) -> bool:
        """Whether the file has this length and time, as those who serve its bytes see it."""
        client = self._open()
        found = self.attempt(lambda: client.get_file_info(path), "look at", path)
        mtime_ns = None if identity.mtime_ns is None else found.modification_time * MS_NS
        return not found.isdir and (found.length, mtime_ns) == (identity.size_bytes, identity.mtime_ns)

    def attempt(self, call: Callable[[], _Found], action: str, path: str) -> _Found:
        """The call's result. What it raises is raised as a family; RetryableError if it takes too long."""
        try:
            return _call_bounded(call)
        except Empty as error:
            raise RetryableError(
                f"can't {action} {path}: no answer in {CALL_S_MAX:.0f} s", hint="Are the DataNodes up?", path=path
            ) from error
        except (OSError, RuntimeError, ValueError) as error:
            raise self._explain(error, action, path) from error
        except BaseException as error:
            if type(error).__name__ != _PANIC:
                raise
            # hdfs-native gave up in its own middle; the call, and no more, failed.
            raise RetryableError(f"can't {action} {path}: hdfs-native panicked: {error}", path=path) from error

    def _explain(self, error: Exception, action: str, path: str) -> GobblinError:
        failure = failure_of_native(error)
        if failure.kind in STANDS and action == "make":
            return ConflictError(f"{path} is there already", path=path)
        return explain_failure(failure, action=action, path=path, option=self._option, changes=False)

    def _open(self) -> Client:
        """One for each process: its threads and connections don't survive a fork."""
        with self._lock:
            if self._client is None or self._client_of != os.getpid():
                act_as(self._settings.effective_user)
                self._client = Client(f"hdfs://{self._address}", dict(_CONFIGURATION))
                self._client_of = os.getpid()
            return self._client


def _call_bounded(call: Callable[[], _Found]) -> _Found:
    """``Empty`` if it takes too long. The thread is a daemon: the process ends without it."""
    answers: SimpleQueue[tuple[_Found | None, BaseException | None]] = SimpleQueue()

    def run() -> None:
        try:
            answers.put((call(), None))
        except BaseException as error:  # noqa: BLE001  raised again by who waits
            answers.put((None, error))

    threading.Thread(target=run, name="hdfs-call", daemon=True).start()
    found, error = answers.get(timeout=CALL_S_MAX)
    if error is not None:
        raise error
    return cast("_Found", found)


class HdfsWriter(io.RawIOBase):
    """A stream into a new file. ``close`` and ``finish`` return once its bytes are on the DataNodes' disks.

    A DataNode syncs what it has of the block that is being written. So the file is synced at the end of each block.
    """

    def __init__(self, streams: HdfsStreams, writer: FileWriter, path: str, block_bytes: int) -> None:
        self._streams = streams
        self._writer: FileWriter | None = writer
        self._path = path
        self._block_bytes = block_bytes
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, content: bytes, /) -> int:  # type: ignore[override]  # any buffer, as the caller's type says
        if self._writer is None:
            raise ValueError("the file is closed")
        rest = memoryview(content).cast("B")
        while rest:
            part = rest[: self._block_bytes - self._position % self._block_bytes] if self._block_bytes else rest
            self._streams.attempt(self._sender(self._writer, bytes(part)), "write", self._path)
            self._position += len(part)
            rest = rest[len(part) :]
        return len(content)

    def _sender(self, writer: FileWriter, part: bytes) -> Callable[[], None]:
        def send() -> None:
            writer.write(part)
            if self._block_bytes and (self._position + len(part)) % self._block_bytes == 0:
                writer.hsync()

        return send

    def finish(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:

            def end() -> None:
                writer.hsync()
                writer.close()

            self._streams.attempt(end, "write", self._path)

    def abandon(self) -> None:
        """The NameNode closes the file when nobody has renewed its lease for a while."""
        self._writer = None

    def close(self) -> None:
        if not self.closed:
            try:
                self.finish()
            finally:
                super().close()


class HdfsReader(io.RawIOBase):
    """A seekable stream of the bytes that a file had when it was opened."""

    def __init__(self, streams: HdfsStreams, path: str) -> None:
        self._streams = streams
        self._path = path
        self._reader = streams.open(path)
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self._reader)}[whence]
        self._position = max(0, start + offset)
        return self._position

    @property
    def size_bytes(self) -> int:
        return len(self._reader)

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """These bytes; fewer only at the file's end."""
        count = min(size_bytes, len(self._reader) - offset)
        if count <= 0:
            return b""
        return self._streams.attempt(lambda: self._reader.read_range(offset, count), "read", self._path)

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]  # what BufferedReader gives
        content = self.read_at(self._position, len(buffer))
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)
