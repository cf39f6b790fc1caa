"""Distcp as a job kind: trees are listed and compared, and what differs is one WorkUnit of a file set."""

import datetime as dt
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from gobblin_assets.destinations.named_tree import WORK_NAME
from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.fs.named_files import NamedFiles
from gobblin_assets.fs.tree import EntryKind, Tree, TreeEntry
from gobblin_assets.jobs.copy.checksums import checksums_agree
from gobblin_assets.jobs.copy.copy_plan import CopyBudget, CopyPlan, CopyPlanner, describe_plan
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec
from gobblin_assets.jobs.copy.datasets import FileSet
from gobblin_assets.jobs.copy.difference import Deletes, DifferenceRules, LinkPolicy, compare_trees
from gobblin_assets.jobs.copy.filters import Filters, list_chosen, parse_filters
from gobblin_assets.jobs.copy.globs import parse_glob
from gobblin_assets.jobs.copy.manifest import list_named
from gobblin_assets.jobs.copy.parsing import CopyDataset
from gobblin_assets.jobs.copy.sameness import Sameness, SameRule
from gobblin_assets.jobs.copy.transfer.preserve import parse_preserve
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

NEW_DIRECTORY_ENTRIES_MAX: Final = 2_000
"""A larger new directory is published in parts, which several writers copy."""

IsOurs = Callable[[DatasetUrn], Callable[[str, FileIdentity], bool]]
"""For a dataset: whether a file, by its full path and identity, is what the job published there last."""


class CopyTrees(Protocol):
    """Both sides of a copy: full paths of roots, and how their trees are listed."""

    def open_source(self, spec: CopyDatasetSpec) -> tuple[Tree, str]: ...

    def open_destination(self, *, hidden: frozenset[str]) -> Tree: ...


@dataclass(frozen=True, slots=True)
class CopyKind:
    """``JobKind`` of one job. ``root``: the destination's root on ``files``."""

    datasets: Mapping[DatasetUrn, CopyDataset]
    trees: CopyTrees
    files: NamedFiles
    root: str
    is_ours: IsOurs
    make_worker: Callable[[], Worker]
    new_id: Callable[[], uuid.UUID]

    @property
    def urns(self) -> Collection[DatasetUrn]:
        return self.datasets.keys()

    @contextmanager
    def open(self, say: Callable[[str], None], requests: Sequence[PlanRequest]) -> Iterator[Session]:
        del say, requests
        yield self

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

    def plan(self, request: PlanRequest) -> UnitPlan:
        """List both trees and compare them. The mode refresh copies every file again."""
        dataset = self.datasets[request.urn]
        plan = self._compare(request, dataset, dataset.find_set(request.partition.key))
        before = request.state.find_watermark(KEY, request.partition.key or "")
        low = 0 if before is None else int(str(before))
        unit = WorkUnit(
            id=WorkUnitId(self.new_id()),
            dataset=request.urn,
            partition=request.partition,
            key=KEY,
            number=0,
            interval=Interval(long_watermark(low), long_watermark(low if plan.is_empty else low + 1)),
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
            notes=tuple(describe_plan(plan)),
            degraded=_describe_waiting(plan),
            changes=plan.changes,
        )

    def _compare(self, request: PlanRequest, dataset: CopyDataset, file_set: FileSet) -> CopyPlan:
        spec = dataset.spec
        filters = parse_filters(include=spec.include, exclude=spec.exclude, filters=spec.filters)
        source, source_root = self.trees.open_source(spec)
        source_root = _join(source_root, dataset.found.source, file_set.directory)
        place = _join(dataset.found.destination, file_set.directory)
        missing = self._find_missing(dataset.found.destination, file_set.directory)
        hidden = frozenset() if place else frozenset({WORK_NAME})
        target = self.trees.open_destination(hidden=hidden)
        standing: Iterator[TreeEntry] = iter(())
        # A plan for people comes before the first run, which makes the root.
        if not missing and self.files.find_entry(self.root) is not None:
            standing = _list(target, _join(self.root, place), file_set, filters, is_source=False)
        planner = CopyPlanner(
            *(source_root, file_set.directory, parse_preserve(spec.preserve), _metadata_of(spec.metadata)),
            budget=CopyBudget(spec.files_per_run_max, spec.bytes_per_run_max),
            follows_links=spec.links is LinkPolicy.FOLLOW,
        )
        rules = self._rules_of(request, spec, source, target, source_root, _join(self.root, place), file_set)
        listed = _list(source, source_root, file_set, filters, is_source=True)
        return planner.plan(missing, compare_trees(listed, standing, rules))

    def _rules_of(
        self,
        request: PlanRequest,
        spec: CopyDatasetSpec,
        source: Tree,
        target: Tree,
        source_root: str,
        target_root: str,
        file_set: FileSet,
    ) -> DifferenceRules:
        preserve = parse_preserve(spec.preserve)
        rule = SameRule.NEVER if request.mode is Mode.REFRESH else spec.same
        is_ours = None
        if spec.deletes is Deletes.OURS:
            published = self.is_ours(request.urn)
            is_ours = partial(_is_published, published, target_root)
        return DifferenceRules(
            sameness=Sameness(
                rule,
                max(source.mtime_precision_ns, target.mtime_precision_ns),
                partial(checksums_agree, source_root, target_root) if rule is SameRule.CHECKSUM else None,
                preserve.attributes_of if spec.attributes == "sync" else None,
            ),
            deletes=Deletes.ALL if file_set.files else spec.deletes,
            is_ours=is_ours,
            delete_max=spec.delete_max,
            empty_source=bool(file_set.files),
            links=spec.links,
            new_tree_entries_max=NEW_DIRECTORY_ENTRIES_MAX,
        )

    def _find_missing(self, destination: str, directory: str) -> list[str]:
        """The directories that lead from the root to the file set and are not there, relative to the dataset's.

        The dataset's own directory is "", those above it begin with ``..``.
        """
        missing = []
        of_dataset = destination.count("/") + 1 if destination else 0
        parts = _join(destination, directory).split("/") if destination or directory else []
        for depth in range(1, len(parts) + 1):
            place = _join(self.root, *parts[:depth])
            entry = self.files.find_entry(place)
            if entry is None:
                below = parts[of_dataset:depth]
                missing.append("/".join(below) if depth >= of_dataset else "/".join([".."] * (of_dataset - depth)))
            elif entry.kind is not EntryKind.DIRECTORY:
                raise RejectedError(
                    f"{place} is a {entry.kind.value}, and a directory is to be there",
                    field="destination",
                    hint="Move it away, or choose another destination.",
                )
        return missing


def _list(tree: Tree, root: str, file_set: FileSet, filters: Filters, *, is_source: bool) -> Iterator[TreeEntry]:
    if not file_set.files:
        yield from list_chosen(tree, root, filters, bare_directories=not (is_source and filters.has_includes))
        return
    wanted = [each.path for each in file_set.files if not (is_source and each.is_deleted)]
    yield from list_named(tree, root, wanted, required=is_source)


def _describe_waiting(plan: CopyPlan) -> tuple[str, ...]:
    files, size_bytes = plan.waiting
    if not files:
        return ()
    return (f"{files:,} files of {size_bytes:,} bytes wait for later runs (files_per_run_max, bytes_per_run_max)",)


def _metadata_of(globs: Sequence[str]) -> Callable[[str], bool]:
    parsed = [parse_glob(text, field="metadata") for text in globs]
    return lambda path: any(glob.matches(path) for glob in parsed)


def _is_published(published: Callable[[str, FileIdentity], bool], root: str, entry: TreeEntry) -> bool:
    return published(f"{root}/{entry.path}", entry.identity)


def _join(*parts: str) -> str:
    return "/".join(part for part in parts if part)
