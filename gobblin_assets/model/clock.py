"""Time, sleep and ids as ports, so that a simulated world can own them.

Leases never use these clocks for truth: Postgres' clock alone decides who owns a dataset. The monotonic
clock only makes a runner stop early, before its lease can have run out.
"""

import datetime as dt
import secrets
import time
import uuid
from typing import Protocol


def utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Clock(Protocol):
    """The clock and sleep of a process."""

    def now(self) -> dt.datetime:
        """Wall time in UTC, for history, for display, and to decide which ingestion window of a log is open."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for durations and the local lease limit."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def new_id(self) -> uuid.UUID:
        """A fresh identifier, never given twice; ids sort roughly by time."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> dt.datetime:
        return utc_now()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def new_id(self) -> uuid.UUID:
        # RFC 9562 version 7: 48 bits of milliseconds, then random bits. Time-ordered ids keep the indexes dense.
        milliseconds = time.time_ns() // 1_000_000
        value = (milliseconds & (2**48 - 1)) << 80 | secrets.randbits(80)
        value = value & ~(0xF << 76) | 0x7 << 76
        value = value & ~(0x3 << 62) | 0x2 << 62
        return uuid.UUID(int=value)
