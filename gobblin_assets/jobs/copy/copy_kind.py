"""Distcp as a job kind: trees are listed and compared, and what differs is one WorkUnit of a file set."""

import datetime as dt
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Final

from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.fs.named_files import NamedFiles
from gobblin_assets.fs.network_files import RangedFiles, StagingFiles
from gobblin_assets.fs.tree import EntryKind, Tree, TreeEntry
from gobblin_assets.jobs.copy.budgets import CopyBudget, RunBudget, parse_tiers
from gobblin_assets.jobs.copy.checksums import checksums_agree
from gobblin_assets.jobs.copy.closed_directories import find_closed
from gobblin_assets.jobs.copy.converters.chain import Chain, open_chain, write_chain
from gobblin_assets.jobs.copy.converters.listing import ConvertedListing
from gobblin_assets.jobs.copy.copy_plan import CopyJudge, CopyPlan, CopyPlanner, describe_plan
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec
from gobblin_assets.jobs.copy.copy_trees import CopyTrees, place_of_origin
from gobblin_assets.jobs.copy.copyable import NO_ATTRIBUTES, Attributes, ConvertedEntry, CopyableDataset, FileSet
from gobblin_assets.jobs.copy.difference import Deletes, DifferenceRules, GivingWay, LinkPolicy, compare_trees
from gobblin_assets.jobs.copy.globs import Filters, choose_entries, list_chosen, list_within, match_any, parse_filters
from gobblin_assets.jobs.copy.kept_attributes import (
    ReadDirectory,
    describe_kept,
    directory_reader,
    find_extended_changes,
    find_kept,
    find_ownership,
    read_nothing,
)
from gobblin_assets.jobs.copy.manifest import list_named
from gobblin_assets.jobs.copy.memory import (
    DIRECTORIES_MAX,
    PLACES_MAX,
    UNPACKED_SETS_MAX,
    DirectoryMemory,
    Losses,
    MemoryRoom,
    UnchangedDirectories,
    UnloggedNames,
    UnpackedMemory,
)
from gobblin_assets.jobs.copy.parsing import CopyDataset
from gobblin_assets.jobs.copy.refusals import find_name_lengths
from gobblin_assets.jobs.copy.removals import DestinationFiles, RemovalRules
from gobblin_assets.jobs.copy.sameness import Sameness, SameRule, nanoseconds_of
from gobblin_assets.jobs.copy.source_ledger import (
    LedgerFiles,
    LedgerListing,
    SourceLedger,
    origin_of,
    plan_one_version,
    reads_ledger,
)
from gobblin_assets.jobs.copy.targets import (
    TargetTree,
    WayToSets,
    find_missing_directories,
    find_time_step,
    finds_any_case,
    require_one_mount,
)
from gobblin_assets.jobs.copy.transfer.preserve import Preserve, PreserveLetter, parse_preserve
from gobblin_assets.model.clock import utc_now
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.partition import WHOLE, AssetPartition
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.model.work_unit import WorkUnit, WorkUnitId
from gobblin_assets.run.job_kind import PlanRequest, Rewriter, Session, UnitPlan, Worker

KEY: Final = "publications"
"""The key of a file set, whose position counts its publications."""

VERSION_KEY: Final = "version"
"""The key of a file set that is copied by a ledger, whose position is the version that was copied last."""

NEW_DIRECTORY_ENTRIES_MAX: Final = 2_000
"""A larger new directory is published in parts, which several writers copy."""

IsOurs = Callable[[DatasetUrn], Callable[[str, FileIdentity], bool]]
"""For a dataset: whether a file, by its full path and identity, is what the job published there last."""


@dataclass(slots=True)
class DestinationNames:
    """Names that a destination which ignores case would take for one. ``datasets``: all of the job's. They are compared
    when the first one asks.
    """

    datasets: Mapping[DatasetUrn, CopyableDataset]
    _alike: dict[DatasetUrn, tuple[str, str]] | None = field(default=None, init=False)

    def require_apart(self, urn: DatasetUrn) -> None:
        """RejectedError if a name of this dataset differs by case only from one that the job has elsewhere."""
        if self._alike is None:
            self._alike = self._compare()
        if urn in self._alike:
            mine, other = self._alike[urn]
            raise RejectedError(
                f"the names {mine!a} and {other!a} differ by case only, and the destination ignores case",
                field="datasets",
                hint="Write both in the same way, or let one be copied to another directory.",
                path=mine,
            )

    def _compare(self) -> dict[DatasetUrn, tuple[str, str]]:
        known: dict[str, tuple[str, DatasetUrn]] = {}
        alike: dict[DatasetUrn, tuple[str, str]] = {}
        for urn, dataset in self.datasets.items():
            for path in _list_paths(dataset):
                for place in accumulate(path.split("/"), "{}/{}".format):
                    spelled, owner = known.setdefault(place.casefold(), (place, urn))
                    if spelled != place:
                        alike.setdefault(urn, (place, spelled))
                        alike.setdefault(owner, (spelled, place))
        return alike


def _list_paths(dataset: CopyableDataset) -> Iterator[str]:
    """Paths below the destination's root. Files are named by a manifest; those of a single file set are listed."""
    yield from filter(None, [dataset.destination])
    for file_set in dataset.file_sets:
        at = "/".join(filter(None, (dataset.destination, file_set.directory)))
        yield from filter(None, [at])
        if len(dataset.file_sets) > 1:
            yield from (f"{at}/{file.path}" if at else file.path for file in file_set.files)


@dataclass(frozen=True, slots=True)
class SharedPlanning:
    """The state that the plans of one run share. ``budget``: for all file sets of the run. ``directories``,
    ``unpacked`` and ``places``: of each dataset.

    ``names``: those of all datasets. ``mtime_precision_ns``: the destination's.
    """

    budget: RunBudget
    names: DestinationNames
    mtime_precision_ns: int
    directories: MemoryRoom = field(default_factory=lambda: MemoryRoom(DIRECTORIES_MAX))
    unpacked: MemoryRoom = field(default_factory=lambda: MemoryRoom(UNPACKED_SETS_MAX))
    places: MemoryRoom = field(default_factory=lambda: MemoryRoom(PLACES_MAX))
    ways: WayToSets = field(default_factory=WayToSets)


class CopySession:
    """``Session``. ``before``: requests that are planned before the first one that is asked for, in this order.

    Where the run has a budget for all file sets, these are all of them, those of a lower priority number first.
    """

    def __init__(
        self,
        plan: Callable[[PlanRequest, SharedPlanning], UnitPlan],
        open_worker: Callable[[], Worker],
        shared: SharedPlanning,
        before: list[PlanRequest],
    ) -> None:
        self._plan = plan
        self._open_worker = open_worker
        self._shared = shared
        self._planned: dict[tuple[DatasetUrn, str | None], UnitPlan | Exception] = {}
        self._before = before

    def open_worker(self) -> Worker:
        return self._open_worker()

    def plan(self, request: PlanRequest) -> UnitPlan:
        wanted = (request.urn, request.partition.key)
        while wanted not in self._planned and self._before:
            each = self._before.pop(0)
            self._planned[each.urn, each.partition.key] = self._try(each)
        found = self._planned.pop(wanted, None) or self._try(request)
        if isinstance(found, Exception):
            raise found
        return found

    def _try(self, request: PlanRequest) -> UnitPlan | Exception:
        before = self._shared.budget.taken
        try:
            return self._plan(request, self._shared)
        except Exception as error:  # noqa: BLE001  raised again where it is asked for
            # What is refused copies nothing: its share is for the others.
            self._shared.budget.taken = before
            return error


@dataclass(frozen=True, slots=True)
class CopyKind:
    """``JobKind`` of one job. ``root``: the destination's root, on ``files``; None: in an object store.

    ``budget``: a run's, for all file sets. ``ledger``: of jobs whose datasets are copied.
    """

    datasets: Mapping[DatasetUrn, CopyDataset]
    trees: CopyTrees
    files: NamedFiles | None
    root: str
    is_ours: IsOurs
    make_worker: Callable[[], Worker]
    new_id: Callable[[], uuid.UUID]
    budget: CopyBudget = field(default_factory=CopyBudget)
    now: Callable[[], dt.datetime] = utc_now
    ledger: SourceLedger | None = None

    @property
    def urns(self) -> Collection[DatasetUrn]:
        return self.datasets.keys()

    @contextmanager
    def open(self, say: Callable[[str], None], requests: Sequence[PlanRequest]) -> Iterator[Session]:
        del say
        by_priority = sorted(requests, key=lambda each: self.datasets[each.urn].spec.priority)
        shared = SharedPlanning(
            RunBudget(self.budget),
            DestinationNames({urn: dataset.found for urn, dataset in self.datasets.items()}),
            1 if self.files is None else find_time_step(self.files, self.root),
        )
        yield CopySession(self.plan, self.open_worker, shared, by_priority if self.budget.is_bounded else [])

    def prepare(self) -> None:
        """Nothing of a copy takes over signals."""

    def current_partition(self, urn: DatasetUrn, now: dt.datetime) -> AssetPartition:
        """The newest file set of those that were found."""
        del now
        newest = self.datasets[urn].found.file_sets[-1]
        return AssetPartition(newest.key, newest.window) if newest.key else WHOLE

    @property
    def can_rewrite(self) -> bool:
        return False

    def open_rewriter(self) -> Rewriter:
        raise CorruptionError("copied files are never rewritten")

    def open_worker(self) -> Worker:
        return self.make_worker()

    def plan(self, request: PlanRequest, shared: SharedPlanning) -> UnitPlan:
        """List both trees and compare them. The mode refresh copies every file again."""
        dataset = self.datasets[request.urn]
        plan, key, note = self._plan_file_set(request, dataset, shared)
        before = request.state.find_watermark(key.name, request.partition.key or "")
        low = 0 if before is None else int(str(before))
        high = (low if plan.is_empty else low + 1) if key.version is None else max(low, key.version)
        unit = WorkUnit(
            id=WorkUnitId(self.new_id()),
            dataset=request.urn,
            partition=request.partition,
            key=key.name,
            number=0,
            interval=Interval(long_watermark(low), long_watermark(high)),
            estimated_bytes=plan.size_bytes,
        )
        return UnitPlan(
            urn=request.urn,
            partition=request.partition,
            mode=Mode.APPEND,
            replaces=False,
            is_snapshot=False,
            work_units=(unit,),
            payload=plan,
            judge=CopyJudge(plan),
            notes=(*note, *describe_plan(plan), *self._describe_letters(dataset.spec)),
            degraded=(
                *plan.waiting.describe(parse_tiers(dataset.spec.go_first), dataset.spec.priority),
                *plan.stopped.describe(plan.source_root),
            ),
            changes=plan.changes,
            partition_facts=plan.facts,
        )

    def _plan_file_set(
        self, request: PlanRequest, dataset: CopyDataset, shared: SharedPlanning
    ) -> tuple[CopyPlan, "_PositionKey", Sequence[str]]:
        """The plan, what its position counts, and what is to be said of its manifest."""
        spec, file_set = dataset.spec, dataset.find_set(request.partition.key)
        if self.ledger is None or not reads_ledger(spec):
            return self._compare(request, dataset, file_set, shared), _PositionKey(KEY), ()
        found = plan_one_version(
            partial(self.ledger.read, spec), lambda files: self._compare(request, dataset, file_set, shared, files)
        )
        job, urn = origin_of(spec)
        if found is None:
            note = f"the job {job} has published nothing of {urn} yet"
            return CopyPlan("", parse_preserve(spec.preserve)), _PositionKey(VERSION_KEY, 0), (note,)
        files, plan = found
        return plan, _PositionKey(VERSION_KEY, files.version), (files.describe(job, urn),)

    def _compare(
        self,
        request: PlanRequest,
        dataset: CopyDataset,
        file_set: FileSet,
        shared: SharedPlanning,
        published: LedgerFiles | None = None,
    ) -> CopyPlan:
        """``published``: the files of the source that there are, as far as the copy is concerned; None: all."""
        spec = dataset.spec
        filters = parse_filters(include=spec.include, exclude=spec.exclude, filters=spec.filters)
        chain = _open_converters(spec, file_set)
        source, source_base = self.trees.open_source(spec)
        source_root = _join(source_base, dataset.found.source, file_set.directory)
        self.trees.require_inside(spec, _join(dataset.found.source, file_set.directory))
        dataset_root = _join(self.root, dataset.found.destination)
        root = _join(dataset_root, file_set.directory)
        files = self.files
        missing = self._find_missing(source_base, dataset, file_set)
        opened = self.trees.open_destination()
        target = TargetTree(opened, self.root, partial(self._is_ours, request.urn))
        shared.ways.require_free(self.trees.open_destination_files(), dataset_root, file_set.directory)
        # An archive of all files has a name that was chosen for itself.
        on_target = Filters() if chain.packer is not None else filters
        existing = DestinationFiles(())
        # A plan for people comes before the first run, which makes the root.
        if not missing and (files is None or files.find_entry(self.root) is not None):
            existing = DestinationFiles(list_side(target, root, file_set, on_target, is_source=False))
        looked_at = self.now()
        rules = self._rules_of(request, spec, source, opened, source_root, root, file_set, shared, looked_at)
        losses = Losses(
            request=request,
            dataset=dataset,
            file_set=file_set,
            tree=source,
            root=source_root,
            room=shared.places,
            find_directory=self.trees.find_source_directory,
        )
        planner = self._open_planner(request, dataset, file_set, source, source_root, shared)
        planner.removal_rules = RemovalRules(_find_delete_max(spec), existing, losses.split)
        memory = DirectoryMemory(request, dataset, file_set, shared.directories)
        unpacked = UnpackedMemory(request, dataset, file_set, shared.unpacked)
        has_directory = partial(self._has_directory, root)
        unlogged = UnloggedNames(request, file_set, root)
        known = memory.read() if unlogged.is_empty else {}
        unchanged = UnchangedDirectories(source, known, self.trees.find_source_entry, has_directory)
        if chain.steps:
            find = partial(self._find_unpacked, target, root, rules) if unpacked.agrees else _know_nothing
            follows = spec.links is LinkPolicy.FOLLOW
            converted = ConvertedListing(chain, source_root, filters, find, rules.sameness, follows_links=follows)
            listed = list_converted(converted, source)
        elif published is not None:
            listed = LedgerListing(source, published).list_tree(source_root)
        else:
            listed = list_side(unchanged if memory.is_kept else source, source_root, file_set, filters, is_source=True)
        listed = target.admit(root, listed)
        rules = replace(
            rules, skipped=unchanged.skipped, is_empty_directory=losses.is_empty_directory, is_unlogged=unlogged.read()
        )
        differences = compare_trees(listed, unchanged.leave_out(iter(existing)), rules)
        plan = planner.plan(missing, differences)
        require_one_mount(files, self.root, dataset_root, plan)
        facts = {
            **memory.write(unchanged, looked_at, plan),
            **unpacked.write(plan, unpacks=chain.unpacks),
            **losses.write(plan.stopped),
            **unlogged.write(plan),
        }
        return replace(
            plan,
            facts=facts,
            closed=find_closed(files, dataset_root, plan),
            skipped_count=len(unchanged.skipped),
            mtime_precision_ns=rules.sameness.mtime_precision_ns,
            leaves_out_changed=spec.on_change == "leave_out",
        )

    def _open_planner(
        self,
        request: PlanRequest,
        dataset: CopyDataset,
        file_set: FileSet,
        source: Tree,
        source_root: str,
        shared: SharedPlanning,
    ) -> CopyPlanner:
        spec = dataset.spec
        preserve = self._preserve_of(spec)
        return CopyPlanner(
            source_root=source.to_uri(source_root) if isinstance(source, RangedFiles) else source_root,
            place=file_set.directory,
            preserve=preserve,
            is_metadata=match_any(spec.metadata, field="metadata"),
            budgets=(RunBudget(CopyBudget(spec.files_per_run_max, spec.bytes_per_run_max)), shared.budget),
            tiers=parse_tiers(spec.go_first),
            follows_links=spec.links is LinkPolicy.FOLLOW,
            has_directories=self.files is not None,
            split_bytes=self._find_split_bytes(source, spec),
            # Writers to stores and over a network keep no journals.
            may_be_reused=self._writes_files and _may_be_reused(request, spec),
            converters=write_chain(spec.converters),
            read_directory=self._reader_of(source, source_root, spec),
            ownership=find_ownership(preserve, file_set.files, self.files, self.root),
            lengths=find_name_lengths(self.files, self.root, _join(self.root, dataset.found.destination)),
        )

    def _is_ours(self, urn: DatasetUrn, target_root: str, entry: TreeEntry) -> bool:
        return _is_published(self.is_ours(urn), target_root, entry)

    def _find_missing(
        self, source_base: str, dataset: CopyDataset, file_set: FileSet
    ) -> Mapping[str, TreeEntry | None]:
        """The directories on the way to the file set that are not there, with what the source has of them."""
        if self.files is None:
            return {}
        found = dataset.found
        missing = find_missing_directories(self.files, self.root, found.destination, file_set.directory)
        origins = ((path, place_of_origin(found.source, found.destination, path)) for path in missing)
        find = self.trees.find_source_directory
        return {path: None if at is None else find(_join(source_base, at)) for path, at in origins}

    def _has_directory(self, target_root: str, path: str) -> bool:
        if self.files is None:
            # A name in a store has no directory that could be looked at by itself.
            return False
        entry = self.files.find_entry(f"{target_root}/{path}")
        return entry is not None and entry.kind is EntryKind.DIRECTORY

    def _rules_of(
        self,
        request: PlanRequest,
        spec: CopyDatasetSpec,
        source: Tree,
        target: Tree,
        source_root: str,
        target_root: str,
        file_set: FileSet,
        shared: SharedPlanning,
        looked_at: dt.datetime,
    ) -> DifferenceRules:
        preserve = self._preserve_of(spec)
        ignores_case = spec.ignore_case or (self.files is not None and finds_any_case(self.files, self.root))
        if ignores_case:
            shared.names.require_apart(request.urn)
        rule = SameRule.NEVER if request.mode is Mode.REFRESH else spec.same
        agree = partial(checksums_agree, source, source_root, target, target_root)
        is_ours = None
        if spec.deletes is Deletes.OURS:
            is_ours = partial(_is_published, self.is_ours(request.urn), target_root)
        deletes, leaves_out = Deletes.ALL if file_set.files else spec.deletes, spec.on_change == "leave_out"
        return DifferenceRules(
            give_way=GivingWay(target, target_root, deletes, is_ours).find,
            sameness=Sameness(
                rule,
                max(source.mtime_precision_ns, target.mtime_precision_ns, shared.mtime_precision_ns),
                agree if rule is SameRule.CHECKSUM else None,
                preserve.attributes_of if spec.attributes == "sync" else None,
                find_extended_changes(source, source_root, target_root, preserve) if self._writes_files else None,
                nanoseconds_of(looked_at),
                is_far=isinstance(source, RangedFiles),
            ),
            deletes=deletes,
            is_ours=is_ours,
            empty_source=bool(file_set.files) or reads_ledger(spec),
            links=spec.links,
            ignores_case=ignores_case,
            # In a store each file is published by itself, and where one may be left out.
            new_tree_entries_max=0 if self.files is None or leaves_out else NEW_DIRECTORY_ENTRIES_MAX,
            new_tree_file_bytes_max=self._find_split_bytes(source, spec),
        )

    def _preserve_of(self, spec: CopyDatasetSpec) -> Preserve:
        return find_kept(spec, self.trees.open_source(spec)[0], self.files)

    def _reader_of(self, source: Tree, source_root: str, spec: CopyDatasetSpec) -> ReadDirectory:
        if isinstance(source, RangedFiles) or not self._writes_files:
            return read_nothing
        return directory_reader(source_root, self._preserve_of(spec), follows_links=spec.links is LinkPolicy.FOLLOW)

    def _find_split_bytes(self, source: Tree, spec: CopyDatasetSpec) -> int | None:
        """What is read by ranges, converted, or written over a network, is copied whole by one writer."""
        if isinstance(source, RangedFiles) or not self._writes_files or spec.converters:
            return None
        return spec.split.bytes_min

    @property
    def _writes_files(self) -> bool:
        """Whether writers write at the destination by the operating system's calls."""
        return self.files is not None and not isinstance(self.files, StagingFiles)

    def _describe_letters(self, spec: CopyDatasetSpec) -> Iterator[str]:
        return describe_kept(spec, self.trees.open_source(spec)[0], self.files)

    def _find_unpacked(
        self, target: Tree, root: str, rules: DifferenceRules, directory: str
    ) -> Sequence[TreeEntry] | None:
        """A directory with all below it, by paths below ``root``. None: it is not there, or times tell too little."""
        sameness = rules.sameness
        if self.files is None or sameness.rule is SameRule.NEVER or sameness.desired is not None:
            return None
        place = _join(root, directory)
        top = self.files.find_entry(place)
        if top is None or top.kind is not EntryKind.DIRECTORY:
            return None
        below = (replace(entry, path=f"{directory}/{entry.path}") for entry in target.list_tree(place))
        return (replace(top, path=directory), *below)


@dataclass(frozen=True, slots=True)
class _PositionKey:
    """``version``: the position to come; None: it counts publications."""

    name: str
    version: int | None = None


def _find_delete_max(spec: CopyDatasetSpec) -> int | str | None:
    """A ledger says what is gone: only what a person wrote bounds that."""
    return None if reads_ledger(spec) and "delete_max" not in spec.model_fields_set else spec.delete_max


def _may_be_reused(request: PlanRequest, spec: CopyDatasetSpec) -> bool:
    """Whether length and time tell one version of a file from another, as the job sees it.

    Access lists and extended attributes change without the time, so that files which keep them are copied again; so are
    all files of a dataset with converters, because no journal says what became of them.
    """
    unseen = {PreserveLetter.ACCESS_LISTS, PreserveLetter.EXTENDED}
    is_compared_by_time = spec.same is SameRule.MTIME and request.mode is not Mode.REFRESH
    return is_compared_by_time and not spec.converters and not parse_preserve(spec.preserve).letters & unseen


def _open_converters(spec: CopyDatasetSpec, file_set: FileSet) -> Chain:
    """RejectedError if this machine, or the file set, can't do with them."""
    chain = open_chain(spec.converters)
    if chain.steps and file_set.files:
        raise RejectedError(
            "a manifest names files as they are, and converters would give them other names",
            field="converters",
            hint="Find the dataset by its directory, and choose its files by filters.",
        )
    chain.prepare()
    return chain


def _know_nothing(_directory: str) -> None:
    """The options by which the archive was unpacked are not known: the archive is read."""


def _is_published(published: Callable[[str, FileIdentity], bool], root: str, entry: TreeEntry) -> bool:
    return published(f"{root}/{entry.path}", entry.identity)


def _join(*parts: str) -> str:
    return "/".join(part for part in parts if part)


def list_side(tree: Tree, root: str, file_set: FileSet, filters: Filters, *, is_source: bool) -> Iterator[TreeEntry]:
    """The file set's entries of one side, as they are."""
    if not file_set.files:
        yield from list_chosen(tree, root, filters, bare_directories=not (is_source and filters.has_includes))
        return
    wanted = {each.path: each.attributes for each in file_set.files if not (is_source and each.is_deleted)}
    for entry in list_named(tree, root, wanted, required=is_source):
        chosen = wanted.get(entry.path)
        yield entry if not is_source or chosen in {None, NO_ATTRIBUTES} else _with_attributes(entry, chosen)


def _with_attributes(entry: TreeEntry, chosen: Attributes) -> ConvertedEntry:
    found = entry.identity
    mtime_ns = found.mtime_ns if chosen.mtime_ns is None else chosen.mtime_ns
    return ConvertedEntry(
        path=entry.path,
        kind=entry.kind,
        identity=replace(found, mtime_ns=mtime_ns),
        mode=entry.mode,
        owner=entry.owner,
        group=entry.group,
        placement=entry.placement,
        origin=entry,
        has_length=True,
        chosen=chosen,
    )


def list_converted(listing: ConvertedListing, source: Tree) -> Iterator[TreeEntry]:
    """What is packed is chosen by its names before that; everything else by its names after conversion."""
    filters = listing.filters
    entries = list_within(source, listing.root, filters)
    if listing.chain.packer is not None:
        chosen = choose_entries(entries, filters, bare_directories=not filters.has_includes)
        return listing.list_entries(chosen)
    return choose_entries(listing.list_entries(entries), filters, bare_directories=not filters.has_includes)
