"""What the log says that a job published last: read once for each version of a dataset."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gobblin_assets.commit.published.current_names import NO_NAMES, CurrentNames, sort_current
from gobblin_assets.commit.published.port import PublishedFiles, PublishedSegment
from gobblin_assets.model.urn import DatasetUrn, JobName, Role


@dataclass(slots=True)
class KnownFiles:
    """Keeps the files of one dataset, whose file sets are planned one after another. Few of them are in memory."""

    published: PublishedFiles
    job: JobName
    _kept: tuple[DatasetUrn, int, CurrentNames] | None = field(default=None, init=False)

    def find(self, urn: DatasetUrn) -> CurrentNames:
        """What is returned does not change later."""
        kept = self._kept
        if kept is not None and kept[0] == urn:
            # Of no partition: the version alone.
            now = self.published.find(self.job, urn, role=Role.DATA, partitions=())
            if now is not None and now.version == kept[1]:
                return kept[2]
        self._kept = None
        found = self.published.scan(self.job, urn, role=Role.DATA, read=_read)
        if found is None:
            return NO_NAMES
        self._kept = urn, *found
        return found[1]


def _read(version: int, segments: Iterator[PublishedSegment]) -> tuple[int, CurrentNames]:
    return version, sort_current(segments)
