"""Waits of a copy, until the times of what it reads and of what it wrote tell versions (``ticks``)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.jobs.copy.copy_plan import CopyPlan
from gobblin_assets.jobs.copy.copyable import PackedOrigin, PlannedFile
from gobblin_assets.jobs.copy.ticks import (
    AHEAD_NS_MAX,
    PRECISION_NS_MAX,
    TICK_NS_MAX,
    is_tick_over,
    nanoseconds_of,
    tick_end,
)
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.wording import count_of

_S_NS: Final = 1_000_000_000


@dataclass(slots=True)
class _Ticks:
    """Those of a plan's files, by the clock of one moment. ``end_ns``: when all are over that somebody may wait for.

    ``fresh_count``: the files that are waited for. ``ahead``: the path of one whose clock is far ahead, of so many.
    """

    now_ns: int
    precision_ns: int
    is_far: bool
    end_ns: int = 0
    fresh_count: int = 0
    ahead: str = ""
    ahead_count: int = 0

    def look(self, file: PlannedFile) -> None:
        parts = file.conversion.parts if file.conversion is not None else ()
        origins: tuple[PlannedFile | PackedOrigin, ...] = (file, *parts)
        ends = [end for each in origins for end in self._ends_of(each)]
        if ends and max(ends) > self.now_ns:
            self.end_ns = max(self.end_ns, *ends)
            self.fresh_count += 1
        if any(self._is_ahead(each) for each in parts or (file,)):
            self.ahead = self.ahead or file.path
            self.ahead_count += 1

    def _is_ahead(self, origin: PlannedFile | PackedOrigin) -> bool:
        """A person may set a time, and nobody sets a ctime."""
        clocked_ns = origin.mtime_ns if origin.changed_ns is None else origin.changed_ns
        return clocked_ns is not None and clocked_ns > self.now_ns + AHEAD_NS_MAX

    def _ends_of(self, origin: PlannedFile | PackedOrigin) -> Iterator[int]:
        """Only the mtime is compared with that of a copy."""
        for time_ns, precision_ns in ((origin.mtime_ns, self.precision_ns), (origin.changed_ns, 1)):
            if time_ns is not None and self.now_ns - TICK_NS_MAX < time_ns <= self.now_ns + AHEAD_NS_MAX:
                yield tick_end(time_ns, precision_ns, is_far=self.is_far)


def wait_for_ticks(
    plan: CopyPlan, clock: Clock, say: Callable[[str], None], find_step: Callable[[], int]
) -> tuple[str, ...]:
    """Sleep until the times of the plan's files are over: some seconds at most, where files were written just now.

    ``find_step`` gives the destination's steps, in nanoseconds, and is asked only then. Returns what is to be noted of
    files whose clock is far ahead.
    """
    files = [file for item in plan.items for file in item.files]
    found = _look_at_all(files, plan, clock, PRECISION_NS_MAX)
    if found.fresh_count:
        found = _look_at_all(files, plan, clock, max(plan.mtime_precision_ns, find_step()))
        if found.end_ns - found.now_ns >= _S_NS:
            wait_s = (found.end_ns - found.now_ns) / _S_NS
            count = count_of(found.fresh_count, "file was", "files were")
            say(f"{count} written just now: waiting {wait_s:.1f} s, until a later version has another time")
        _sleep_until(found.end_ns, nanoseconds_of(clock.now()), clock)
    if not found.ahead_count:
        return ()
    have = count_of(found.ahead_count, "file has a time", "files have times")
    note = f"{have} ahead of this machine's clock, such as {found.ahead!a}: set the clocks, or changes may stay unseen"
    say(note)
    return (note,)


def wait_for_tick(time_ns: int, clock: Clock) -> None:
    """The same of one time that this machine's destination gave."""
    now_ns = nanoseconds_of(clock.now())
    if not is_tick_over(time_ns, now_ns, 1, is_far=False):
        _sleep_until(tick_end(time_ns), now_ns, clock)


def _sleep_until(end_ns: int, now_ns: int, clock: Clock) -> None:
    """Clocks tell microseconds: the next look shall not see the one before the end."""
    if end_ns > now_ns:
        clock.sleep((end_ns - now_ns + 1_000) / _S_NS)


def _look_at_all(files: Sequence[PlannedFile], plan: CopyPlan, clock: Clock, precision_ns: int) -> _Ticks:
    is_far = not plan.source_root.startswith("/")
    ticks = _Ticks(nanoseconds_of(clock.now()), precision_ns, is_far)
    for each in files:
        ticks.look(each)
    return ticks
