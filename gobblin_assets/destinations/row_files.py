"""Files of rows that are published one by one, at names that are always new: as objects of a store, or on HDFS.

Whoever writes a file makes the step that publishes it (``rows.new_files``). A store has no rename, so a file is an
upload to the name under which it will stand, and is invisible until the step completes it. HDFS renames files; there
only our own streams sync what they wrote, so that Spark's writer can't make the files. Names are those of directories
on a disk (``directories``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gobblin_assets.commit.attempts import final_name
from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.rooted import RootedDestination, target_directory
from gobblin_assets.fs.objects import HoldsObjects
from gobblin_assets.model.path_names import path_of
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.destination import Target
from gobblin_assets.run.job_kind import Output, OutputNames


@dataclass(frozen=True, slots=True)
class FinalNames:
    """``OutputNames`` of one task."""

    root: str
    job: JobName
    target: Target
    foresees_etags: bool

    def directory_of(self, role: Role, partition_path: str) -> str:
        target = self.target
        role_path = path_of(self.root, self.job, target.urn, role)
        name = final_name(target.sequence_id, target.number)
        return target_directory(role_path, target.partition, partition_path, name)


class RowFiles(RootedDestination):
    """``Destination`` of rows in single files. The small files of the protocol are where a disk has them."""

    __slots__ = ()

    def refuse_strangers(self, urn: DatasetUrn) -> None:
        """There are no links."""

    def names_for(self, target: Target) -> OutputNames:
        foresees_etags = isinstance(self.fs, HoldsObjects) and self.fs.foresees_etags
        return FinalNames(self.root, self.job, target, foresees_etags)

    def make_durable(self, staged: Mapping[str, Sequence[Output]]) -> None:
        """Parts of an upload are durable when the store has answered, files on HDFS when they were closed."""

    def steps_for(self, outputs: Sequence[Output], target: Target) -> Sequence[CommitStep]:
        """Whoever wrote the files made them."""
        del target
        return [step for output in outputs for step in output.details]
