"""How long names and paths may be at a destination: known before anything is copied."""

from dataclasses import dataclass
from typing import Final

from gobblin_assets.fs.named_files import LimitedNames, NamedFiles, NameLimits

NAME_BYTES_MAX: Final = 255
"""Of Linux's file systems, and of HDFS where nobody changed it."""

KEY_BYTES_MAX: Final = 1_024
"""Of an object's key, without the bucket."""

WORK_BYTES: Final = 256
"""What a path in a new directory is longer by, at most, while the directory is staged in the work directory."""

_LETTER_BYTES_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class NameLengths:
    """Of paths below a dataset's directory, whose own path has ``base_bytes``. ``root_bytes``: of the destination's."""

    limits: NameLimits
    base_bytes: int = 0
    root_bytes: int = 0

    def find_trouble(self, path: str, below: str = "") -> str | None:
        """What is too long, as the rest of a sentence; None: nothing is.

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
