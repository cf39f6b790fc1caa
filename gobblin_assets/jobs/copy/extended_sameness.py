"""Whether a copy still has the access list and the extended attributes of its source: listings don't show them."""

from collections.abc import Callable
from dataclasses import dataclass

from gobblin_assets.fs.posix_errors import translate_error
from gobblin_assets.fs.ranged import RangedFiles
from gobblin_assets.fs.tree import Tree, TreeEntry
from gobblin_assets.jobs.copy.copyable import ConvertedEntry
from gobblin_assets.jobs.copy.transfer.attributes import ACCESS_LISTS, read_extended
from gobblin_assets.jobs.copy.transfer.preserve import Preserve, PreserveLetter


def find_extended_changes(
    source: Tree, source_root: str, target_root: str, preserve: Preserve
) -> Callable[[TreeEntry, TreeEntry], str] | None:
    """For ``Sameness``, of a destination on this machine; None if none is kept, or the source is elsewhere."""
    access_lists = PreserveLetter.ACCESS_LISTS in preserve.letters
    extended = PreserveLetter.EXTENDED in preserve.letters
    if isinstance(source, RangedFiles) or not (access_lists or extended):
        return None
    return _Extended(source_root, target_root, access_lists, extended).describe_changes


@dataclass(frozen=True, slots=True)
class _Extended:
    """Both roots are full paths. ``access_lists``, ``extended``: what is compared."""

    source_root: str
    target_root: str
    access_lists: bool
    extended: bool

    def describe_changes(self, source: TreeEntry, target: TreeEntry) -> str:
        """The names of those that differ; empty if none does.

        An access list that the copy alone has is not counted: it may have it by the default of its directory, and a
        further copy would get it again.
        """
        origin = source.origin if isinstance(source, ConvertedEntry) else source
        wanted = self._read(f"{self.source_root}/{origin.path}")
        found = self._read(f"{self.target_root}/{target.path}")
        differ = {name for name, _value in wanted.items() ^ found.items()}
        differ -= {name for name in ACCESS_LISTS if name not in wanted}
        return f"{', '.join(sorted(differ))} changed" if differ else ""

    def _read(self, path: str) -> dict[str, bytes]:
        try:
            return dict(read_extended(path, access_lists=self.access_lists, extended=self.extended))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise translate_error(error, action="read the attributes of", path=path, changes=False) from error
