"""A lake of two datasets with thirteen rows each, and this process's view of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kinds import COMBINATIONS
from tests.support.lake import Lake, World


@pytest.fixture(params=COMBINATIONS, ids="-".join)
def lake(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Lake:
    kind, destination = request.param
    made = Lake(database_url, str(tmp_path), kind=kind, destination=destination)
    Path(made.root).mkdir()
    for urn in made.urns:
        made.add_rows(urn, 13)
    return made


@pytest.fixture
def world(lake: Lake) -> Iterator[World]:
    opened = World(lake)
    yield opened
    opened.close()
