"""The schemas of datasets' active files, over all partitions; new files must be readable together with them."""

from collections.abc import Sequence

from gobblin_assets.commit.published.port import ActiveSchema, PublishedFiles
from gobblin_assets.commit.sequence import Publication
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.slices import Slice, partition_text


class ActiveSchemas:
    """Asks the log once for a dataset, and again if its version is not the one that this run made.

    A stream publishes often, nearly always with the same schema, and the log reads every active segment to answer.
    """

    def __init__(self, published: PublishedFiles, job: JobName) -> None:
        self._published = published
        self._job = job
        self._known: dict[DatasetUrn, tuple[int, tuple[ActiveSchema, ...]]] = {}

    def look_up(self, slices: Sequence[Slice]) -> None:
        """Fill ``active_schemas`` of each slice, by one query for all unknown datasets, under leases of this run."""
        versions = {slice_.urn: slice_.state.version for slice_ in slices}
        unknown = [urn for urn, version in versions.items() if self._known.get(urn, (None, ()))[0] != version]
        if unknown:
            found = self._published.find_active_schemas(self._job, unknown)
            self._known |= {urn: (versions[urn], tuple(found.get(urn, ()))) for urn in unknown}
        for slice_ in slices:
            slice_.active_schemas = self._known[slice_.urn][1]

    def remember(self, slice_: Slice, publication: Publication) -> None:
        """After a publication, keep a dataset's schemas if the publication did not change them, else forget them."""
        version, known = self._known.pop(slice_.urn, (-1, ()))
        own = [each.file_schema for each in known if each.only_partition in {None, partition_text(slice_.partition)}]
        written = [schema for task in slice_.staged for schema in task.extracted.file_schemas.values()]
        is_same = not slice_.plan.replaces and all(schema in own for schema in written)
        if is_same and publication.version == version + 1:
            self._known[slice_.urn] = (publication.version, known)
