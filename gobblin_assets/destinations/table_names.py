"""The names of tables that rows are loaded into. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.urn import DatasetUrn

_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table in the database or the catalog of a connection. ``schema``: of a catalog, the namespace."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


def name_table(urn: DatasetUrn, name: str | None) -> str:
    """The name of a dataset's table: ``name`` as the job gives it, or the URN in letters that need no quotes."""
    return _UNUSUAL.sub("_", urn) if name is None else name


def require_distinct_tables(tables: Mapping[DatasetUrn, LoadedTable], option: str, bytes_max: int) -> None:
    """RejectedError for a name that is too long, and for two datasets of one table. ``option``: says the schema."""
    chosen: dict[LoadedTable, DatasetUrn] = {}
    for urn, table in tables.items():
        if len(table.table) > bytes_max:
            raise RejectedError(
                f"the table of {urn} would be {table}, and names have at most {bytes_max} bytes",
                field=f"datasets[{urn}].urn",
                hint="Give the dataset a shorter urn, or a table by its own `into: {table: NAME}`.",
            )
        if table in chosen:
            raise RejectedError(
                f"{chosen[table]} and {urn} would both go into {table}",
                field=f"datasets[{urn}].urn",
                hint=f"Give one of them another urn, or its own `into: {{table: NAME}}` or `into: {{{option}: NAME}}`.",
            )
        chosen[table] = urn
