"""Sameness of a file at both sides: by length and time, or by checksum, and by its attributes. Pure.

Once the tick of a time is over, the time tells its file's version. Git calls younger files racy. A clock keeps times in
steps, and so does a file system. A file that is written again within the step of its time keeps its time. A version is
known by its time only if it was read after that step: whoever writes later than that gives the file another time. So no
copy begins to read before the ticks of its files are over, and none takes two files for the same while the tick of
their time lasts. The step of a time is told by the time itself: a whole second may be one of many within it.
"""

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gobblin_assets.fs.tree import Placement, TreeEntry
from gobblin_assets.jobs.copy.copyable import Attributes, ConvertedEntry

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

_US_NS: Final = 1_000
_MS_NS: Final = 1_000_000
_UNITS: Final = (
    ("d", 86_400 * _S_NS),
    ("h", 3_600 * _S_NS),
    ("min", 60 * _S_NS),
    ("s", _S_NS),
    ("ms", _MS_NS),
    ("µs", _US_NS),
)


def nanoseconds_of(moment: dt.datetime) -> int:
    """The nanoseconds since 1970."""
    return (moment - _EPOCH) // dt.timedelta(microseconds=1) * 1_000


def tick_end(time_ns: int, precision_ns: int = 1, *, is_far: bool = False) -> int:
    """The moment from which on whoever writes the file gives it another time than ``time_ns``.

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


class SameRule(StrEnum):
    """The rule that tells whether a file needs no copy. NEVER: every file is copied each time."""

    MTIME = "mtime"
    CHECKSUM = "checksum"
    NEVER = "never"


class Likeness(StrEnum):
    """The likeness of two files of one path."""

    SAME = "same"
    CONTENT_DIFFERS = "content_differs"
    ATTRIBUTES_DIFFER = "attributes_differ"


@dataclass(frozen=True, slots=True)
class Sameness:
    """The way in which two files are compared.

    ``mtime_precision_ns``: the coarser one of both sides. Times that differ by less are the same, whether a file system
    rounds or cuts off. ``checksums_agree`` is asked by the rule CHECKSUM, for files of one length. ``desired`` gives
    the attributes that the destination's file shall have; those that are None are not compared. None: no attributes are
    compared. ``extended_changes`` says which of the attributes that listings lack differ, and is asked last.
    ``now_ns``: when the source was looked at, at the earliest; None: long after all of its times. ``is_far``: another
    machine keeps them.
    """

    rule: SameRule = SameRule.MTIME
    mtime_precision_ns: int = 1
    checksums_agree: Callable[[TreeEntry, TreeEntry], bool] | None = None
    desired: Callable[[TreeEntry], Attributes] | None = None
    extended_changes: Callable[[TreeEntry, TreeEntry], str] | None = None
    now_ns: int | None = None
    is_far: bool = False

    def __post_init__(self) -> None:
        if self.rule is SameRule.CHECKSUM and self.checksums_agree is None:
            raise ValueError("the rule checksum needs checksums_agree")

    def is_over(self, mtime_ns: int, now_ns: int) -> bool:
        """Whether the time told the version of a source's file."""
        return is_tick_over(mtime_ns, now_ns, self.mtime_precision_ns, is_far=self.is_far)


def compare_files(source: TreeEntry, destination: TreeEntry, sameness: Sameness) -> tuple[Likeness, str]:
    """The likeness of two files of one path, and why, as the rest of a sentence about the source's file.

    The length of a file that is converted is not known, and not compared.
    """
    mine, theirs = source.identity, destination.identity
    has_length = not isinstance(source, ConvertedEntry) or source.has_length
    if has_length and mine.size_bytes != theirs.size_bytes:
        return Likeness.CONTENT_DIFFERS, f"length {theirs.size_bytes} became {mine.size_bytes}"
    match sameness.rule:
        case SameRule.NEVER:
            return Likeness.CONTENT_DIFFERS, "is copied always"
        case SameRule.CHECKSUM:
            if sameness.checksums_agree is None or not sameness.checksums_agree(source, destination):
                return Likeness.CONTENT_DIFFERS, "checksum differs"
            same = "length and checksum are the same"
        case SameRule.MTIME:
            if why := _compare_times(mine.mtime_ns, theirs.mtime_ns, sameness):
                return Likeness.CONTENT_DIFFERS, why
            same = "length and modification time are the same" if has_length else "modification time is the same"
    if sameness.desired is not None:
        wanted = sameness.desired(source)
        changes = ", ".join(_attribute_changes(wanted, destination, sameness.mtime_precision_ns))
        if not changes and sameness.extended_changes is not None:
            changes = sameness.extended_changes(source, destination)
        if changes:
            return Likeness.ATTRIBUTES_DIFFER, changes
    return Likeness.SAME, same


def _compare_times(mine_ns: int | None, theirs_ns: int | None, sameness: Sameness) -> str:
    """The reason to take both times for those of two versions, or for no proof; empty if they are of one."""
    if mine_ns is None or theirs_ns is None:
        side = "source" if mine_ns is None else "destination"
        return f"the {side} keeps no modification time to compare"
    apart_ns = mine_ns - theirs_ns
    if apart_ns >= sameness.mtime_precision_ns:
        return f"is newer by {spell_nanoseconds(apart_ns)}"
    if -apart_ns >= sameness.mtime_precision_ns:
        return f"the destination's is newer by {spell_nanoseconds(-apart_ns)}: both sides shall be equal"
    now_ns = sameness.now_ns
    if now_ns is not None and mine_ns > now_ns - TICK_NS_MAX and not sameness.is_over(mine_ns, now_ns):
        return "was written just now, and may be another version of the same time"
    return ""


def spell_nanoseconds(span_ns: int) -> str:
    """Such as ``3 s`` or ``1.5 s``; rounded down, to tenths below ten."""
    unit, unit_ns = next(((name, size_ns) for name, size_ns in _UNITS if span_ns >= size_ns), ("ns", 1))
    tenths = span_ns * 10 // unit_ns
    if tenths > 99 or tenths % 10 == 0:
        return f"{tenths // 10} {unit}"
    return f"{tenths // 10}.{tenths % 10} {unit}"


def _attribute_changes(wanted: Attributes, found: TreeEntry, mtime_precision_ns: int) -> Iterator[str]:
    if wanted.mode is not None and found.mode is not None and wanted.mode != found.mode:
        yield f"mode {found.mode:04o} became {wanted.mode:04o}"
    if wanted.owner is not None and found.owner is not None and wanted.owner != found.owner:
        yield f"owner {found.owner} became {wanted.owner}"
    if wanted.group is not None and found.group is not None and wanted.group != found.group:
        yield f"group {found.group} became {wanted.group}"
    if wanted.placement is not None and found.placement is not None:
        yield from _placement_changes(wanted.placement, found.placement)
    if wanted.mtime_ns is not None and found.identity.mtime_ns is not None:
        apart_ns = abs(wanted.mtime_ns - found.identity.mtime_ns)
        if apart_ns >= mtime_precision_ns:
            yield f"modification time differs by {spell_nanoseconds(apart_ns)}"


def _placement_changes(wanted: Placement, found: Placement) -> Iterator[str]:
    names = {"owner": "owner", "group": "group", "replication": "replication", "block_bytes": "block size"}
    for field, name in names.items():
        new, old = getattr(wanted, field), getattr(found, field)
        if new is not None and new != old:
            yield f"{name} {old} became {new}"
