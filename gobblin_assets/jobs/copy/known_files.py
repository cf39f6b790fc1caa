"""What the log says that a job published last: read and decoded once for each version of a dataset."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gobblin_assets.commit.published.current import list_current
from gobblin_assets.commit.published.port import PublishedFiles
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.urn import DatasetUrn, JobName, Role


@dataclass(slots=True)
class KnownFiles:
    """Keeps the files of one dataset, whose file sets are planned one after another."""

    published: PublishedFiles
    job: JobName
    _kept: tuple[DatasetUrn, int, Mapping[str, FileIdentity]] | None = field(default=None, init=False)

    def find(self, urn: DatasetUrn) -> Mapping[str, FileIdentity]:
        """By full path. What is returned does not change later."""
        kept = self._kept
        if kept is not None and kept[0] == urn:
            # Of no partition: the version alone.
            now = self.published.find(self.job, urn, role=Role.DATA, partitions=())
            if now is not None and now.version == kept[1]:
                return kept[2]
        found = self.published.find(self.job, urn, role=Role.DATA)
        if found is None:
            return {}
        files = {file.path: file.identity for _segment, file in list_current(found.segments)}
        self._kept = urn, found.version, files
        return files
