"""Copies as assets: their datasets as they are declared, shown and watched, and the audit of each.

Definitions are loaded by servers, and again by each run. A server searches the source, within a bound, and writes the
datasets to a file in GOBBLIN_HOME. A run reads this file, so that it has the server's assets. If the source is away,
the file stays as it is.

The audit compares both sides by the job's own rule, and writes nothing. A sensor sees file sets: their names, their
marks, and whether listings changed. A file that was written just now may be written again within the tick of its time
(``sameness``). So the mark says that, and a later look gives another mark.
"""

import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.network_files import RangedFiles
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec, CopySpec, dataset_of
from gobblin_assets.jobs.copy.copyable import FileSet
from gobblin_assets.jobs.copy.parsing import CopyDataset, find_copy_datasets, open_source_tree
from gobblin_assets.jobs.copy.sameness import is_tick_over
from gobblin_assets.jobs.copy.transfer.transfer_port import TransferWay
from gobblin_assets.jobs.programs import DeclaredCheck, SetId, ShownAsset, ShownTree
from gobblin_assets.model.clock import utc_now
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.dry_run import PlannedSlice
from gobblin_assets.run.job_kind import CheckResult, PlannedChange
from gobblin_assets.settings import make_home, read_settings
from gobblin_assets.sources.discovery import write_state

FOUND_ENTRIES_MAX: Final = 100_000
"""A search for datasets looks at no more entries of the source: about two seconds on a local disk."""

_FORMAT: Final = 1
_LOG: Final = logging.getLogger("gobblin_assets")

Declared = Mapping[DatasetUrn, CopyDatasetSpec]

SIDES_AGREE: Final = DeclaredCheck(
    "sides_agree",
    "No path differs between source and destination, by the rule of the job. Evaluated when somebody asks.",
    is_audit=True,
)

PATHS_SHOWN_MAX: Final = 100
_NAMED_MAX: Final = 5
_WITHOUT_LIMITS: Final = {"files_per_run_max": None, "bytes_per_run_max": None}
_EVERYWHERE: Final = {**_WITHOUT_LIMITS, "skip_unchanged_directories": False}

NAMES_PER_SET_MAX: Final = 1_000_000
"""A look at a listing reads no more names of one set: about a second on a local disk."""

OBJECTS_PER_SET_MAX: Final = 20_000
"""The same of a store, which gives a thousand names for each request: a tick must stay far below Dagster's limit."""

_MARK_DIGITS: Final = 16
_JUST_NOW: Final = " just now"


def declare_copies(job: CopySpec, *, searches: bool) -> Declared:
    """The datasets, each with its partitions. ``searches``: look for them now, as far as that is possible.

    A search that fails is a warning, and gives what was found before; without that, nothing.
    """
    if job.finder is None:
        return {urn: each.spec for urn, each in find_copy_datasets(job, utc_now()).items()}
    known = None if searches else _read_found(job)
    if known is None:
        try:
            known = {urn: each.spec for urn, each in find_within_bound(job).items()}
            _keep_found(job, known)
        except GobblinError as error:
            known = _read_found(job)
            kept = "has none" if known is None else "keeps those that were found before"
            _LOG.warning("The datasets of %s can't be looked for, and it %s: %s", job.job, kept, error)
    return as_assets(job, known or {})


def find_within_bound(job: CopySpec) -> Mapping[DatasetUrn, CopyDataset]:
    """The datasets as written, or as the finder finds them now; RejectedError if there is too much to look at."""
    return find_copy_datasets(job, utc_now(), entries_max=FOUND_ENTRIES_MAX)


def as_assets(job: CopySpec, datasets: Declared) -> Declared:
    """Found datasets with the partitions that the job wants for named file sets."""
    wanted = job.defaults.partitions
    if job.finder is None or wanted.kind is PartitionKind.NONE:
        return datasets
    return {
        urn: each.model_copy(update={"partitions": wanted}) if each.partitions.keys else each
        for urn, each in datasets.items()
    }


def _keep_found(job: CopySpec, found: Declared) -> None:
    """Write down what was found, all of it or nothing. RejectedError if the file can't be written."""
    make_home(read_settings().home)
    datasets = [[urn, each.path, each.to, list(each.partitions.keys)] for urn, each in found.items()]
    write_state(_path_of(job), {**_describe_search(job), "datasets": datasets})


def _read_found(job: CopySpec) -> Declared | None:
    """None if there is no file, or it is about another search."""
    try:
        written: Any = json.loads(_path_of(job).read_text(encoding="utf-8"))
        if {name: written.get(name) for name in _describe_search(job)} != _describe_search(job):
            return None
        return {
            DatasetUrn(str(urn)): dataset_of(job, str(urn), str(path), str(place), tuple(map(str, keys)))
            for urn, path, place, keys in written["datasets"]
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _describe_search(job: CopySpec) -> dict[str, object]:
    # As JSON gives it back.
    finder = json.loads(json.dumps(job.finder, default=str))
    return {"format": _FORMAT, "source": job.source, "finder": finder}


def _path_of(job: CopySpec) -> Path:
    return read_settings().discovery_path(job.job).with_suffix(".found.json")


def show_copy(job: CopySpec, dataset: CopyDatasetSpec) -> ShownAsset:
    """A dataset with its defaults applied."""
    source, place = _join(job.source, dataset.path), _join(job.destination, dataset.to)
    return ShownAsset(
        description=f"The files below {source}, copied to {place}.",
        uri=place,
        kinds=frozenset({_kind_of(place), *(["spark"] if job.transfer is TransferWay.SPARK else [])}),
        metadata={"gobblin/source_uri": source, "gobblin/deletes": dataset.deletes.value},
        source_tree=ShownTree(source, _kind_of(source)),
    )


def _kind_of(uri: str) -> str:
    """The scheme says it; a path has none."""
    return uri.partition("://")[0] if "://" in uri else "file"


def _join(root: str, path: str | None) -> str:
    return "/".join((root.rstrip("/"), path)) if path else root


def plan_audit(job: CopySpec) -> CopySpec:
    """The job without what bounds one run, and without what lets a run look at less than both sides."""
    return job.model_copy(
        update={
            **_WITHOUT_LIMITS,
            "defaults": job.defaults.model_copy(update=_EVERYWHERE),
            "datasets": tuple(each.model_copy(update=_EVERYWHERE) for each in job.datasets),
            "overrides": tuple(each.model_copy(update=_EVERYWHERE) for each in job.overrides),
        }
    )


def judge_sides(name: str, planned: PlannedSlice) -> CheckResult:
    """Passed if a run would change nothing. What the job's options leave at the destination does not count."""
    if planned.error is not None:
        said = f"The sides can't be compared: {planned.error}"
        return CheckResult(name, passed=False, blocking=False, description=said)
    changes = planned.changes
    figures: dict[str, object] = {"differing_paths": len(changes)}
    if not changes and planned.degraded:
        said = f"The sides can't be compared as a whole: {'; '.join(planned.degraded)}"
        return CheckResult(name, passed=False, blocking=False, description=said)
    if not changes:
        return CheckResult(name, passed=True, blocking=False, description=" ".join(planned.notes), figures=figures)
    figures["paths"] = [f"{each.action} {_name(each)}: {each.why}" for each in changes[:PATHS_SHOWN_MAX]]
    shown = ", ".join(map(_name, changes[:_NAMED_MAX]))
    more = f" and {len(changes) - _NAMED_MAX:,} more" if len(changes) > _NAMED_MAX else ""
    said = f"paths differ ({len(changes):,}): {shown}{more}"
    return CheckResult(name, passed=False, blocking=False, description=said, figures=figures)


def _name(change: PlannedChange) -> str:
    """The dataset's own directory has no name below itself."""
    return change.path or "."


@dataclass(frozen=True, slots=True)
class CopySets:
    """``FileSets`` of one job. ``found``: its datasets, as they were found just now."""

    job: CopySpec
    found: Mapping[DatasetUrn, CopyDataset]

    @property
    def datasets(self) -> Mapping[DatasetUrn, CopyDatasetSpec]:
        return as_assets(self.job, {urn: each.spec for urn, each in self.found.items()})

    def list_sets(self) -> Sequence[SetId]:
        sets = (SetId(urn, each.key) for urn, dataset in self.found.items() for each in dataset.found.file_sets)
        return sorted(sets, key=lambda each: each.key, reverse=True)

    def find_mark(self, each: SetId) -> str | None:
        dataset = self.found[each.urn]
        file_set = dataset.find_set(each.key)
        tree, root = open_source_tree(self.job.source, dataset.spec)
        places = (root, dataset.found.source)
        marker = self.job.trigger.marker
        if isinstance(tree, RangedFiles):
            return _find_ranged_mark(tree, os.path.join(*places), file_set, marker)  # noqa: PTH118  a store's path
        try:
            if marker is not None:
                return _digest([_describe(os.path.join(*places, file_set.directory, marker))])  # noqa: PTH118  not a path of this module's making
            return _digest(_describe_listing(os.path.join(*places, file_set.directory), places, file_set))  # noqa: PTH118  the same
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RetryableError(f"{each.urn} can't be looked at: {error.strerror}") from error


def _find_ranged_mark(tree: RangedFiles, root: str, file_set: FileSet, marker: str | None) -> str | None:
    """The same of a store, which has no directories with times: each file is one of the listing's."""
    directory = "/".join(filter(None, (root.rstrip("/"), file_set.directory)))
    if marker is None and not file_set.files:
        return _digest(_describe_entries(tree, directory))
    named = [f"{directory}/{marker}"]
    if marker is None:
        named = [f"{root.rstrip('/')}/{each.path}" for each in file_set.files if not each.is_deleted]
    identities = [tree.find_file(each) for each in named]
    if None in identities:
        return None
    lines = [] if marker is not None else _describe_lines(file_set)
    told = (_describe_far(path, each) for path, each in zip(named, identities, strict=True) if each is not None)
    return _digest([*lines, *told])


def _describe_lines(file_set: FileSet) -> list[str]:
    """What a manifest asks for: attributes and removals change nothing at the source."""
    return [f"{each.path} {each.is_deleted} {each.attributes}" for each in file_set.files]


def _describe_entries(tree: RangedFiles, directory: str) -> Iterator[str]:
    for number, entry in enumerate(tree.list_tree(directory)):
        if number == OBJECTS_PER_SET_MAX:
            raise _too_many(directory, OBJECTS_PER_SET_MAX)
        yield _describe_far(entry.path, entry.identity)


def _describe_far(path: str, identity: FileIdentity) -> str:
    mtime_ns = identity.mtime_ns
    # An ETag tells versions of one time apart.
    is_told = identity.tag is not None or mtime_ns is None or is_tick_over(mtime_ns, time.time_ns(), 1, is_far=True)
    return f"{path} {identity}{'' if is_told else _JUST_NOW}"


def _too_many(directory: str, names_max: int) -> RejectedError:
    return RejectedError(
        f"{directory} has more than {names_max:,} names, too many to look for changes",
        field="trigger.marker",
        hint="Name a marker file that says when a set is to be copied, or have a schedule run the job.",
    )


def _describe_listing(directory: str, places: tuple[str, str], file_set: FileSet) -> Iterator[str]:
    """Each named file, or each directory with its time: that changes when a name in it comes, goes, or is replaced."""
    if file_set.files:
        yield from _describe_lines(file_set)
        yield from (_describe(os.path.join(*places, each.path)) for each in file_set.files if not each.is_deleted)  # noqa: PTH118  the same
        return
    waiting, names = [directory], 0
    while waiting:
        place = waiting.pop()
        yield _describe(place)
        with os.scandir(place) as entries:
            below = []
            for entry in entries:
                names += 1
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
        if names > NAMES_PER_SET_MAX:
            raise _too_many(directory, NAMES_PER_SET_MAX)
        waiting += sorted(below, reverse=True)


def _describe(path: str) -> str:
    found = os.lstat(path)
    is_told = is_tick_over(found.st_mtime_ns, time.time_ns(), 1, is_far=False)
    return f"{path} {found.st_ino} {found.st_mtime_ns} {found.st_size}{'' if is_told else _JUST_NOW}"


def _digest(lines: Iterator[str] | Sequence[str]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()[:_MARK_DIGITS]
