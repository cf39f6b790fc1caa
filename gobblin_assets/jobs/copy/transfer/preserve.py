"""Preserved attributes of a source: Gobblin's PreserveAttributes, as the letters ``rbugpvatx``."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import AS_GIVEN, EntryKind, Placement, TreeEntry, make_placement
from gobblin_assets.jobs.copy.copyable import Attributes, ConvertedEntry


class PreserveLetter(StrEnum):
    """One attribute of a file; the value is its letter."""

    REPLICATION = "r"
    BLOCK_SIZE = "b"
    OWNER = "u"
    GROUP = "g"
    PERMISSION = "p"
    VERSION = "v"
    ACCESS_LISTS = "a"
    MODIFICATION_TIME = "t"
    EXTENDED = "x"


_UNKNOWN_TO_POSIX: Final = (PreserveLetter.REPLICATION, PreserveLetter.BLOCK_SIZE, PreserveLetter.VERSION)
_OF_BLOCKS: Final = (PreserveLetter.REPLICATION, PreserveLetter.BLOCK_SIZE)
_OF_OWNERS: Final = (PreserveLetter.OWNER, PreserveLetter.GROUP)
_OF_THE_SYSTEM: Final = (PreserveLetter.ACCESS_LISTS, PreserveLetter.EXTENDED)


@dataclass(frozen=True, slots=True)
class Preserve:
    """The attributes to keep. ``without_effect``: those among them that the destination has no meaning for.

    ``takes_placements``: whether the destination has owners by name, and blocks. ``chosen``: the placement that each
    file gets whatever its origin has.
    """

    letters: frozenset[PreserveLetter] = frozenset()
    takes_placements: bool = False
    chosen: Placement = AS_GIVEN

    @property
    def without_effect(self) -> tuple[PreserveLetter, ...]:
        unknown = (PreserveLetter.VERSION,) if self.takes_placements else _UNKNOWN_TO_POSIX
        return tuple(letter for letter in unknown if letter in self.letters)

    def list_unread(self, *, is_local: bool, has_owners: bool, has_placements: bool) -> tuple[PreserveLetter, ...]:
        """The letters that somebody asked for, and that the source doesn't have.

        ``is_local``: it is read by the operating system's calls. ``has_owners``: as numbers. ``has_placements``: and
        what belongs to them. The permission is not among the letters: the default asks for it.
        """
        if self.takes_placements:
            unread = () if has_placements else _OF_BLOCKS
        else:
            unread = (*(() if has_owners else _OF_OWNERS), *(() if is_local else _OF_THE_SYSTEM))
        return tuple(letter for letter in unread if letter in self.letters)

    def by_names(self, chosen: Placement, *, are_told: bool) -> "Preserve":
        """The attributes that a file system keeps that has owners by name only. ``are_told``: by the source, too."""
        dropped = _OF_THE_SYSTEM if are_told else (*_OF_OWNERS, *_OF_THE_SYSTEM)
        return Preserve(self.letters - frozenset(dropped), takes_placements=True, chosen=chosen)

    def attributes_of(self, origin: TreeEntry) -> Attributes:
        """The attributes of the copy of ``origin``.

        Access lists and extended ones are read while the file is copied.
        """
        kept = self.letters
        desired = Attributes(
            mode=origin.mode if PreserveLetter.PERMISSION in kept else None,
            owner=origin.owner if PreserveLetter.OWNER in kept else None,
            group=origin.group if PreserveLetter.GROUP in kept else None,
            mtime_ns=origin.identity.mtime_ns if PreserveLetter.MODIFICATION_TIME in kept else None,
            placement=self._place(origin) if self.takes_placements else None,
        )
        return desired if not isinstance(origin, ConvertedEntry) else origin.chosen.over(desired)

    def _place(self, origin: TreeEntry) -> Placement | None:
        found, kept = origin.placement or AS_GIVEN, self.letters
        told = make_placement(
            found.owner if PreserveLetter.OWNER in kept else None,
            found.group if PreserveLetter.GROUP in kept else None,
            found.replication if PreserveLetter.REPLICATION in kept else None,
            found.block_bytes if PreserveLetter.BLOCK_SIZE in kept else None,
        )
        placement = self.chosen.over(told) if origin.kind is EntryKind.FILE else told
        return None if placement == AS_GIVEN else placement


NOTHING_PRESERVED: Final = Preserve()


def parse_preserve(text: str) -> Preserve:
    """Letters in any order and case, as Gobblin takes them; an empty text keeps nothing.

    RejectedError names ``preserve`` and the letters that mean nothing.
    """
    known = "".join(PreserveLetter)
    unknown = sorted({letter for letter in text if letter.lower() not in known})
    if unknown:
        raise RejectedError(
            f"expected letters of {known!r}, found {''.join(unknown)!r}",
            field="preserve",
            hint="Take out what is not one of: "
            + ", ".join(f"{each.value} ({each.name.lower().replace('_', ' ')})" for each in PreserveLetter)
            + ".",
        )
    return Preserve(frozenset(PreserveLetter(letter) for letter in text.lower()))
