"""A lake of two datasets with thirteen rows each, and this process's view of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kinds import COMBINATIONS
from tests.support.lake import Lake, World, make_lake
from tests.support.postgres import Database
from tests.support.table_lake import TABLES, make_table_lake


@pytest.fixture(params=COMBINATIONS, ids="-".join)
def lake(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Lake:
    """Also of the kind ``TABLES``, where a test asks for it by ``with_tables``."""
    kind, destination = request.param
    if kind != TABLES:
        return make_lake(database_url, tmp_path, request.param)
    source: Database = request.getfixturevalue("fresh_database")
    return make_table_lake(database_url, tmp_path, source, destination)


@pytest.fixture
def world(lake: Lake) -> Iterator[World]:
    opened = World(lake)
    yield opened
    opened.close()
