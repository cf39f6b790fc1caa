"""A lake of two datasets with thirteen rows each, and this process's view of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lake import Lake, World


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> Lake:
    made = Lake(database_url, str(tmp_path))
    Path(made.root).mkdir()
    for urn in made.urns:
        made.add_rows(urn, 13)
    return made


@pytest.fixture
def world(lake: Lake) -> Iterator[World]:
    opened = World(lake)
    yield opened
    opened.close()
