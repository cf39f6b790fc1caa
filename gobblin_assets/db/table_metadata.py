"""The Postgres schema of all tables of the commit log, and common definitions of their columns."""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import DDL, Column, DateTime, MetaData, event, text

SCHEMA: Final = "gobblin"
VERSION_TABLE: Final = "alembic_version"

NAMING: Final[Mapping[str, str]] = {
    "pk": "%(table_name)s_pkey",
    "fk": "%(table_name)s_%(column_0_name)s_fkey",
    "uq": "%(table_name)s_%(column_0_N_name)s_key",
    "ck": "%(table_name)s_%(constraint_name)s_check",
    "ix": "%(table_name)s_%(column_0_N_name)s_idx",
}

metadata = MetaData(schema=SCHEMA, naming_convention=NAMING)

# Only a range type can stand in an exclusion constraint; the embedded server has no btree_gist, so the key
# joins in as a one-number int8range.
CREATE_RANGE_TYPE: Final = f"CREATE TYPE {SCHEMA}.wm_range AS RANGE (subtype = bytea)"

event.listen(metadata, "before_create", DDL(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))  # type: ignore[no-untyped-call]  # SQLAlchemy leaves DDL untyped
event.listen(metadata, "before_create", DDL(CREATE_RANGE_TYPE))  # type: ignore[no-untyped-call]  # the same


def moment(name: str, *, nullable: bool = True, default_now: bool = False) -> Column[object]:
    default = text("clock_timestamp()") if default_now else None
    return Column(name, DateTime(timezone=True), nullable=nullable, server_default=default)


def states(*names: str) -> str:
    return ", ".join(f"'{name}'" for name in names)
