"""Runs of Alembic for a history of a schema: the migrations, and the comparison of tables with the code."""

from collections.abc import Sequence
from typing import Any

from alembic import command, context
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection

from gobblin_assets.db.schema_history import SchemaHistory
from gobblin_assets.db.table_metadata import VERSION_TABLE


def schema_options(history: SchemaHistory) -> dict[str, Any]:
    def is_ours(name: str | None, kind: str, _parents: object) -> bool:
        """Leave the database's other schemas, and Alembic's own table, out of the comparison."""
        return name == history.schema if kind == "schema" else not (kind == "table" and name == VERSION_TABLE)

    return {
        "version_table": VERSION_TABLE,
        "version_table_schema": history.schema,
        "include_schemas": True,
        "include_name": is_ours,
        "compare_type": True,
        "compare_server_default": True,
    }


def run_environment() -> None:
    """Run the migrations on the connection that holds the upgrade's lock. Each history's ``env`` module calls this."""
    attributes = context.config.attributes
    history: SchemaHistory = attributes["history"]
    context.configure(
        connection=attributes["connection"], target_metadata=history.load_metadata(), **schema_options(history)
    )
    with context.begin_transaction():
        context.run_migrations()


def run_migrations(connection: Connection, history: SchemaHistory) -> None:
    """Up to this code's version, in the connection's transaction."""
    command.upgrade(alembic_config(history, connection), "head")


def list_differences(connection: Connection, history: SchemaHistory) -> Sequence[str]:
    """Between the tables that are there and those of the code."""
    compared = MigrationContext.configure(connection, opts=schema_options(history))
    return [str(difference) for difference in compare_metadata(compared, history.load_metadata())]


def alembic_config(history: SchemaHistory, connection: Connection | None = None) -> Config:
    # Alembic's options are read through %-interpolation, which an installation path may trip.
    location = str(history.migrations).replace("%", "%%")
    config = Config(attributes={"connection": connection, "history": history})
    config.set_main_option("script_location", location)
    return config
