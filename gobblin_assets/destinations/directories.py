"""Directories of a file system that can rename them: always new names, each published by one rename."""

from collections.abc import Mapping, Sequence

from gobblin_assets.commit.attempts import final_name
from gobblin_assets.commit.rename_steps import RenameDirectory
from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.rooted import RootedDestination, refuse_links, target_directory
from gobblin_assets.model.path_names import list_upwards, path_of
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.destination import Target
from gobblin_assets.run.job_kind import Output, OutputNames


class Directories(RootedDestination):
    """``Destination`` of directories, such as those of a POSIX file system."""

    __slots__ = ()

    def refuse_strangers(self, urn: DatasetUrn) -> None:
        refuse_links(self, urn)

    def names_for(self, target: Target) -> OutputNames | None:
        """Files are renamed once they are written."""
        del target
        return None

    def make_durable(self, staged: Mapping[str, Sequence[Output]]) -> None:
        written = [output for outputs in staged.values() for output in outputs]
        for place, outputs in staged.items():
            if outputs:
                self.fs.apply_modes(place)
        self.fs.make_durable(f"{each.path}/{file.name}" for each in written for file in each.files)
        self.fs.sync_directories(list_upwards((*staged, *(each.path for each in written)), self.root))

    def steps_for(self, outputs: Sequence[Output], target: Target) -> Sequence[CommitStep]:
        name = final_name(target.sequence_id, target.number)
        return [
            RenameDirectory(
                source=each.path,
                target=target_directory(
                    path_of(self.root, self.job, target.urn, each.role), target.partition, each.partition_path, name
                ),
                files=each.files,
            )
            for each in outputs
            if each.files
        ]
