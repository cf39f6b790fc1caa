"""Sameness of a file at both sides: by length and time, or by checksum, and by its attributes. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gobblin_assets.fs.tree import Placement, TreeEntry
from gobblin_assets.jobs.copy.copyable import Attributes, ConvertedEntry
from gobblin_assets.jobs.copy.ticks import TICK_NS_MAX, is_tick_over

_US_NS: Final = 1_000
_MS_NS: Final = 1_000_000
_S_NS: Final = 1_000_000_000
_UNITS: Final = (
    ("d", 86_400 * _S_NS),
    ("h", 3_600 * _S_NS),
    ("min", 60 * _S_NS),
    ("s", _S_NS),
    ("ms", _MS_NS),
    ("µs", _US_NS),
)


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
    """How alike two files of one path are, and why, as the rest of a sentence about the source's file.

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
    """What shows that they are of two versions, or tells nothing; empty if they are of one."""
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
