"""The files of a dataset that another job published: those that its ledger has as active at one version, and no others.

The ledger is read in one transaction, once for a plan. What left it (files that a refresh or a compaction retired) may
still stand beside: a listing of the directory has such rows twice. A file that the ledger has and the source lacks was
cleaned meanwhile: then the ledger has a newer version, which is planned instead.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from gobblin_assets.commit.destination import DestinationStore
from gobblin_assets.commit.published.published_port import PublishedFiles, PublishedSegment
from gobblin_assets.errors import CorruptionError, RejectedError, RetryableError
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.fs.tree import Descend, EntryKind, Tree, TreeEntry
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec, ManifestBy
from gobblin_assets.model.path_names import path_of
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.model.wording import count_of

Planned = TypeVar("Planned")

VERSIONS_TRIED_MAX: Final = 5
"""A dataset of which files are cleaned faster than they are listed is left to a later run."""

_FIELD: Final = "manifest.job"


@dataclass(frozen=True, slots=True)
class LedgerFiles:
    """The active files of a dataset at one version: bytes by path below the dataset's directory at the source."""

    version: int
    sizes: Mapping[str, int]

    def describe(self, job: str, urn: str) -> str:
        files = count_of(len(self.sizes), "file", "files")
        return f"by the ledger of the job {job}: version {self.version} of {urn}, {files}"


class SourceLedger(Protocol):
    """Where the plan of a copy asks which files another job has published."""

    def read(self, dataset: CopyDatasetSpec) -> LedgerFiles | None:
        """The files of now. None: the job has published nothing of the dataset yet.

        RejectedError: this log is not that of the job, or the job publishes elsewhere, or in no files.
        """
        ...


class LedgerFilesGoneError(RetryableError):
    """The error for files that the ledger had, and that the source has no more."""


def reads_ledger(dataset: CopyDatasetSpec) -> bool:
    """Whether exactly what a ledger has is copied; else what is listed."""
    return dataset.manifest is not None and dataset.manifest.by is ManifestBy.LEDGER


@dataclass(frozen=True, slots=True)
class LedgerOfLog:
    """``SourceLedger`` over the log that the copy works with. ``source``: the root that the copy reads."""

    published: PublishedFiles
    destinations: DestinationStore
    source: str

    def read(self, dataset: CopyDatasetSpec) -> LedgerFiles | None:
        job, urn = origin_of(dataset)
        self._require_here(job, urn)
        directory = path_of(open_file_system(self.source)[1], job, urn)

        def read(version: int, segments: Iterator[PublishedSegment]) -> LedgerFiles:
            return LedgerFiles(version, dict(_list_sizes(segments, directory, job, urn)))

        found = self.published.scan(job, urn, role=Role.DATA, read=read)
        if found is not None and (elsewhere := self.published.find_rows_elsewhere(job, urn)) is not None:
            raise RejectedError(
                f"{urn!a} of job {job} has {elsewhere.row_count:,} rows in {elsewhere.uri}, and they are in no file",
                field=_FIELD,
                hint="Only datasets of files can be copied.",
            )
        return found

    def _require_here(self, job: JobName, urn: DatasetUrn) -> None:
        """RejectedError: the job's ledger is in another log, or is that of files below another root."""
        fs, root = open_file_system(self.source)
        binding = self.destinations.find(job)
        if binding is None:
            place = path_of(root, job, urn)
            if fs.is_directory(place):
                raise RejectedError(
                    f"this log knows no job {job}, and {place} has what such a job published: its ledger is in another "
                    "log",
                    field=_FIELD,
                    hint="Run the copy with that log, or write `by: listing` to copy the directory as it stands, with "
                    "what the ledger has no more.",
                    path=place,
                )
            return
        bound_fs, bound_root = open_file_system(binding.root_uri)
        if bound_fs.to_uri(bound_root) != fs.to_uri(root):
            raise RejectedError(
                f"the job {job} publishes to {binding.root_uri}, and the source is {fs.to_uri(root)}",
                field="source",
                hint="Write that root as the source.",
            )


def origin_of(dataset: CopyDatasetSpec) -> tuple[JobName, DatasetUrn]:
    """The job and the dataset that are copied."""
    if dataset.manifest is None:
        raise ValueError("a dataset without a manifest has no job")
    return JobName(dataset.manifest.job), DatasetUrn(dataset.manifest.urn or str(dataset.urn))


def _list_sizes(
    segments: Iterator[PublishedSegment], directory: str, job: JobName, urn: DatasetUrn
) -> Iterator[tuple[str, int]]:
    for segment in segments:
        if segment.has_given_names:
            raise RejectedError(
                f"the job {job} copies {urn!a}, and replaces files in place",
                field=_FIELD,
                hint="Name the job whose rows these are, and its root as the source, or copy the tree by its path.",
            )
        for path, size_bytes in segment.file_sizes():
            if not path.startswith(f"{directory}/"):
                raise CorruptionError(
                    f"the log has a file of {urn!a} outside its directory", path=path, directory=directory
                )
            yield path[len(directory) + 1 :], size_bytes


@dataclass(slots=True)
class LedgerListing:
    """``Tree`` that gives of another one the files of the ledger, and the directories on the way to them.

    LedgerFilesGoneError, at the end of a listing: some are missing. CorruptionError: one has another length.
    """

    tree: Tree
    files: LedgerFiles
    _on_the_way: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self._on_the_way = {
            path[:place] for path in self.files.sizes for place, letter in enumerate(path) if letter == "/"
        }

    @property
    def mtime_precision_ns(self) -> int:
        return self.tree.mtime_precision_ns

    def list_tree(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        sizes, found = self.files.sizes, 0
        if not sizes:
            return

        def goes_on(path: str) -> bool:
            return path in self._on_the_way and (descend is None or descend(path))

        for entry in self.tree.list_tree(root, goes_on):
            if entry.path in sizes:
                # A link or a directory in its place is no file of the ledger.
                if entry.kind is EntryKind.FILE:
                    _require_length(root, entry, sizes[entry.path])
                    found += 1
                    yield entry
            elif entry.kind is EntryKind.DIRECTORY and entry.path in self._on_the_way:
                yield entry
        if found < len(sizes):
            raise LedgerFilesGoneError(
                f"{root} lacks {count_of(len(sizes) - found, 'file', 'files')} of version {self.files.version}",
                hint="The next run reads the ledger again.",
            )


def _require_length(root: str, entry: TreeEntry, expected: int) -> None:
    if entry.identity.size_bytes != expected:
        raise CorruptionError(
            f"a published file is damaged: {root}/{entry.path} has {entry.identity.size_bytes} bytes, and {expected} "
            "were published",
            hint="Restore it, or materialize its partition again with --mode refresh. Nothing was copied.",
            path=f"{root}/{entry.path}",
        )


def plan_one_version(
    read: Callable[[], LedgerFiles | None], plan: Callable[[LedgerFiles], Planned]
) -> tuple[LedgerFiles, Planned] | None:
    """Plan the ledger's version of now, and a newer one if files of it are gone. None: nothing is published.

    Raises:
        CorruptionError: files are gone that the ledger still has.
        RetryableError: they are cleaned faster than they can be listed.

    """
    files = read()
    for _try in range(VERSIONS_TRIED_MAX):
        if files is None:
            return None
        try:
            return files, plan(files)
        except LedgerFilesGoneError as error:
            newer = read()
            if newer is not None and newer.version == files.version:
                raise CorruptionError(
                    f"published files are missing: {error.message}, and the ledger still has it",
                    hint="Look whether the source is mounted, or restore the files. Nothing was copied.",
                ) from error
            files = newer
    raise RetryableError(
        f"the source's files are cleaned faster than they are listed, {VERSIONS_TRIED_MAX} times in a row",
        hint="Run it again, or let the job that publishes them keep what it retires for longer: retire_grace_s.",
    )
