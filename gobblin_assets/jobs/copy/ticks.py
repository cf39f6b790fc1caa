"""Ticks of clocks: once a tick is over, the times of files tell their versions. Git calls younger files racy.

A clock keeps times in steps, and so does a file system. Who writes a file again within the step of its time leaves the
time as it was. A version is known by its time only if it was read after that step: whoever writes later than that gives
the file another time. So no copy begins to read before the ticks of its files are over, and none takes two files for
the same while the tick of their time lasts. The step of a time is told by the time itself: a whole second may be one of
many within it. Pure.
"""

import datetime as dt
from typing import Final

_S_NS: Final = 1_000_000_000

CLOCK_STEP_NS: Final = 10_000_000
"""Of the kernel's clock for files, where it has the fewest: a hundred steps a second."""

CLOCKS_APART_NS: Final = 100_000_000
"""How far a server's clock may be behind this machine's."""

AHEAD_NS_MAX: Final = 5 * _S_NS
"""A time that lies further ahead was set by somebody, or by a clock that is wrong: nobody waits for it."""

PRECISION_NS_MAX: Final = 2 * _S_NS
"""Of FAT."""

TICK_NS_MAX: Final = _S_NS + 2 * PRECISION_NS_MAX + CLOCKS_APART_NS
"""No tick is longer."""

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def nanoseconds_of(moment: dt.datetime) -> int:
    """Since 1970."""
    return (moment - _EPOCH) // dt.timedelta(microseconds=1) * 1_000


def tick_end(time_ns: int, precision_ns: int = 1, *, is_far: bool = False) -> int:
    """From this moment on, whoever writes the file gives it another time than ``time_ns``.

    ``precision_ns``: steps in which times are compared. A copy may have a time that is rounded to them. ``is_far``:
    another machine keeps the time, as any that has whole seconds may.
    """
    step_ns = _step_of(time_ns)
    apart_ns = CLOCKS_APART_NS if is_far or step_ns > CLOCK_STEP_NS else 0
    is_rounded = precision_ns <= CLOCK_STEP_NS or time_ns % precision_ns
    return time_ns + step_ns + apart_ns + (2 * precision_ns if is_rounded else 0)


def is_tick_over(time_ns: int, now_ns: int, precision_ns: int, *, is_far: bool) -> bool:
    """Whether the time told the file's version at ``now_ns``. A time that lies far ahead does."""
    if time_ns <= now_ns - TICK_NS_MAX or time_ns > now_ns + AHEAD_NS_MAX:
        return True
    return tick_end(time_ns, precision_ns, is_far=is_far) <= now_ns


def _step_of(time_ns: int) -> int:
    if time_ns % _S_NS:
        return CLOCK_STEP_NS
    return _S_NS if time_ns % (2 * _S_NS) else 2 * _S_NS
