from pathlib import Path

import pytest

from gobblin_assets.fs.port import FileSystem
from tests.simulation.database import SimDatabase
from tests.support.commit_log import LogWorld, open_postgres, open_simulated
from tests.support.file_systems import ADAPTERS
from tests.support.places import PLACES, Place, open_place


@pytest.fixture(params=ADAPTERS)
def adapter(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def fs(adapter: str) -> FileSystem:
    return ADAPTERS[adapter](None)


@pytest.fixture(params=["simulated", "postgres"])
def log(request: pytest.FixtureRequest) -> LogWorld:
    """The stores of the commit log and of the state, in a database of the test's own."""
    if request.param == "simulated":
        return open_simulated(SimDatabase())
    return open_postgres(request.getfixturevalue("engine"))


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty directory on each file system, the simulated one included."""
    return open_place(request.param, tmp_path)
