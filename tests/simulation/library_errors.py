"""What libraries raise, of no family of errors."""

import errno
from collections.abc import Callable, Sequence
from typing import Final

import psycopg
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from sqlalchemy.exc import ProgrammingError

LIBRARY_ERRORS: Final[Sequence[Callable[[], Exception]]] = (
    lambda: ValueError("not enough values to unpack"),
    lambda: OSError(errno.EIO, "Input/output error"),
    MemoryError,
    lambda: KeyError("oid"),
    lambda: pa.ArrowInvalid("CSV parse error"),
    lambda: ProgrammingError("SELECT 1", {}, Exception("relation does not exist")),
    lambda: psycopg.errors.LockNotAvailable("canceling statement due to lock timeout"),
    lambda: KafkaException(KafkaError(KafkaError.UNKNOWN)),
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    lambda: OverflowError("date value out of range"),
    lambda: RuntimeError("dictionary changed size during iteration"),
    lambda: TimeoutError("timed out"),
)
