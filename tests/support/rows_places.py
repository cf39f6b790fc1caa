"""The places of rows that suites over all of them try, each for one test."""

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.iceberg_rows import IcebergRows
from tests.support.kafka_rows import KafkaRows
from tests.support.postgres_rows import PostgresRows
from tests.support.shares import rare, rotating
from tests.support.sqlite_rows import SqliteRows
from tests.support.tried_place import TriedPlace

SQLITE: Final = "sqlite"
POSTGRES: Final = "postgres"
ICEBERG: Final = "iceberg"
KAFKA: Final = "kafka"
PLACES: Final = (SQLITE, POSTGRES, ICEBERG, KAFKA)
"""The types of ``into``, the example's first."""

CAN_REPLACE: Final = (SQLITE, POSTGRES)


def make_place(request: pytest.FixtureRequest, kind: str, folder: Path) -> TriedPlace:
    """An empty place of that type, until the test ends; its servers are asked for here."""
    match kind:
        case "postgres":
            return PostgresRows(request.getfixturevalue("fresh_database"))
        case "iceberg":
            warehouse = folder / "warehouse"
            warehouse.mkdir()
            return IcebergRows(request.getfixturevalue("fresh_database"), warehouse)
        case "kafka":
            place = KafkaRows(request.getfixturevalue("kafka_broker").bootstrap, uuid.uuid4().hex[:8])
            request.addfinalizer(place.remove)
            return place
        case _:
            return SqliteRows(f"{folder}/rows.sqlite")


def in_turn(place: str, *values: Any) -> Any:
    """One case of a test's parameters, the place first, in the runs whose share has it: with topics, in few."""
    return (rare if place == KAFKA else rotating)(place, *values)


def others_than(*kinds: str, of: Iterable[str] = PLACES) -> list[str]:
    return [each for each in of if each not in kinds]
