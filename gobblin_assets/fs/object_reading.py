"""Streams over the bytes of one version of an object."""

import io
from typing import Final

from gobblin_assets.fs.objects import ObjectEntry, ObjectFiles


class ObjectStream(io.RawIOBase):
    """Seekable, and read by ranges. To be buffered: each read is a request."""

    BUFFER_BYTES: Final = 1 << 20
    READ_BYTES: Final = 8 << 20
    """Of one request, where all is read."""

    def __init__(self, files: ObjectFiles, entry: ObjectEntry) -> None:
        super().__init__()
        self._files = files
        self._entry = entry
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._entry.size_bytes}[whence]
        self._position = max(0, begin + offset)
        return self._position

    def readall(self) -> bytes:
        """By requests of bounded size; the default would make one for each 8 KiB."""
        parts = []
        while (left := self._entry.size_bytes - self._position) > 0:
            parts.append(self.read(min(left, self.READ_BYTES)))
        return b"".join(parts)

    def readinto(self, buffer: "memoryview[int]") -> int:  # type: ignore[override]  # a buffer is whatever has bytes
        count = min(len(buffer), self._entry.size_bytes - self._position)
        if count <= 0:
            return 0
        entry = self._entry
        buffer[:count] = memoryview(self._files.read_range(entry.path, entry.etag, self._position, count))
        self._position += count
        return count
