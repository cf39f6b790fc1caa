"""A lake of two datasets with thirteen rows each, and this process's view of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kinds import COMBINATIONS
from tests.support.lake import Lake, World
from tests.support.table_lake import make_any_lake


@pytest.fixture(params=COMBINATIONS, ids="-".join)
def lake(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Lake:
    """Also of the kind ``TABLES`` and in a bucket, on HDFS, where a test asks for it by the marks of ``table_lake``."""
    return make_any_lake(request, database_url, tmp_path)


@pytest.fixture
def world(lake: Lake) -> Iterator[World]:
    opened = World(lake)
    yield opened
    opened.close()
