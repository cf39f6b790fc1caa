"""Destinations of copies, at names that the source gives: directory trees, and prefixes of object stores.

The work directory ``<root>/.gobblin`` holds all that is not the tree's own: the identity of the destination, markers,
attempts, the claim (``claims``), and in a store the copies of replaced objects. It is the root that the log knows.
Other jobs' trees must lie apart, because two publications would move each other's files: claims see to that.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gobblin_assets.commit.attempts import SLOTS
from gobblin_assets.commit.steps import CommitStep, StepBatch, StepColumns
from gobblin_assets.destinations.claims import TreeClaim, find_claim, refuse_rows, refuse_tree, sync_claim, work_root_of
from gobblin_assets.destinations.files.rooted import RequestedDestination, RootedDestination, refuse_links
from gobblin_assets.destinations.fixed_names.named_codecs import (
    CLEAR_FILE,
    METADATA,
    PLACE_FILE,
    REMOVE_FILE,
    REPLACE_FILE,
    PlaceColumns,
    columns_of_placed,
    columns_of_removed,
    columns_of_replaced,
    flags_of_replacement,
)
from gobblin_assets.destinations.fixed_names.named_directory_steps import (
    NO_PLACE,
    ClearDirectory,
    CloseDirectory,
    EnsureDirectory,
    OpenDirectory,
    PlaceDirectory,
)
from gobblin_assets.destinations.fixed_names.named_outputs import (
    ClosedDirectory,
    DirectoryAtName,
    DirectoryToClear,
    FilesAtNames,
    FilesToRemove,
    NamedObject,
    NamedOutput,
    ObjectAtName,
    ParentDirectory,
    published_place,
)
from gobblin_assets.destinations.fixed_names.named_steps import Phase
from gobblin_assets.destinations.fixed_names.object_steps import PlaceObject, RemoveObject, ReplaceObject
from gobblin_assets.errors import CorruptionError, GobblinError, RejectedError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.named_files import require_named_files
from gobblin_assets.fs.object_work import for_given_names
from gobblin_assets.fs.objects import HoldsObjects, expected_etag
from gobblin_assets.fs.tree import EntryKind
from gobblin_assets.model.path_names import list_upwards
from gobblin_assets.model.state import AttemptId
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.run.destination import Target
from gobblin_assets.run.job_kind import Output, OutputNames
from gobblin_assets.state.leases import Lease


@dataclass(slots=True)
class GivenNames(RequestedDestination):
    """The common part of both kinds. ``request``: its root is the tree's.

    ``places``: each dataset's place below the root. ``keep_s``: for what is replaced or removed.
    """

    keep_s: float
    places: Mapping[DatasetUrn, str]
    _work: RootedDestination = field(init=False)

    def __post_init__(self) -> None:
        request = self.request
        work = replace(
            request, root_uri=work_root_of(request.root_uri), fs=self._open_work(), root=work_root_of(request.root)
        )
        self._work = RootedDestination(work, is_work=True)

    def refuse_replacement(self, urn: DatasetUrn, partition: str) -> None:
        """What is at a name is replaced by what is new there."""

    def _open_work(self) -> FileSystem:
        """The file system of the work directory."""
        return self.fs

    def bind(self) -> None:
        """Nothing is written where another job's tree is found, nor where the store ignores a condition."""
        claim = TreeClaim(self.fs, self.root, self.job, "" in self.places.values(), self.request.new_id)
        is_claimed = claim.look()
        self._work.bind()
        if is_claimed:
            sync_claim(self.fs, self.root)
        else:
            claim.take()

    @property
    def root_uri(self) -> str:
        return self._work.root_uri

    @property
    def slots_keep_s(self) -> float | None:
        return self.keep_s

    def require(self) -> None:
        self._work.require()

    def check_logs(self, leases: Mapping[DatasetUrn, Lease]) -> Mapping[DatasetUrn, GobblinError]:
        return self._work.check_logs(leases)

    def place_of(self, urn: DatasetUrn) -> str:
        """The dataset's directory, or prefix."""
        return "/".join(filter(None, (self.root, self.places[urn])))

    def uri_of(self, urn: DatasetUrn, role: Role) -> str:
        del role
        return self.fs.to_uri(self.place_of(urn))

    def stage(self, attempt_id: AttemptId) -> str:
        return self._work.stage(attempt_id)

    def names_for(self, target: Target) -> OutputNames | None:
        """The source gives the names."""
        del target
        return None

    def prune(self, urn: DatasetUrn) -> None:
        self._work.prune(urn)


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


@dataclass(slots=True)
class NamedObjects(GivenNames):
    """``Destination`` of the objects below ``root`` of ``fs``."""

    def _open_work(self) -> FileSystem:
        return for_given_names(self.fs)

    @property
    def reuse_keep_s(self) -> float | None:
        """The uploads of a failed attempt are aborted: a store asks money for them."""
        return None

    def refuse_strangers(self, urn: DatasetUrn) -> None:
        """No other job may publish below a prefix on the way from the root to the dataset's place."""
        for place in list_upwards([self.place_of(urn)], self.root)[:-1]:
            holder = find_claim(self.fs, place)
            if holder is not None:
                raise refuse_tree(self.place_of(urn), place, holder)
            if place != self.place_of(urn):
                refuse_rows(self.fs, self.place_of(urn), place)

    def make_durable(self, staged: Mapping[str, Sequence[Output]]) -> None:
        """A part is durable once the store has answered."""

    def steps_for(self, outputs: Sequence[Output], target: Target) -> Iterator[CommitStep]:
        root, work = self.place_of(target.urn), self._work.fs
        foresees_etags = isinstance(work, HoldsObjects) and work.foresees_etags
        return (
            _step_of(each, output.path, root, foresees_etags=foresees_etags)
            for output in outputs
            for each in _objects_of(output)
        )


def _objects_of(output: Output) -> Sequence[NamedObject]:
    found: Sequence[NamedObject] = output.details
    return found


def _step_of(output: NamedObject, staging: str, root: str, *, foresees_etags: bool) -> CommitStep:
    staged = output.staged
    common = (staging, f"{root}/{output.path}", str(staged.number), staged.upload, staged.parts)
    if not isinstance(output, ObjectAtName):
        return RemoveObject(*common, old=output.identity)
    identity = replace(output.identity, tag=expected_etag(staged.parts) if foresees_etags else None)
    if output.replaces is None:
        return PlaceObject(*common, identity=identity, is_metadata=output.is_metadata)
    return ReplaceObject(*common, identity=identity, old=output.replaces, is_metadata=output.is_metadata)
