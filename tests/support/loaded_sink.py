"""Sinks whose rows go into a place of rows. Their dead letters stand in files."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.destinations.loaded_destination import open_loaded_destination
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.state import RunId, SequenceId
from gobblin_assets.model.urn import Role
from gobblin_assets.run.destination import Destination, DestinationRequest
from gobblin_assets.state.leases import Holder
from tests.support.random_logs import Records
from tests.support.rows_places import make_place
from tests.support.sink_lake import URN, SinkLake, SinkWorld
from tests.support.tried_place import TriedPlace

RECORDS: Final = "records"
"""The table or topic of the sink's dataset."""


@dataclass(frozen=True)
class LoadedSinkLake(SinkLake):
    """``place``: where the rows go. The environment of each process says how it is reached."""

    place: TriedPlace = field(kw_only=True)

    @property
    def variables(self) -> Mapping[str, str]:
        return self.place.variables

    def open_world(self) -> "LoadedSinkWorld":
        return LoadedSinkWorld(self)


@dataclass
class LoadedSinkWorld(SinkWorld):
    lake: LoadedSinkLake

    def open_destination(self, request: DestinationRequest) -> Destination:
        return open_loaded_destination(request, self.lake.place.open({URN: RECORDS}, "vnode"))

    def marks(self) -> Any:
        """The marks of all lanes, to be compared."""
        return self.lake.place.marks(RECORDS)

    def published(self) -> Records:
        """The rows of the place, and of the files of dead letters."""
        records: Records = super().published()
        assert not any(role == Role.DATA for role, _vnode, _n in records)
        found = self.lake.place.read(RECORDS, ("vnode", "n"))
        records.update(Counter((Role.DATA.value, str(vnode), int(n)) for vnode, n in found))
        return records

    def operations(self) -> LogOperations:
        """What a person does to the log."""
        clock = SystemClock()
        return LogOperations(
            store=self.stores.commits,
            leases=self.stores.leases,
            open_file_system=open_file_system,
            interrupt=lambda _attempt: None,
            clock=clock,
            holder=Holder("test", RunId(clock.new_id())),
            say=self.lines.append,
            lease_ttl_s=self.lake.lease_ttl_s,
        )

    def open_sequences(self) -> list[SequenceId]:
        return [each.sequence_id for each in self.stores.commits.list_open(None, limit=10)]


@pytest.fixture
def lake(
    request: pytest.FixtureRequest, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> LoadedSinkLake:
    """Of the type of place that the test names by its parameter ``lake``. This process reaches the place, too."""
    made = LoadedSinkLake(database_url, str(tmp_path), place=make_place(request, request.param, tmp_path))
    for name, value in made.variables.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def world(lake: LoadedSinkLake) -> Iterator[LoadedSinkWorld]:
    opened = lake.open_world()
    yield opened
    opened.close()
