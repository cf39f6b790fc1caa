"""The finder that takes a manifest's word for what is copied, and the listing of exactly that."""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.tree import EntryKind, Tree, TreeEntry
from gobblin_assets.jobs.copy.datasets import CopyableDataset
from gobblin_assets.jobs.copy.finders import read_finder_options
from gobblin_assets.jobs.copy.manifest_lines import parse_manifest
from gobblin_assets.spec.spec_model import SpecModel

_OPTION: Final = "finder.path"
_SHOWN_MAX: Final = 5


class ManifestFinderOptions(SpecModel):
    """``path``: the manifest, an absolute path of the machine that plans; ``manifest_lines`` describes its lines.

    ``name``: the dataset's; without it, the manifest's without its ending.
    """

    path: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ManifestDatasetFinder:
    """One dataset, whose file sets have the manifest's files alone. The manifest is read at each search."""

    path: Path
    name: str

    def find_datasets(self, tree: Tree, root: str, now: dt.datetime) -> Sequence[CopyableDataset]:  # noqa: ARG002  a manifest says it all
        try:
            with self.path.open("rb") as lines:
                file_sets = parse_manifest(lines, name=self.path.name)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
            raise RejectedError(
                f"can't read the manifest {self.path}: {error.strerror}", field=_OPTION, hint="Correct the path."
            ) from error
        except OSError as error:
            raise RetryableError(f"can't read the manifest {self.path}: {error.strerror}") from error
        return [CopyableDataset(self.name, "", "", file_sets)]


def open_manifest_finder(options: Mapping[str, object]) -> ManifestDatasetFinder:
    """The finder of the kind ``manifest``. RejectedError names the option."""
    read = read_finder_options(ManifestFinderOptions, options)
    path = Path(read.path)
    if not path.is_absolute() or "\0" in read.path:
        raise RejectedError(
            f"expected an absolute path, found {read.path!a}", field=_OPTION, hint="Write it from / on."
        )
    return ManifestDatasetFinder(path, read.name or path.stem)


def list_named(tree: Tree, root: str, paths: Iterable[str], *, required: bool) -> Iterator[TreeEntry]:
    """The entries of these paths, and the directories on the way to them, in the order of listings.

    ``required``, for sources: RejectedError at the end if there is none of some name. A path that is a directory's is
    always a RejectedError.
    """
    wanted = set(paths)
    on_the_way = {path[:place] for path in wanted for place, letter in enumerate(path) if letter == "/"}
    missing = set(wanted) if required else set()
    for entry in tree.list_tree(root, on_the_way.__contains__):
        if entry.kind is EntryKind.DIRECTORY and entry.path in wanted:
            raise RejectedError(
                f"{entry.path!a} is a directory, and a manifest names files",
                field=_OPTION,
                hint="Name the files that are below it.",
            )
        if entry.path in wanted or (entry.kind is EntryKind.DIRECTORY and entry.path in on_the_way):
            missing.discard(entry.path)
            yield entry
    if missing:
        shown = ", ".join(map(ascii, sorted(missing)[:_SHOWN_MAX]))
        raise RejectedError(
            f"the manifest names {len(missing):,} files that {root} lacks, such as {shown}",
            field=_OPTION,
            hint="Make a manifest of what is there; only files with delete may be missing.",
        )
