"""A lake whose rows are loaded elsewhere than into files: runs and their checks are those of any lake."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gobblin_assets.destinations.loaded_destination import open_loaded_destination
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.destination import Destination, DestinationRequest
from tests.support.lake import Lake, Rows, World, make_root
from tests.support.tried_place import TriedPlace


@dataclass(frozen=True)
class LoadedLake(Lake):
    """``place``: where the rows go."""

    place: TriedPlace = field(kw_only=True)

    @property
    def names(self) -> Mapping[DatasetUrn, str]:
        """The table or topic of each dataset."""
        return {DatasetUrn(urn): f"rows_{number}" for number, urn in enumerate(self.urns)}

    def open_world(self) -> "LoadedWorld":
        return LoadedWorld(self)


def make_loaded_lake(database_url: str, folder: Path, place: TriedPlace) -> LoadedLake:
    """Thirteen rows in each of two datasets."""
    made = LoadedLake(database_url, str(folder), place=place, environment=dict(place.variables))
    make_root(made)
    for urn in made.urns:
        made.add_rows(urn, 13)
    return made


@dataclass
class LoadedWorld(World):
    lake: LoadedLake

    def open_destination(self) -> Destination:
        lake = self.lake
        fs, root = open_file_system(lake.root)
        request = DestinationRequest(
            JobName(lake.job().job), lake.root, fs, root, self.stores, open_file_system, SystemClock().new_id
        )
        return open_loaded_destination(request, lake.place.open(lake.names, "number"))

    def published_rows(self, urn: str) -> Rows:
        return Counter(self.lake.place.read(self.lake.names[DatasetUrn(urn)], ("number", "value")))

    def published_paths(self, urn: str) -> list[str]:
        found = super().published_paths(urn)
        assert not found, "files were published beside the rows"
        return found
