"""The specification of a copy: a job of the kind ``distcp``.

job: mirror
kind: distcp
source: /data/in
destination: /data/out
datasets:
  - urn: photos
"""

from typing import Any, Final, Literal

from pydantic import Field

from gobblin_assets.jobs.copy.difference import Deletes, LinkPolicy
from gobblin_assets.jobs.copy.sameness import SameRule
from gobblin_assets.model.policy import CommitPolicy
from gobblin_assets.spec.job_options import DatasetOptions, JobOptions
from gobblin_assets.spec.job_spec import PackerSpec
from gobblin_assets.spec.spec_model import DAY_S

TRASH_KEEP_S: Final = 7 * DAY_S

DELETE_MAX: Final = 1_000


class CopyDatasetSpec(DatasetOptions):
    """One dataset: a directory tree. Fields that are left out come from the job's ``defaults``."""

    path: str | None = Field(None, description="Directory below the source; default: the URN. Empty: all of it.")
    to: str | None = Field(None, description="Directory below the destination; default: the path.")
    include: tuple[str, ...] = Field((), description="Copy only files that match one of these globs, as in rclone.")
    exclude: tuple[str, ...] = Field((), description="Leave out files that match one of these globs.")
    filters: tuple[str, ...] = Field(
        (), description="Instead of both: `+ <glob>` and `- <glob>` in order; the first that matches decides."
    )
    same: SameRule = Field(
        SameRule.MTIME,
        description="What tells that a file needs no copy: length and time, the bytes of both sides, or never.",
    )
    deletes: Deletes = Field(
        Deletes.OFF, description="Remove files that the source lacks: none, those that this job published, or all."
    )
    delete_max: int = Field(DELETE_MAX, ge=0, description="A run that would remove more files is refused.")
    preserve: str = Field(
        "pt",
        description="Attributes to keep, by Gobblin's letters: u owner, g group, p permission, t time, a access lists, "
        "x extended attributes; r, b and v mean nothing to a local file system.",
    )
    attributes: Literal["leave", "sync"] = Field(
        "leave", description="A file whose attributes alone differ is left, or copied again."
    )
    links: LinkPolicy = Field(LinkPolicy.FAIL, description="Links and special files of the source.")
    files_per_run_max: int | None = Field(None, ge=1, description="A run copies no more files; the others wait.")
    bytes_per_run_max: int | None = Field(None, ge=1, description="The same in bytes; at least one item is copied.")
    metadata: tuple[str, ...] = Field(
        ("_SUCCESS", "_SUCCESS.*", "metadata/**"),
        description="Globs of files that are published after all others, because they say that these are there.",
    )


class CopySpec(JobOptions):
    """A job that copies files: one source tree, one destination tree, and datasets that are directories of both."""

    kind: Literal["distcp"] = Field("distcp", description="What the job does.")
    source: str = Field(description="Root directory to copy from, an absolute path or a file:// URI.")
    datasets: tuple[CopyDatasetSpec, ...] = ()
    finder: dict[str, Any] | None = Field(
        None, description="How datasets are found below the source: `kind` (glob, stream, manifest) and its options."
    )
    defaults: CopyDatasetSpec = CopyDatasetSpec()
    workers: int = Field(4, ge=1, le=256, description="Files that are copied at once.")
    verify: Literal["length", "reread"] = Field(
        "length", description="Before a copy is published: compare lengths, or read it again and compare its CRC32C."
    )
    trash_keep_s: float = Field(
        TRASH_KEEP_S, ge=0, allow_inf_nan=False, description="How long replaced and removed files are kept, in seconds."
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
