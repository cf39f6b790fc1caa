"""Parsing of a copy's options: a CopySpec and its datasets, or one RejectedError with the fix."""

import datetime as dt
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final

from pydantic import ValidationError

from gobblin_assets.destinations.claims import WORK_NAME
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.network_files import StagingFiles
from gobblin_assets.fs.registry import (
    is_object_store,
    is_only_source,
    open_file_system,
    open_object_store,
    open_tree,
    scheme_of,
)
from gobblin_assets.fs.tree import Tree
from gobblin_assets.jobs.copy.budgets import parse_tiers
from gobblin_assets.jobs.copy.converters.chain import open_chain
from gobblin_assets.jobs.copy.copy_spec import (
    CopyDatasetSpec,
    CopySpec,
    ManifestBy,
    PublishedManifestSpec,
    dataset_of,
    list_overridden,
)
from gobblin_assets.jobs.copy.copyable import WHOLE_TREE, CopyableDataset, DatasetFinder, FileSet
from gobblin_assets.jobs.copy.difference import LinkPolicy
from gobblin_assets.jobs.copy.finders import BoundedTree, open_finder
from gobblin_assets.jobs.copy.globs import parse_filters, parse_glob
from gobblin_assets.jobs.copy.kept_attributes import check_placement
from gobblin_assets.jobs.copy.manifest import ManifestDatasetFinder, parse_relative_path
from gobblin_assets.jobs.copy.sameness import SameRule
from gobblin_assets.jobs.copy.stream_finder import StreamDatasetFinder
from gobblin_assets.jobs.copy.transfer.preserve import PreserveLetter, parse_preserve
from gobblin_assets.jobs.copy.transfer.transfer_port import TransferWay
from gobblin_assets.model.partition import PartitionKind, PartitionWindow
from gobblin_assets.model.path_names import path_of
from gobblin_assets.model.urn import DatasetUrn, parse_job_name, parse_urn
from gobblin_assets.spec.job_options import PartitionsSpec
from gobblin_assets.spec.partition_keys import boundary_of
from gobblin_assets.spec.spec_errors import refuse

_NOT_FOR_NAMED_FILES = ("include", "exclude", "filters", "skip_unchanged_directories")


def said_in(error: RejectedError) -> str:
    return error.message.removeprefix(f"{error.field}: ")


def check_path(path: str, field: str) -> None:
    """RejectedError unless it is empty, for the root itself, or one below the root."""
    if path:
        parse_relative_path(path, field)
    if WORK_NAME in path.casefold().split("/"):
        raise RejectedError(
            f"{path!r} lies in a work directory, where nothing is copied from or to",
            field=field,
            hint=f"Choose a path without {WORK_NAME}.",
        )


def check_found(found: CopyableDataset) -> DatasetUrn:
    """Check the name of a dataset that a finder gives, and all its places by ``check_path``."""
    try:
        for path in (found.source, found.destination, *(each.directory for each in found.file_sets)):
            check_path(path, "finder")
        return parse_urn(found.name)
    except RejectedError as error:
        raise RejectedError(
            f"the finder gives {found.source or found.name!a}, which can't be a dataset: {said_in(error)}",
            field="finder",
            hint="Let the finder leave it out, or rename it.",
            path=found.source,
        ) from error


def check_options(dataset: CopyDatasetSpec, where: str) -> None:
    """RejectedError for an option that no dataset can have, whatever the others are. ``where``: of its field."""
    try:
        parse_filters(include=dataset.include, exclude=dataset.exclude, filters=dataset.filters)
        parse_tiers(dataset.go_first)
        for number, text in enumerate(dataset.metadata):
            parse_glob(text, field=f"metadata[{number}]")
        parse_preserve(dataset.preserve)
        open_chain(dataset.converters)
    except RejectedError as error:
        raise RejectedError(said_in(error), field=f"{where}.{error.field}", hint=error.hint) from error


def check_merged(dataset: CopyDatasetSpec, own: CopyDatasetSpec, where: str) -> None:
    """``check_copy_dataset`` of ``own`` over the defaults: an option that only these have is named as theirs."""
    try:
        check_copy_dataset(dataset, where)
    except RejectedError as error:
        below = error.field.removeprefix(f"{where}.")
        if below.partition("[")[0].partition(".")[0] in own.model_fields_set:
            raise
        raise RejectedError(said_in(error), field=f"defaults.{below}", hint=error.hint) from error


def check_copy_dataset(dataset: CopyDatasetSpec, where: str) -> None:
    """RejectedError for options that a dataset can't have, alone or together."""
    if where != "defaults" and dataset.partitions.kind is not PartitionKind.NONE:
        raise RejectedError(
            "the partitions of a copy are file sets, which a finder finds",
            field=f"{where}.partitions",
            hint="Write a finder, and the partitions under defaults; or leave them out.",
        )
    check_options(dataset, where)
    if dataset.same is SameRule.CHECKSUM and dataset.converters:
        raise RejectedError(
            "the bytes of both sides are not to be the same where converters change them",
            field=f"{where}.same",
            hint="Write `same: mtime`: a converted file has the time of its origin.",
        )
    if dataset.converters and "split" in dataset.model_fields_set:
        raise RejectedError(
            "a file that is converted is read from its beginning to its end",
            field=f"{where}.split",
            hint="Leave it out, or give the files that are converted a dataset of their own.",
        )
    _check_manifest(dataset, where)
    if dataset.on_change == "leave_out" and (dataset.converters or dataset.skip_unchanged_directories):
        raise RejectedError(
            "a file that was left out would be overlooked, or be a part of a converted one",
            field=f"{where}.on_change",
            hint="Leave it out, or leave skip_unchanged_directories and converters out.",
        )
    if dataset.converters and dataset.skip_unchanged_directories:
        raise RejectedError(
            "directories are listed by the names that converters give, each time",
            field=f"{where}.skip_unchanged_directories",
            hint="Leave it out.",
        )
    by_time = (
        dataset.same is SameRule.MTIME and dataset.attributes == "leave" and dataset.links is not LinkPolicy.FOLLOW
    )
    if dataset.skip_unchanged_directories and (not by_time or dataset.converters):
        raise RejectedError(
            "files that are not looked at can't be treated as `same`, `attributes`, `links` or `converters` ask for",
            field=f"{where}.skip_unchanged_directories",
            hint="Leave it out, or these options as they are by default (mtime, leave, fail or skip, none).",
        )
    if (
        dataset.same is SameRule.MTIME
        and PreserveLetter.MODIFICATION_TIME not in parse_preserve(dataset.preserve).letters
    ):
        raise RejectedError(
            "files are compared by their times, and the copies would not keep them",
            field=f"{where}.preserve",
            hint="Add t to preserve, or write `same: checksum`.",
        )


_NOT_FOR_LEDGERS: Final = (
    *_NOT_FOR_NAMED_FILES,
    "converters",
    "files_per_run_max",
    "bytes_per_run_max",
)


def _check_manifest(dataset: CopyDatasetSpec, where: str) -> None:
    """RejectedError for options by which less than a version would be copied."""
    if dataset.manifest is None or dataset.manifest.by is ManifestBy.LISTING:
        return
    if dataset.on_change == "leave_out":
        raise _refuse_part(f"{where}.on_change")
    for name in _NOT_FOR_LEDGERS:
        if getattr(dataset, name):
            raise _refuse_part(f"{where}.{name}")


def _refuse_part(field: str) -> RejectedError:
    return RejectedError(
        "a version of a ledger is copied as a whole, as it is",
        field=field,
        hint="Take it out, or write `by: listing` under manifest.",
    )


def check_partitions(partitions: PartitionsSpec, finder: DatasetFinder) -> None:
    """Partitions that a job wants for found file sets. RejectedError names what its finder can't give."""
    kind, field = partitions.kind, "defaults.partitions"
    if kind is PartitionKind.STATIC:
        raise RejectedError(
            "the keys of found file sets are found", field=f"{field}.kind", hint="Leave it out, or write dynamic."
        )
    if not kind.is_time:
        return
    if not isinstance(finder, StreamDatasetFinder) or finder.dates.kind is not kind:
        gives = f"{finder.dates.kind} ones" if isinstance(finder, StreamDatasetFinder) else "no windows of time"
        raise RejectedError(
            f"expected file sets that are {kind} windows, and the finder gives {gives}",
            field=f"{field}.kind",
            hint="Write a finder of the kind stream with a pattern for these windows.",
        )
    if partitions.start is None:
        raise RejectedError(
            "expected a start, found none", field=f"{field}.start", hint="Give the date of the first window."
        )
    if partitions.zone != finder.dates.zone.key:
        raise RejectedError(
            f"expected the finder's zone {finder.dates.zone.key}, found {partitions.zone}",
            field=f"{field}.zone",
            hint="Write the same zone in both places.",
        )


def check_named_files(finder: DatasetFinder, dataset: CopyDatasetSpec, where: str) -> None:
    """RejectedError for options that choose files where a manifest names them."""
    if not isinstance(finder, ManifestDatasetFinder):
        return
    for name in _NOT_FOR_NAMED_FILES:
        if getattr(dataset, name):
            raise RejectedError(
                "would have no effect: exactly the files that the manifest names are copied",
                field=f"{where}.{name}",
                hint="Take it out, and make a manifest of the files that are wanted.",
            )


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
        if not self.found.file_sets:
            raise RejectedError(
                f"the source has nothing of {self.found.name} now", field="source", hint="Look whether it was removed."
            )
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
    check_options(spec.defaults, "defaults")
    _check_places(spec)
    if spec.trigger.marker is not None:
        check_path(spec.trigger.marker, "trigger.marker")
    for name in _NOT_FOR_DEFAULTS:
        if getattr(spec.defaults, name) is not None:
            raise RejectedError("belongs to one dataset", field=f"defaults.{name}", hint="Take it out of the defaults.")
    if spec.rate is not None and spec.rate.bytes_per_s is None and spec.rate.files_per_s is None:
        raise RejectedError("limits nothing", field="rate", hint="Write bytes_per_s, files_per_s, or both.")
    if spec.finder is not None:
        if spec.datasets:
            raise RejectedError(
                "expected datasets or a finder, found both",
                field="finder",
                hint="Let the finder find them; options go under defaults, and those of some datasets under overrides.",
            )
        finder = open_finder(spec.finder)
        check_partitions(spec.defaults.partitions, finder)
        check_copy_dataset(spec.defaults, "defaults")
        check_named_files(finder, spec.defaults, "defaults")
        for number, own in enumerate(spec.overrides):
            check_named_files(finder, own, f"overrides[{number}]")
        _refuse_found_manifests(spec)
    overridden = list_overridden(spec)
    for number, each in enumerate(overridden):
        merged = each.model_copy(update={"partitions": PartitionsSpec()})
        check_merged(merged, spec.overrides[number], f"overrides[{number}]")
    check_placement(spec)
    written = _list_written(spec)
    _check_ledgers(spec, written)
    _check_network(spec, [*written, *overridden])
    _require_apart([_place_of(each, f"datasets[{n}]") for n, each in enumerate(written)])
    return spec


def _refuse_found_manifests(spec: CopySpec) -> None:
    for field, each in [("defaults", spec.defaults), *((f"overrides[{n}]", e) for n, e in enumerate(spec.overrides))]:
        if each.manifest is not None:
            raise RejectedError(
                "names a dataset, and these are found",
                field=f"{field}.manifest",
                hint="Write the datasets under `datasets`, without a finder.",
            )


def _check_ledgers(spec: CopySpec, written: Sequence[CopyDatasetSpec]) -> None:
    """RejectedError for a job that can't copy by a ledger."""
    if not any(each.manifest is not None and each.manifest.by is ManifestBy.LEDGER for each in written):
        return
    for name in ("files_per_run_max", "bytes_per_run_max"):
        if getattr(spec, name) is not None:
            raise _refuse_part(name)
    if is_only_source(spec.source):
        raise RejectedError(
            f"no job publishes to {scheme_of(spec.source)}, whose ledger could be read",
            field="source",
            hint="Write the root of the job, or `by: listing` under manifest.",
        )


def _check_network(spec: CopySpec, others: Sequence[CopyDatasetSpec]) -> None:
    """Refuse what is for local and mounted file systems only."""
    over_network = [
        field
        for field, uri in (("source", spec.source), ("destination", spec.destination))
        if is_object_store(uri) or is_over_network(uri)
    ]
    datasets = (spec.defaults, *others)
    if over_network and any(each.converters for each in datasets):
        raise RejectedError(
            f"files are converted between local and mounted file systems only, and the {over_network[0]} is none",
            field="converters",
            hint="Copy them to a file system as they are, and from there with converters.",
        )
    if over_network and spec.transfer is TransferWay.SPARK:
        raise RejectedError(
            f"Spark copies between file systems that its executors mount, and the {over_network[0]} is none",
            field="transfer",
            hint="Write `transfer: auto`, or leave it out.",
        )
    if is_object_store(spec.source) and any(each.skip_unchanged_directories for each in datasets):
        raise RejectedError(
            "a bucket's directories have no times",
            field="skip_unchanged_directories",
            hint="Leave it out: each object is listed.",
        )
    if is_only_source(spec.source) and any(each.skip_unchanged_directories for each in datasets):
        raise RejectedError(
            f"directories of {scheme_of(spec.source)} have no times, or too coarse ones, to tell that nothing changed",
            field="skip_unchanged_directories",
            hint="Leave it out: each directory is listed.",
        )


def find_copy_datasets(
    spec: CopySpec, now: dt.datetime, *, entries_max: int | None = None
) -> dict[DatasetUrn, CopyDataset]:
    """The datasets of the job, as written or as its finder finds them now. ``now`` is aware.

    ``entries_max``: a finder that would look at more entries is a RejectedError; None: it may look at all.
    RejectedError if links make one root lie inside the other.
    """
    _require_distinct(
        *(
            (store, os.path.realpath(path) if store == "file://" else path)
            for store, path in (_place_at(spec.source), _place_at(spec.destination))
        )
    )
    if spec.finder is None:
        return {
            DatasetUrn(str(each.urn)): CopyDataset(each, _place_of(each, "datasets")) for each in _list_written(spec)
        }
    whole, root = open_source_tree(spec.source, spec.defaults)
    tree = whole if entries_max is None else BoundedTree(whole, entries_max)
    found = _between_bounds(spec.defaults.partitions, open_finder(spec.finder).find_datasets(tree, root, now))
    urns = [check_found(each) for each in found]
    _require_apart(found)
    return {urn: CopyDataset(_with_sets(spec, each), each) for urn, each in zip(urns, found, strict=True)}


def open_source_tree(source: str, spec: CopyDatasetSpec) -> tuple[Tree, str]:
    """The tree to copy from, and its root. Where another copy's destination is the source, its work stays out.

    Its listings have the order of the names that the converters give.
    """
    chain = open_chain(spec.converters)
    follows = spec.links is LinkPolicy.FOLLOW
    order = chain.sort_key_of if chain.steps else None
    try:
        return open_tree(source, "source", hidden=frozenset({WORK_NAME}), follow_links=follows, order=order)
    except RejectedError as error:
        if error.field != "destination":
            raise
        # File systems know their roots as destinations.
        raise RejectedError(said_in(error), field="source", hint=error.hint) from error


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
        manifest = each.manifest or spec.defaults.manifest
        if manifest is not None:
            path = _find_published_place(manifest, each, urn, where)
        merged = {**own, "urn": parse_urn(urn), "path": path, "to": path if each.to is None else each.to}
        dataset = spec.defaults.model_copy(update=merged)
        check_merged(dataset, each, where)
        datasets.append(dataset)
    urns = [each.urn for each in datasets]
    for number, urn in enumerate(urns):
        if urn in urns[:number]:
            raise RejectedError(
                f"two datasets are called {urn!r}", field=f"datasets[{number}].urn", hint="Give one another name."
            )
    return datasets


def _find_published_place(manifest: PublishedManifestSpec, dataset: CopyDatasetSpec, urn: str, where: str) -> str:
    """The directory below the source in which the manifest's job publishes the dataset."""
    if dataset.path is not None:
        raise RejectedError(
            "the job of the manifest says where its files are",
            field=f"{where}.path",
            hint="Take it out. `to` says where they are copied to.",
        )
    try:
        job = parse_job_name(manifest.job)
        published = parse_urn(urn if manifest.urn is None else manifest.urn)
    except RejectedError as error:
        raise RejectedError(said_in(error), field=f"{where}.manifest.{error.field}", hint=error.hint) from None
    return path_of("", job, published).removeprefix("/")


def _between_bounds(partitions: PartitionsSpec, found: Sequence[CopyableDataset]) -> list[CopyableDataset]:
    """The datasets that have windows between the first partition and the last, without their other windows."""
    if partitions.start is None:
        return list(found)
    start = boundary_of(partitions, partitions.start)
    end = None if partitions.end is None else boundary_of(partitions, partitions.end)

    def is_between(window: PartitionWindow | None) -> bool:
        return window is None or (window.start >= start and (end is None or window.end <= end))

    kept = [replace(each, file_sets=tuple(s for s in each.file_sets if is_between(s.window))) for each in found]
    return [each for each in kept if each.file_sets]


def _with_sets(spec: CopySpec, found: CopyableDataset) -> CopyDatasetSpec:
    keys = tuple(each.key for each in found.file_sets)
    return dataset_of(spec, found.name, found.source, found.destination, keys if any(keys) else ())


def _place_of(dataset: CopyDatasetSpec, where: str) -> CopyableDataset:
    for name in ("path", "to"):
        check_path(str(getattr(dataset, name)), f"{where}.{name}")
    return CopyableDataset(str(dataset.urn), str(dataset.path), str(dataset.to), (FileSet(""),))


def without_sets(dataset: CopyDatasetSpec) -> CopyableDataset:
    """A dataset that was found before, and is not there now."""
    return CopyableDataset(str(dataset.urn), str(dataset.path), str(dataset.to), ())


def _check_places(spec: CopySpec) -> None:
    _refuse_parameters(spec.source)
    open_source_tree(spec.source, spec.defaults)
    open_file_system(spec.destination)
    _require_distinct(_place_at(spec.source), _place_at(spec.destination))
    if is_object_store(spec.destination):
        _refuse_for_objects(spec)


def _refuse_parameters(source: str) -> None:
    """RejectedError for a signed URI: its signature would be taken for a part of the path, which errors name."""
    if scheme_of(source) != "file" and "=" in source.partition("?")[2]:
        raise RejectedError(
            "the URI has parameters, which may hold a key",
            field="source",
            hint="Take them out: keys are given in the environment. If a directory is called so, name the one above it "
            "as the source, and this one as a dataset.",
        )


def _refuse_for_objects(spec: CopySpec) -> None:
    """RejectedError for options that only copies to files have."""
    listed = (("datasets", spec.datasets), ("overrides", spec.overrides))
    datasets = [(f"{name}[{n}].converters", each.converters) for name, all_ in listed for n, each in enumerate(all_)]
    for field, value in [("defaults.converters", spec.defaults.converters), *datasets]:
        if value:
            raise RejectedError(
                "expected none where the destination is a bucket",
                field=field,
                hint="Take it out, or copy to a directory.",
            )


def is_over_network(uri: str) -> bool:
    """Whether files are read and written there through calls of a client, and not of the operating system."""
    if is_object_store(uri):
        return False
    return is_only_source(uri) or isinstance(open_file_system(uri)[0], StagingFiles)


def _place_at(uri: str) -> tuple[str, str]:
    """The store or file system, told apart from others, and the path there, as it is written."""
    if is_object_store(uri):
        return f"{scheme_of(uri)}://", open_object_store(uri, "source")[1]
    if is_only_source(uri):
        return f"{scheme_of(uri)}://", "/"  # never a destination's
    files, path = open_file_system(uri)
    return files.to_uri(""), path


def _require_distinct(source: tuple[str, str], destination: tuple[str, str]) -> None:
    """RejectedError for two roots of which one lies inside the other."""
    if source[0] != destination[0]:
        return
    for inner, outer, field in ((destination[1], source[1], "destination"), (source[1], destination[1], "source")):
        if PurePosixPath(inner).is_relative_to(outer):
            raise RejectedError(
                f"{inner} lies inside {outer}", field=field, hint="Copy between two trees that lie apart."
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
