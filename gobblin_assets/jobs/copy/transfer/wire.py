"""Messages between the driver and its copying processes: a length, then what ``marshal`` makes of plain values.

Both ends are one interpreter of one version.
"""

import marshal
import os
import struct
from typing import Any, Final

HEADER: Final = struct.Struct("<I")


class MessageBuffer:
    """Takes bytes as they come, and gives whole messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, content: bytes) -> list[Any]:
        self._bytes += content
        messages, begin = [], 0
        while len(self._bytes) - begin >= HEADER.size:
            (length,) = HEADER.unpack_from(self._bytes, begin)
            end = begin + HEADER.size + length
            if len(self._bytes) < end:
                break
            messages.append(marshal.loads(self._bytes[begin + HEADER.size : end]))  # noqa: S302  our own process wrote it
            begin = end
        del self._bytes[:begin]
        return messages


def send_message(descriptor: int, message: Any) -> None:
    """Write it whole; this waits until the other end takes it."""
    content = marshal.dumps(message)
    rest = memoryview(HEADER.pack(len(content)) + content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
