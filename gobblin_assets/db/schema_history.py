"""The history of a schema: where its migrations are, and which tables they make."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import MetaData

from gobblin_assets.db.table_metadata import SCHEMA


def _load_metadata() -> MetaData:
    from gobblin_assets.db.tables import metadata  # noqa: PLC0415  only upgrades and comparisons need the tables

    return metadata


@dataclass(frozen=True, slots=True)
class SchemaHistory:
    """A schema of Postgres and the line of its versions.

    ``migrations``: Alembic's folder; each file in its ``versions`` begins with a version, and they follow each other in
    the order of their names. ``lock_key``: nobody else in the database uses it.
    """

    schema: str
    migrations: Path
    lock_key: int
    load_metadata: Callable[[], MetaData]


LOG_HISTORY: Final = SchemaHistory(
    SCHEMA, Path(__file__).with_name("migrations"), int.from_bytes(b"gobblin"), _load_metadata
)
