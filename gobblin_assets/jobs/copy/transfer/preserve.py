"""Which attributes of a source a copy keeps: Gobblin's PreserveAttributes, as the letters ``rbugpvatx``."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import TreeEntry
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
_OF_OWNERS: Final = (PreserveLetter.OWNER, PreserveLetter.GROUP)
_OF_THE_SYSTEM: Final = (PreserveLetter.ACCESS_LISTS, PreserveLetter.EXTENDED)


@dataclass(frozen=True, slots=True)
class Preserve:
    """The attributes to keep. ``without_effect``: those among them that a POSIX file system has no meaning for."""

    letters: frozenset[PreserveLetter] = frozenset()

    @property
    def without_effect(self) -> tuple[PreserveLetter, ...]:
        return tuple(letter for letter in _UNKNOWN_TO_POSIX if letter in self.letters)

    def list_unread(self, *, has_owners: bool) -> tuple[PreserveLetter, ...]:
        """Those that somebody asked for, and that files which are read by ranges don't have.

        The permission is not among them: the default asks for it.
        """
        unread = _OF_THE_SYSTEM if has_owners else (*_OF_OWNERS, *_OF_THE_SYSTEM)
        return tuple(letter for letter in unread if letter in self.letters)

    def without_owners(self) -> "Preserve":
        """What a file system keeps that has names of owners, and no numbers."""
        return Preserve(self.letters - frozenset((*_OF_OWNERS, *_OF_THE_SYSTEM)))

    def attributes_of(self, origin: TreeEntry) -> Attributes:
        """What the copy of ``origin`` gets. Access lists and extended attributes are read while the file is copied."""
        kept = self.letters
        desired = Attributes(
            mode=origin.mode if PreserveLetter.PERMISSION in kept else None,
            owner=origin.owner if PreserveLetter.OWNER in kept else None,
            group=origin.group if PreserveLetter.GROUP in kept else None,
            mtime_ns=origin.identity.mtime_ns if PreserveLetter.MODIFICATION_TIME in kept else None,
        )
        return desired if not isinstance(origin, ConvertedEntry) else origin.chosen.over(desired)


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
