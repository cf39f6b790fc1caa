"""A copying process: takes bins from its standard input, copies them one by one, and reports to its standard output.

    python -c "…; serve()"     as ``crews`` starts it

It ends when its input ends. The driver's end of the input closes with the driver, however that dies, so that this
process does not outlive it, not even in the middle of a large file. A message is a length, then what ``marshal`` makes
of plain values: both ends are one interpreter of one version.
"""

import gc
import marshal
import os
import signal
import struct
import threading
from queue import SimpleQueue
from typing import Any, Final

from gobblin_assets.jobs.copy.transfer.pacing import copy_at_rate
from gobblin_assets.jobs.copy.transfer.writing import BatchingSink, BinWork, RowBatch

HEADER: Final = struct.Struct("<I")


class MessageBuffer:
    """A buffer that takes bytes as they come, and gives whole messages."""

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


_INPUT: Final = 0
_OUTPUT: Final = 1
_ERRORS: Final = 2
_READ_BYTES: Final = 1 << 20
# Rows and plans are freed by counting; looking for cycles among them is a tenth of the work on small files.
_OBJECTS_BEFORE_COLLECTION: Final = 100_000


def serve() -> None:
    # Ctrl-C goes to all processes of the terminal; the driver decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    results = os.dup(_OUTPUT)
    os.dup2(_ERRORS, _OUTPUT)
    orders: SimpleQueue[tuple[int, BinWork]] = SimpleQueue()
    threading.Thread(target=_take_orders, args=(orders,), daemon=True).start()

    def send(batch: RowBatch) -> None:
        send_message(results, batch.pack())

    while True:
        number, work = orders.get()
        sink = BatchingSink(number, send)
        copy_at_rate(work, sink)
        sink.finish()


def _take_orders(orders: "SimpleQueue[tuple[int, BinWork]]") -> None:
    buffer = MessageBuffer()
    while content := os.read(_INPUT, _READ_BYTES):
        for message in buffer.add(content):
            number, packed = message
            orders.put((number, BinWork(*packed)))
    # At once, and not after the file that is being copied.
    os._exit(0)
