"""A directory tree as a destination: files are published at the names that the source gives them.

Other jobs' trees must lie apart, because two publications would move each other's files: ``tree_claim`` sees to that.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gobblin_assets.commit.attempts import SLOTS
from gobblin_assets.commit.steps import StepBatch, StepColumns
from gobblin_assets.destinations.claims import find_claim, refuse_rows, refuse_tree, work_root_of
from gobblin_assets.destinations.files.rooted import refuse_links
from gobblin_assets.destinations.fixed_names.given_names import GivenNames
from gobblin_assets.destinations.fixed_names.named_clearing_steps import ClearDirectory
from gobblin_assets.destinations.fixed_names.named_codecs import CLEAR_FILE, PLACE_FILE, REMOVE_FILE, REPLACE_FILE
from gobblin_assets.destinations.fixed_names.named_columns import (
    METADATA,
    PlaceColumns,
    columns_of_placed,
    columns_of_removed,
    columns_of_replaced,
    flags_of_replacement,
)
from gobblin_assets.destinations.fixed_names.named_directory_steps import EnsureDirectory, PlaceDirectory
from gobblin_assets.destinations.fixed_names.named_mode_steps import NO_PLACE, CloseDirectory, OpenDirectory
from gobblin_assets.destinations.fixed_names.named_outputs import (
    ClosedDirectory,
    DirectoryAtName,
    DirectoryToClear,
    FilesAtNames,
    FilesToRemove,
    NamedOutput,
    ParentDirectory,
    published_place,
)
from gobblin_assets.destinations.fixed_names.named_steps import Phase
from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.fs.named_files import require_named_files
from gobblin_assets.fs.tree import EntryKind
from gobblin_assets.model.path_names import list_upwards
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.destination import Target
from gobblin_assets.run.job_kind import Output


@dataclass(slots=True)
class NamedTree(GivenNames):
    """``Destination`` of a tree at ``root`` of ``fs``.

    ``reuse_s``: how long what failed attempts wrote is kept; 0: nothing of it is used again.
    """

    reuse_s: float = 0.0
    _exchanges: bool = field(default=False, init=False)

    @property
    def reuse_keep_s(self) -> float | None:
        return self.reuse_s or None

    def bind(self) -> None:
        files = require_named_files(self.fs)
        super(NamedTree, self).bind()
        self._exchanges = files.can_exchange(work_root_of(self.root))

    def refuse_strangers(self, urn: DatasetUrn) -> None:
        """No link may redirect what is published, on the way from the root to the dataset's directory, and no other
        job may publish below a directory on this way.
        """
        refuse_links(self._work, urn)
        files = require_named_files(self.fs)
        for place in reversed(list_upwards([self.place_of(urn)], self.root)[:-1]):
            entry = files.find_entry(place)
            if entry is not None and entry.kind is not EntryKind.DIRECTORY:
                raise RejectedError(
                    f"{place} is a {entry.kind.value}, and a directory of {urn} is to be there",
                    field="destination",
                    hint="Move it away, or choose another destination.",
                    path=place,
                )
            holder = find_claim(files, place)
            if holder is not None:
                raise refuse_tree(self.place_of(urn), place, holder)
            if place != self.place_of(urn):
                refuse_rows(files, self.place_of(urn), place)

    def make_durable(self, staged: Mapping[str, Sequence[Output]]) -> None:
        """The worker made each attempt's tree durable while it wrote; the names of the attempts are left."""
        self.fs.sync_directories(list_upwards(staged, work_root_of(self.root)))

    def steps_for(self, outputs: Sequence[Output], target: Target) -> Iterator[StepBatch]:
        root = self.place_of(target.urn)
        for output in outputs:
            for each in _details_of(output):
                yield from self._steps_of(each, output.path, root)

    def _steps_of(self, output: NamedOutput, staging: str, root: str) -> Iterator[StepBatch]:
        match output:
            case FilesAtNames():
                yield self._publish_files(output, staging, root)
            case FilesToRemove():
                yield _remove_files(output, staging, root)
            case DirectoryAtName():
                place, number = published_place(root, output.path), str(output.number)
                staged = (output.writer, output.inode, output.files, output.is_metadata)
                yield PlaceDirectory(staging, place, number, *staged)
            case ParentDirectory():
                yield EnsureDirectory(staging, published_place(root, output.path), str(output.number))
            case DirectoryToClear():
                yield ClearDirectory(staging, published_place(root, output.path), str(output.number))
            case ClosedDirectory():
                known = (published_place(root, output.path), NO_PLACE, output.mode, output.inode)
                yield OpenDirectory(staging, *known)
                yield CloseDirectory(staging, *known)
            case _:
                raise CorruptionError(f"{output} is no output for a given name")

    def _publish_files(self, output: FilesAtNames, staging: str, root: str) -> StepBatch:
        directories = {writer: f"{staging}/{writer}" for writer in dict.fromkeys(output.writers)}
        places = _places_of(output.numbers, output.paths, [directories[each] for each in output.writers], root)
        if output.replaces is None:
            flags = [METADATA if output.is_metadata else None] * len(output.paths)
            phase = Phase.METADATA if output.is_metadata else Phase.NEW
            return StepColumns(PLACE_FILE, phase, columns_of_placed(places, output.identities, flags=flags))
        way = flags_of_replacement(exchanges=self._exchanges, is_metadata=output.is_metadata)
        ways = [way] * len(output.paths)
        phase = Phase.METADATA if output.is_metadata else Phase.REPLACEMENTS
        columns = columns_of_replaced(places, output.identities, output.replaces, flags=ways)
        return StepColumns(REPLACE_FILE, phase, columns)


def _remove_files(output: FilesToRemove, staging: str, root: str) -> StepBatch:
    slots = [f"{staging}/{SLOTS}"] * len(output.paths)
    columns = columns_of_removed(_places_of(output.numbers, output.paths, slots, root), output.identities)
    if output.make_way:
        return StepColumns(CLEAR_FILE, Phase.CLEARED_FILES, columns)
    return StepColumns(REMOVE_FILE, Phase.REMOVALS, columns)


def _details_of(output: Output) -> Iterable[NamedOutput]:
    found: Iterable[NamedOutput] = output.details
    return found


def _places_of(numbers: Sequence[int], paths: Sequence[str], directories: Sequence[str], root: str) -> PlaceColumns:
    """``directories``: of the files' places in the attempt."""
    split = [path.rpartition("/") for path in paths]
    above = {directory: published_place(root, directory) for directory in {directory for directory, _, _ in split}}
    return PlaceColumns(
        directories,
        [str(number) for number in numbers],
        [above[directory] for directory, _, _ in split],
        [name for _, _, name in split],
    )
