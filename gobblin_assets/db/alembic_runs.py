"""Runs of Alembic for the schema: the migrations, and the comparison of tables with the code."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection

from gobblin_assets.db.table_metadata import VERSION_TABLE
from gobblin_assets.db.tables import SCHEMA, metadata


def _is_ours(name: str | None, kind: str, _parents: object) -> bool:
    """Leave the database's other schemas, and Alembic's own table, out of the comparison."""
    return name == SCHEMA if kind == "schema" else not (kind == "table" and name == VERSION_TABLE)


SCHEMA_OPTIONS: Final[dict[str, Any]] = {
    "version_table": VERSION_TABLE,
    "version_table_schema": SCHEMA,
    "include_schemas": True,
    "include_name": _is_ours,
    "compare_type": True,
    "compare_server_default": True,
}


def run_migrations(connection: Connection) -> None:
    """Up to this code's version, in the connection's transaction."""
    command.upgrade(alembic_config(connection), "head")


def list_differences(connection: Connection) -> Sequence[str]:
    """Between the tables that are there and those of the code."""
    context = MigrationContext.configure(connection, opts=SCHEMA_OPTIONS)
    return [str(difference) for difference in compare_metadata(context, metadata)]


def alembic_config(connection: Connection | None = None) -> Config:
    # Alembic's options are read through %-interpolation, which an installation path may trip.
    location = str(Path(__file__).with_name("migrations")).replace("%", "%%")
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", location)
    return config
