"""Workers of a sink that loads a table are killed, paused and not answered: each record is in the table once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgres import Database
from tests.support.table_sink import TableSinkLake, TableSinkWorld, variables_for


@pytest.fixture
def lake(database_url: str, fresh_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TableSinkLake:
    for name, value in variables_for(fresh_database).items():
        monkeypatch.setenv(name, value)
    return TableSinkLake(database_url, str(tmp_path), database=fresh_database)


@pytest.fixture
def world(lake: TableSinkLake) -> Iterator[TableSinkWorld]:
    opened = lake.open_world()
    yield opened
    opened.close()


def test_each_record_is_in_the_table_once(world: TableSinkWorld) -> None:
    world.work()

    world.check_exactly_once()
