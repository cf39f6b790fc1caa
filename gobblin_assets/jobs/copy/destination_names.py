"""Names of different datasets and file sets that a destination which ignores case would take for one name.

Names of one file set are compared by its listing (``sorted_entries``).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy.datasets import CopyableDataset
from gobblin_assets.model.urn import DatasetUrn


@dataclass(slots=True)
class DestinationNames:
    """``datasets``: all of the job's. They are compared when the first one asks."""

    datasets: Mapping[DatasetUrn, CopyableDataset]
    _alike: dict[DatasetUrn, tuple[str, str]] | None = field(default=None, init=False)

    def require_apart(self, urn: DatasetUrn) -> None:
        """RejectedError if a name of this dataset differs by case only from one that the job has elsewhere."""
        if self._alike is None:
            self._alike = self._compare()
        if urn in self._alike:
            mine, other = self._alike[urn]
            raise RejectedError(
                f"the names {mine!a} and {other!a} differ by case only, and the destination ignores case",
                field="datasets",
                hint="Write both in the same way, or let one be copied to another directory.",
                path=mine,
            )

    def _compare(self) -> dict[DatasetUrn, tuple[str, str]]:
        known: dict[str, tuple[str, DatasetUrn]] = {}
        alike: dict[DatasetUrn, tuple[str, str]] = {}
        for urn, dataset in self.datasets.items():
            for path in _list_paths(dataset):
                for place in accumulate(path.split("/"), "{}/{}".format):
                    spelled, owner = known.setdefault(place.casefold(), (place, urn))
                    if spelled != place:
                        alike.setdefault(urn, (place, spelled))
                        alike.setdefault(owner, (spelled, place))
        return alike


def _list_paths(dataset: CopyableDataset) -> Iterator[str]:
    """Paths below the destination's root. Files are named by a manifest; those of a single file set are listed."""
    yield from filter(None, [dataset.destination])
    for file_set in dataset.file_sets:
        at = "/".join(filter(None, (dataset.destination, file_set.directory)))
        yield from filter(None, [at])
        if len(dataset.file_sets) > 1:
            yield from (f"{at}/{file.path}" if at else file.path for file in file_set.files)
