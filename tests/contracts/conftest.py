from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.engine import open_external
from gobblin_assets.db.tables import metadata
from gobblin_assets.fs.file_system import FileSystem
from tests.simulation.database import SimDatabase
from tests.support import postgres
from tests.support.commit_log import LogWorld, open_postgres, open_simulated
from tests.support.database_pool import DatabasePool
from tests.support.file_systems import ADAPTERS
from tests.support.hdfs_place import HdfsPlace
from tests.support.places import PLACES, Place, open_place
from tests.support.wires import service_database, service_engine

__all__ = ["service_database", "service_engine"]

HDFS = "hdfs"


@pytest.fixture(params=ADAPTERS)
def adapter(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def fs(adapter: str) -> FileSystem:
    return ADAPTERS[adapter](None)


@pytest.fixture(scope="session")
def shared_engine(server: EmbeddedServer, database_pool: DatabasePool) -> Iterator[Engine]:
    """An engine on one migrated database, for all tests that empty its tables first: making one takes longer."""
    with postgres.migrated_database(server, database_pool) as name:
        engine = open_external(server.url(name))
        yield engine
        engine.dispose()


@pytest.fixture
def emptied_engine(shared_engine: Engine) -> Engine:
    """``shared_engine`` with empty tables."""
    tables = ", ".join(table.fullname for table in metadata.sorted_tables)
    with shared_engine.begin() as connection:
        connection.execute(text(f"TRUNCATE {tables} RESTART IDENTITY"))
    return shared_engine


@pytest.fixture(params=["simulated", "postgres"])
def log(request: pytest.FixtureRequest) -> LogWorld:
    """The stores of the commit log and of the state, with empty tables."""
    if request.param == "simulated":
        return open_simulated(SimDatabase())
    return open_postgres(request.getfixturevalue("emptied_engine"))


@pytest.fixture(params=[*PLACES, pytest.param(HDFS, marks=pytest.mark.rotating)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty directory on each file system, the simulated one included."""
    if request.param == HDFS:
        return HdfsPlace(request.getfixturevalue("hdfs_server"))
    return open_place(request.param, tmp_path)
