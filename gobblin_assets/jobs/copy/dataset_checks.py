"""What the options of one dataset of a copy may be. Pure."""

from gobblin_assets.destinations.claims import WORK_NAME
from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy.budgets import parse_tiers
from gobblin_assets.jobs.copy.converters.chain import open_chain
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec
from gobblin_assets.jobs.copy.datasets import CopyableDataset, DatasetFinder
from gobblin_assets.jobs.copy.difference import LinkPolicy
from gobblin_assets.jobs.copy.filters import parse_filters
from gobblin_assets.jobs.copy.globs import parse_glob
from gobblin_assets.jobs.copy.manifest import ManifestDatasetFinder
from gobblin_assets.jobs.copy.manifest_lines import parse_relative_path
from gobblin_assets.jobs.copy.sameness import SameRule
from gobblin_assets.jobs.copy.stream_finder import StreamDatasetFinder
from gobblin_assets.jobs.copy.transfer.preserve import PreserveLetter, parse_preserve
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.model.urn import DatasetUrn, parse_urn
from gobblin_assets.spec.job_options import PartitionsSpec

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
    """Of a dataset that a finder gives: its name, and ``check_path`` of all its places."""
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
