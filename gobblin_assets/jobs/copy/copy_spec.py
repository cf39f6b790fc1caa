"""The specification of a copy: a job of the kind ``distcp``.

job: mirror
kind: distcp
source: /data/in
destination: /data/out
datasets:
  - urn: photos
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, TypeAdapter

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy.budgets import read_share
from gobblin_assets.jobs.copy.difference import Deletes, LinkPolicy
from gobblin_assets.jobs.copy.globs import parse_glob
from gobblin_assets.jobs.copy.sameness import SameRule
from gobblin_assets.jobs.copy.transfer.transfer_port import TransferWay
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.model.policy import CommitPolicy
from gobblin_assets.spec.job_options import DatasetOptions, JobOptions, PartitionsSpec
from gobblin_assets.spec.job_spec import PackerSpec
from gobblin_assets.spec.spec_model import DAY_S, SpecModel, Whole, refused

TRASH_KEEP_S: Final = 7 * DAY_S

REUSE_KEEP_S: Final = DAY_S

DELETE_MAX: Final = 1_000

REPLICATION_MAX: Final = 512
"""HDFS's own default bound."""


def _read_off(value: object) -> object:
    """YAML takes ``off`` without quotes for a boolean, as it takes ``on`` and ``yes``."""
    if value is False:
        return Deletes.OFF
    if value is True:
        raise refused("expected which files are removed; found True", hint="Write 'ours' or 'all'")
    return value


def _read_delete_max(value: object) -> object:
    if isinstance(value, str) and value.endswith("%"):
        try:
            read_share(value)
        except ValueError:
            raise refused(f"expected a share from 0% to 100%; found {value!r}", hint="Write it like 20%") from None
        return value
    found = TypeAdapter(int).validate_python(value)
    if found < 0:
        raise refused(f"expected no number below 0; found {found}", hint="Write 0 to refuse all removals")
    return found


DeleteMax = Annotated[int | str, BeforeValidator(_read_delete_max)]

DeletesWord = Annotated[Deletes, BeforeValidator(_read_off)]


class FileSplitSpec(SpecModel):
    """The division of large files among several writers at once."""

    bytes_min: Whole = Field(
        1 << 30,
        ge=1,
        description="A larger file is copied in parts of so many bytes, which are checked and put together.",
    )


class CopyRateSpec(SpecModel):
    """A rate that every job with this name keeps, on all machines together; all of them write the same rate."""

    name: str = Field(min_length=1, max_length=200, description="Jobs that name the same rate share it.")
    bytes_per_s: float | None = Field(None, gt=0, allow_inf_nan=False, description="Bytes that all of them copy.")
    files_per_s: float | None = Field(None, gt=0, allow_inf_nan=False, description="Files that all of them copy.")
    shares: int = Field(
        1, ge=1, le=1_000, description="So many copies run at once, each with an equal share of the rate; others wait."
    )


class ManifestBy(StrEnum):
    """What says which files of a published dataset are copied."""

    LEDGER = "ledger"  # the log of the job that publishes them
    LISTING = "listing"  # the dataset's directory


class PublishedManifestSpec(SpecModel):
    """A dataset of another job of this log, whose ledger is the manifest of the copy."""

    job: str = Field(description="The job that publishes it, below the source.")
    urn: str | None = Field(None, description="The dataset, as that job calls it; default: as this one is called.")
    by: ManifestBy = Field(
        ManifestBy.LEDGER,
        description="What says which files are copied: `ledger`, those that are active at one version; or `listing`, "
        "all in the dataset's directory, with those that a refresh has retired. A ledger in another log can't be read.",
    )


class CopyDatasetSpec(DatasetOptions):
    """One dataset: a directory tree. Fields that are left out come from the job's ``defaults``."""

    path: str | None = Field(None, description="Directory below the source; default: the URN. Empty: all of it.")
    to: str | None = Field(None, description="Directory below the destination; default: the path.")
    manifest: PublishedManifestSpec | None = Field(
        None,
        description="Copy exactly the files that another job's ledger has of a dataset, with the directories below it; "
        "`path` is then where that job publishes.",
    )
    include: tuple[str, ...] = Field((), description="Copy only files that match one of these globs, as in rclone.")
    exclude: tuple[str, ...] = Field((), description="Leave out files that match one of these globs.")
    filters: tuple[str, ...] = Field(
        (), description="Instead of both: `+ <glob>` and `- <glob>` in order; the first that matches decides."
    )
    same: SameRule = Field(
        SameRule.MTIME,
        description="What tells that a file needs no copy: length and time, the bytes of both sides, or never.",
    )
    deletes: DeletesWord = Field(
        Deletes.OFF, description="Remove files that the source lacks: none, those that this job published, or all."
    )
    delete_max: DeleteMax = Field(
        DELETE_MAX,
        description="A run that would remove more files is refused: a number, or a share of the files that are at "
        'the destination, such as "20%".',
    )
    on_change: Literal["fail", "leave_out"] = Field(
        "fail",
        description="What becomes of a file set of which a file changes, or goes, while it is copied: nothing of it is "
        "published, or this file is left to a later run, and with it metadata and removals.",
    )
    preserve: str = Field(
        "pt",
        description="Attributes to keep, by Gobblin's letters: u owner, g group, p permission, t time, a access lists, "
        "x extended attributes. Directories of HDFS keep u, g, r replication and b block size of one another; v means "
        "nothing, and objects have only times.",
    )
    replication: int | None = Field(
        None, ge=1, le=REPLICATION_MAX, description="How many copies HDFS keeps of each block, whatever the origin has."
    )
    block_bytes: Whole | None = Field(
        None, ge=1, description="The size of the blocks of files on HDFS, whatever the origin has."
    )
    attributes: Literal["leave", "sync"] = Field(
        "leave", description="A file whose attributes alone differ is left, or copied again."
    )
    links: LinkPolicy = Field(LinkPolicy.FAIL, description="Links and special files of the source.")
    converters: tuple[str | dict[str, Any], ...] = Field(
        (),
        description="What becomes of files on the way, step by step: the kinds of converters, or mappings with `kind` "
        "and options; docs/COPIES_REFERENCE.md has them.",
    )
    ignore_case: bool = Field(
        False, description="Refuse names that differ by case only, also where the destination tells them apart."
    )
    files_per_run_max: Whole | None = Field(None, ge=1, description="After so many files, a run begins no other item.")
    bytes_per_run_max: Whole | None = Field(None, ge=1, description="The same in bytes.")
    skip_unchanged_directories: bool = Field(
        False,
        description="Do not list a directory of the source again whose modification time stayed since the last "
        "complete copy. Files that are written in place are then not noticed.",
    )
    go_first: tuple[str, ...] = Field(
        (),
        description="Globs of files that go first where a run does not copy everything: those of the first glob, then "
        "those of the second, and so on. A new directory goes with its most urgent file; metadata waits for all files.",
    )
    priority: int = Field(
        0, ge=0, description="File sets of a lower number go first, where the job's budget is not enough for all."
    )
    split: FileSplitSpec = FileSplitSpec()
    metadata: tuple[str, ...] = Field(
        ("_SUCCESS", "_SUCCESS.*", "metadata/**", "*.manifest"),
        description="Globs of files that are published after all others, because they say that these are there.",
    )

    @property
    def finds_partitions(self) -> bool:
        """A finder finds the file sets."""
        return True


class CopyOverrideSpec(CopyDatasetSpec):
    """Options of the found datasets whose names match, over the job's ``defaults``; a later override wins."""

    match: str = Field(min_length=1, description="A glob over the names of datasets, such as `topics/*`.")


class TriggerSpec(SpecModel):
    """The trigger that starts the copy of a file set in Dagster, by the job's sensor ``<job>_new_data_sensor``."""

    marker: str | None = Field(
        None,
        min_length=1,
        description="A file of each set, such as _SUCCESS: a set is copied when the file is there, and again when the "
        "file has changed. Without it: when a name in the set's directories has come, gone or been replaced.",
    )
    interval_s: int = Field(30, ge=5, description="How often the sensor looks.")
    running: bool = Field(False, description="Whether the sensor runs without being turned on.")


class CopySpec(JobOptions):
    """A job that copies files: one source tree, one destination tree, and datasets that are directories of both."""

    kind: Literal["distcp"] = Field("distcp", description="What the job does.")
    source: str = Field(
        description="Root directory to copy from: an absolute path, a file:// URI, or s3://<bucket>/<prefix>."
    )
    destination: str = Field(
        description="Root directory to copy to: an absolute path, a file:// URI, or s3://<bucket>/<prefix>."
    )
    datasets: tuple[CopyDatasetSpec, ...] = ()
    finder: dict[str, Any] | None = Field(
        None, description="How datasets are found below the source: `kind` (glob, stream, manifest) and its options."
    )
    defaults: CopyDatasetSpec = CopyDatasetSpec()
    overrides: tuple[CopyOverrideSpec, ...] = Field((), description="Options of some of the datasets of a finder.")
    trigger: TriggerSpec = TriggerSpec()
    workers: int = Field(4, ge=1, le=256, description="Files that this machine copies at once.")
    transfer: TransferWay = Field(
        TransferWay.AUTO,
        description="Who copies: this machine (local), the executors of Spark (spark), or (auto) the executors where a "
        "run asks for Spark on several, each of them sees both sides, and the copy is large.",
    )
    verify: Literal["length", "reread"] = Field(
        "length", description="Before a copy is published: compare lengths, or read it again and compare its CRC32C."
    )
    files_per_run_max: Whole | None = Field(
        None, ge=1, description="After so many files of all file sets, a run begins no other item."
    )
    bytes_per_run_max: Whole | None = Field(None, ge=1, description="The same in bytes.")
    rate: CopyRateSpec | None = Field(None, description="A limit of bytes and files a second, shared with other jobs.")
    trash_keep_s: float = Field(
        TRASH_KEEP_S, ge=0, allow_inf_nan=False, description="How long replaced and removed files are kept, in seconds."
    )

    reuse_keep_s: float = Field(
        REUSE_KEEP_S,
        ge=0,
        allow_inf_nan=False,
        description="How long files that a failed or killed run copied are kept, in seconds. The next run takes those "
        "whose origin has not changed, instead of copying them again. 0: none are kept.",
    )

    @property
    def takes_all_partitions(self) -> bool:
        """File sets that are the same cost a listing."""
        return True

    @property
    def commit_policy(self) -> CommitPolicy:
        """A file set is published whole or not at all."""
        return CommitPolicy.FULL

    @property
    def rows_per_s_max(self) -> float | None:
        """Copies count no rows."""
        return None

    @property
    def packer(self) -> PackerSpec:
        """A file set is one WorkUnit."""
        return PackerSpec()

    @property
    def compaction(self) -> None:
        """Files stay as they are."""
        return

    @property
    def retire_grace_s(self) -> float:
        """Nothing is retired: replaced files stay in their slots."""
        return 0.0


_MATCH = "match"
# What a finder says of each dataset, or what holds for the job's partitions as a whole.
_NOT_FOR_OVERRIDES = ("urn", "path", "to", "partitions")


def dataset_of(job: CopySpec, urn: str, path: str, to: str, keys: Sequence[str]) -> CopyDatasetSpec:
    """The options of a found dataset: with named file sets, ``keys``, these are its partitions."""
    options = job.defaults
    for number, each in enumerate(job.overrides):
        if parse_glob(each.match, field=f"overrides[{number}].match").matches(urn):
            options = _over(options, each)
    kind = PartitionKind.STATIC if keys else PartitionKind.NONE
    update = {"urn": urn, "path": path, "to": to, "partitions": PartitionsSpec(kind=kind, keys=tuple(keys))}
    return options.model_copy(update=update)


def list_overridden(job: CopySpec) -> list[CopyDatasetSpec]:
    """The defaults under each override, as datasets with that one get them. RejectedError names a wrong override."""
    if job.overrides and job.finder is None:
        raise RejectedError(
            "expected a finder, whose datasets these are for",
            field="overrides",
            hint="Write the options with the datasets themselves, under `datasets`.",
        )
    for number, each in enumerate(job.overrides):
        where = f"overrides[{number}]"
        parse_glob(each.match, field=f"{where}.{_MATCH}")
        wrong = next((name for name in _NOT_FOR_OVERRIDES if name in each.model_fields_set), None)
        if wrong is not None:
            raise RejectedError("is not to be overridden", field=f"{where}.{wrong}", hint="Take it out.")
    return [_over(job.defaults, each) for each in job.overrides]


def _over(options: CopyDatasetSpec, override: CopyDatasetSpec) -> CopyDatasetSpec:
    own = {name: getattr(override, name) for name in override.model_fields_set if name != _MATCH}
    return options.model_copy(update=own)
