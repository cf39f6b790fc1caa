"""File sets of a copy, as a sensor sees them: which there are, their markers, and whether listings changed.

What was written just now may be written again within the tick of its time (``ticks``). So its mark says so, and a later
look gives another one.
"""

import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.network_files import RangedFiles
from gobblin_assets.jobs.copy.copy_assets import as_assets
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec, CopySpec
from gobblin_assets.jobs.copy.datasets import FileSet
from gobblin_assets.jobs.copy.parsing import CopyDataset, open_source_tree
from gobblin_assets.jobs.copy.ticks import is_tick_over
from gobblin_assets.jobs.programs import SetId
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.urn import DatasetUrn

NAMES_PER_SET_MAX: Final = 1_000_000
"""A look at a listing reads no more names of one set: about a second on a local disk."""

OBJECTS_PER_SET_MAX: Final = 20_000
"""The same of a store, which gives a thousand names for each request: a tick must stay far below Dagster's limit."""

_MARK_DIGITS: Final = 16
_JUST_NOW: Final = " just now"


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
