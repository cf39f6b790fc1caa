"""Refusals of what a plan can't publish: names that are too long, and one error for all paths with the same trouble."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.named_files import LimitedNames, NamedFiles, NameLimits
from gobblin_assets.model.files import FileIdentity

NAME_BYTES_MAX: Final = 255
"""Of Linux's file systems, and of HDFS where nobody changed it."""

KEY_BYTES_MAX: Final = 1_024
"""Of an object's key, without the bucket."""

WORK_BYTES: Final = 256
"""What a path in a new directory is longer by, at most, while the directory is staged in the work directory."""

_LETTER_BYTES_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class NameLengths:
    """Limits for paths below a dataset's directory, whose own path has ``base_bytes``. ``root_bytes``: of the
    destination's.
    """

    limits: NameLimits
    base_bytes: int = 0
    root_bytes: int = 0

    def find_trouble(self, path: str, below: str = "") -> str | None:
        """The part that is too long, as the rest of a sentence; None: nothing is.

        ``below``: the part of ``path`` below a new directory that is published as a whole.
        """
        name = path.rpartition("/")[2]
        if _is_over(name, 0, self.limits.name_bytes_max):
            return f"would have {len(name.encode())} bytes, and a name has {self.limits.name_bytes_max} at most"
        longest = self.limits.path_bytes_max
        if _is_over(path, self.base_bytes + 1, longest) or (below and _is_over(below, self._staged_bytes, longest)):
            return f"would lead to a path of more than the {longest:,} bytes that there may be"
        return None

    @property
    def _staged_bytes(self) -> int:
        return self.root_bytes + WORK_BYTES


ANY_LENGTH: Final = NameLengths(NameLimits(None, None))


def find_name_lengths(files: NamedFiles | None, root: str, place: str) -> NameLengths:
    """``root``: the destination's. ``place``: the dataset's directory. ``files`` None: they are in an object store."""
    if files is None:
        bucket_bytes = len(root.strip("/").partition("/")[0].encode()) + 2
        return NameLengths(NameLimits(None, KEY_BYTES_MAX), len(place.encode()) - bucket_bytes)
    limits = files.find_name_limits(root) if isinstance(files, LimitedNames) else NameLimits(NAME_BYTES_MAX, None)
    return NameLengths(limits, len(place.encode()), len(root.encode()))


def _is_over(text: str, before: int, largest: int | None) -> bool:
    """Whether so many bytes and the text are too many. Most texts need not be encoded to know that."""
    if largest is None or before + len(text) * _LETTER_BYTES_MAX <= largest:
        return False
    return before + len(text.encode()) > largest


NAMED_MAX: Final = 5
"""Paths that an error names."""

_TIMES_NS: Final = range(-(1 << 63), 1 << 63)
"""What the log can write of a file: from 1677-09-21 to 2262-04-11."""


@dataclass(slots=True)
class Refusals:
    """The troubles that are found while a plan is made; nothing has been copied then."""

    _conflicts: list[str] = field(default_factory=list)
    _owners: list[str] = field(default_factory=list)
    _unreadable: list[str] = field(default_factory=list)
    _times: dict[str, list[str]] = field(default_factory=dict)
    _lengths: dict[str, list[str]] = field(default_factory=dict)

    def add_conflict(self, text: str) -> None:
        """``text`` begins with the path."""
        self._conflicts.append(text)

    def add_owner(self, text: str) -> None:
        self._owners.append(text)

    def add_unreadable(self, text: str) -> None:
        """Add what this user would own and could not open again."""
        self._unreadable.append(text)

    def add_length(self, side: str, text: str) -> None:
        """A name or path that is too long. ``side``: the option that can mend it."""
        self._lengths.setdefault(side, []).append(text)

    def check_time(self, side: str, path: str, identity: FileIdentity) -> None:
        """``side``: ``source`` or ``destination``."""
        if identity.mtime_ns is not None and identity.mtime_ns not in _TIMES_NS:
            self._times.setdefault(side, []).append(ascii(path))

    def require_none(self) -> None:
        """RejectedError for the first kind of trouble there is."""
        if self._conflicts:
            raise RejectedError(
                f"{len(self._conflicts)} names can't be published: {_name_some(self._conflicts)}",
                field="destination",
                hint="Move what is there away, or exclude these names. Nothing was changed. By itself, a directory "
                "without files gives way, and with `deletes: ours` so do the job's own files.",
            )
        if self._owners:
            raise RejectedError(
                f"this user can't give {len(self._owners)} files and directories their owners: "
                f"{_name_some(self._owners)}",
                field="preserve",
                hint="Run as a user that may do this, or take u and g out of preserve. Nothing was copied.",
            )
        if self._unreadable:
            raise RejectedError(
                f"this user could not read {len(self._unreadable)} files and directories by the modes of their copies: "
                f"{_name_some(self._unreadable)}",
                field="preserve",
                hint="Give the owner the right to read (and to search a directory), or take p out of preserve. Nothing "
                "was copied.",
            )
        for side, found in self._times.items():
            raise RejectedError(
                f"{len(found)} files and directories have times before 1677-09-21 or after 2262-04-11: "
                f"{_name_some(found)}",
                field=side,
                hint="Give them other times, or exclude them. Nothing was copied.",
            )
        for side, found in self._lengths.items():
            raise RejectedError(
                f"{len(found)} names are too long for the destination: {_name_some(found)}",
                field=side,
                hint="Shorten them, or exclude them. Nothing was copied.",
            )


def _name_some(found: Sequence[str]) -> str:
    more = len(found) - NAMED_MAX
    return "; ".join(found[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
