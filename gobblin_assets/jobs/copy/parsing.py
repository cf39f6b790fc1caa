"""Turns the options of a copy into a CopySpec and its datasets, or into one RejectedError with the fix."""

import datetime as dt
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from pydantic import ValidationError

from gobblin_assets.destinations.named_tree import WORK_NAME
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.posix_tree import PosixTree
from gobblin_assets.fs.registry import open_file_system, scheme_of
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec, CopySpec
from gobblin_assets.jobs.copy.datasets import WHOLE_TREE, CopyableDataset, FileSet
from gobblin_assets.jobs.copy.difference import LinkPolicy
from gobblin_assets.jobs.copy.filters import parse_filters
from gobblin_assets.jobs.copy.finders import open_finder
from gobblin_assets.jobs.copy.globs import parse_glob
from gobblin_assets.jobs.copy.sameness import SameRule
from gobblin_assets.jobs.copy.transfer.preserve import PreserveLetter, parse_preserve
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.model.urn import DatasetUrn, parse_job_name, parse_urn
from gobblin_assets.spec.job_options import PartitionsSpec
from gobblin_assets.spec.spec_errors import refuse

_NOT_FOR_DEFAULTS: Final = ("urn", "path", "to")


@dataclass(frozen=True, slots=True)
class CopyDataset:
    """One dataset of a job, with what was found of it."""

    spec: CopyDatasetSpec
    found: CopyableDataset

    def find_set(self, key: str | None) -> FileSet:
        """RejectedError for a key that no file set has."""
        for each in self.found.file_sets:
            if each.key == (key or ""):
                return each
        known = ", ".join(each.key for each in self.found.file_sets[:20]) or "none"
        raise RejectedError(
            f"{self.found.name} has no file set {key!r}",
            field="partition",
            hint=f"It has: {known}.",
        )


def read_copy(options: Mapping[str, object]) -> CopySpec:
    """The specification of a job of the kind ``distcp``, alone and together. RejectedError names the field."""
    try:
        spec = CopySpec.model_validate(options)
    except ValidationError as error:
        # Without its cause: pydantic's own text repeats what was found, secrets included.
        raise refuse(error, CopySpec) from None
    parse_job_name(spec.job)
    _check_places(spec)
    for name in _NOT_FOR_DEFAULTS:
        if getattr(spec.defaults, name) is not None:
            raise RejectedError("belongs to one dataset", field=f"defaults.{name}", hint="Take it out of the defaults.")
    if spec.finder is not None:
        if spec.datasets:
            raise RejectedError(
                "expected datasets or a finder, found both",
                field="finder",
                hint="Let the finder find them; options for all of them go under defaults.",
            )
        open_finder(spec.finder)
        _check_dataset(spec.defaults, "defaults")
    _require_apart([_place_of(each, f"datasets[{n}]") for n, each in enumerate(_list_written(spec))])
    return spec


def find_copy_datasets(spec: CopySpec, now: dt.datetime) -> dict[DatasetUrn, CopyDataset]:
    """The datasets of the job, as written or as its finder finds them now. ``now`` is aware.

    RejectedError if links make one root lie inside the other.
    """
    (_fs, source), (_to, root) = open_file_system(spec.source), open_file_system(spec.destination)
    _require_distinct(os.path.realpath(source), os.path.realpath(root))
    if spec.finder is None:
        return {
            DatasetUrn(str(each.urn)): CopyDataset(each, _place_of(each, "datasets")) for each in _list_written(spec)
        }
    tree, root = open_source_tree(spec.source, spec.defaults)
    found = open_finder(spec.finder).find_datasets(tree, root, now)
    _require_apart(found)
    return {parse_urn(each.name): CopyDataset(_with_sets(spec.defaults, each), each) for each in found}


def open_source_tree(source: str, spec: CopyDatasetSpec) -> tuple[PosixTree, str]:
    """The tree to copy from, and its root. Where another copy's destination is the source, its work stays out."""
    _fs, root = open_file_system(source)
    return PosixTree("source", hidden=frozenset({WORK_NAME}), follow_links=spec.links is LinkPolicy.FOLLOW), root


def _list_written(spec: CopySpec) -> list[CopyDatasetSpec]:
    """The written datasets with defaults and names; without any and without a finder, the whole tree is one."""
    if spec.finder is not None:
        return []
    written = spec.datasets or (CopyDatasetSpec(urn=WHOLE_TREE, path=""),)
    datasets = []
    for number, each in enumerate(written):
        where = f"datasets[{number}]"
        own = {name: getattr(each, name) for name in each.model_fields_set}
        urn = each.urn or each.path
        if not urn:
            raise RejectedError("expected a name, found none", field=f"{where}.urn", hint="Write urn, path, or both.")
        path = urn if each.path is None else each.path
        merged = {**own, "urn": parse_urn(urn), "path": path, "to": path if each.to is None else each.to}
        dataset = spec.defaults.model_copy(update=merged)
        _check_dataset(dataset, where)
        datasets.append(dataset)
    urns = [each.urn for each in datasets]
    for number, urn in enumerate(urns):
        if urn in urns[:number]:
            raise RejectedError(
                f"two datasets are called {urn!r}", field=f"datasets[{number}].urn", hint="Give one another name."
            )
    return datasets


def _with_sets(defaults: CopyDatasetSpec, found: CopyableDataset) -> CopyDatasetSpec:
    """The options of a found dataset: with named file sets, these are its partitions."""
    update: dict[str, object] = {"urn": found.name, "path": found.source, "to": found.destination}
    if any(each.key for each in found.file_sets):
        keys = tuple(each.key for each in found.file_sets)
        update["partitions"] = PartitionsSpec(kind=PartitionKind.STATIC, keys=keys)
    return defaults.model_copy(update=update)


def _place_of(dataset: CopyDatasetSpec, where: str) -> CopyableDataset:
    for name in ("path", "to"):
        _check_path(str(getattr(dataset, name)), f"{where}.{name}")
    return CopyableDataset(str(dataset.urn), str(dataset.path), str(dataset.to), (FileSet(""),))


def _check_path(path: str, field: str) -> None:
    if path.startswith("/") or ".." in path.split("/") or "\0" in path or path != path.strip("/"):
        raise RejectedError(
            f"expected a path below the root, found {path!r}",
            field=field,
            hint="Write it without a slash at its ends and without `..`.",
        )
    if WORK_NAME in path.split("/"):
        raise RejectedError(
            f"{path!r} lies in a work directory, where nothing is copied from or to",
            field=field,
            hint=f"Choose a path without {WORK_NAME}.",
        )


def _check_places(spec: CopySpec) -> None:
    if scheme_of(spec.source) != "file":
        raise RejectedError(
            f"expected an absolute path or a file:// URI, found the scheme {scheme_of(spec.source)!r}",
            field="source",
            hint="Mount the source, and name the directory.",
        )
    (_fs, source), (_to, root) = open_file_system(spec.source), open_file_system(spec.destination)
    _require_distinct(source, root)


def _require_distinct(source: str, destination: str) -> None:
    """RejectedError for two roots of which one lies inside the other, as their paths are written."""
    for inner, outer, field in ((destination, source, "destination"), (source, destination, "source")):
        if PurePosixPath(inner).is_relative_to(outer):
            raise RejectedError(
                f"{inner} lies inside {outer}", field=field, hint="Copy between two trees that lie apart."
            )


def _check_dataset(dataset: CopyDatasetSpec, where: str) -> None:
    try:
        parse_filters(include=dataset.include, exclude=dataset.exclude, filters=dataset.filters)
        for number, text in enumerate(dataset.metadata):
            parse_glob(text, field=f"metadata[{number}]")
        preserve = parse_preserve(dataset.preserve)
    except RejectedError as error:
        said = error.message.removeprefix(f"{error.field}: ")
        raise RejectedError(said, field=f"{where}.{error.field}", hint=error.hint) from error
    if dataset.same is SameRule.MTIME and PreserveLetter.MODIFICATION_TIME not in preserve.letters:
        raise RejectedError(
            "files are compared by their times, and the copies would not keep them",
            field=f"{where}.preserve",
            hint="Add t to preserve, or write `same: checksum`.",
        )


def _require_apart(datasets: Sequence[CopyableDataset]) -> None:
    """RejectedError for two datasets of which one's place at the destination lies inside the other's."""
    ordered = sorted(datasets, key=lambda each: PurePosixPath(each.destination).parts)
    for before, after in itertools.pairwise(ordered):
        if PurePosixPath(after.destination).is_relative_to(before.destination or "."):
            raise RejectedError(
                f"{after.name} would be copied into {before.name} ({after.destination!r} lies inside "
                f"{before.destination or '.'!r})",
                field="datasets",
                hint="Give each dataset a directory of its own: `to`.",
            )
