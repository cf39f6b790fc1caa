"""Tables of Postgres as a kind of destination."""

from typing import Annotated, Final, Literal, cast

from pydantic import Field

from gobblin_assets.destinations.table_names import LoadedTable, name_table
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.destination_kind import DestinationKind, IntoSpec

NAME_BYTES_MAX: Final = 63
"""Of a table's or a column's name: Postgres cuts off what is longer."""


class TablesSpec(IntoSpec):
    """Tables of a database, into which the rows of the job's datasets go, instead of files below its destination."""

    type: Literal["postgres"]
    connection: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,100}$")] = Field(
        description="Of a JDBC connection: the variables GOBBLIN_JDBC_<CONNECTION>_URL, …_USER and …_PASSWORD."
    )
    tables_schema: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        "public", description="The schema of the tables. They are made, unless they exist."
    )
    table: Annotated[str, Field(min_length=1, max_length=63)] | None = Field(
        None, description="Of one dataset: its table. Default: its urn, with _ for what needs quotes in SQL."
    )
    marks_schema: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        "gobblin_marks", description="The schema of the table gobblin_lane, which says what was loaded."
    )


def postgres_table(urn: DatasetUrn, into: TablesSpec) -> LoadedTable:
    """The table of a dataset, by the options that hold for it."""
    return LoadedTable(into.tables_schema, name_table(urn, into.table))


def show_postgres_table(urn: DatasetUrn, into: IntoSpec) -> str:
    """The name of a dataset's table, for a person."""
    return str(postgres_table(urn, cast("TablesSpec", into)))


POSTGRES: Final = DestinationKind(
    name="postgres",
    spec=TablesSpec,
    variables="JDBC",
    address="URL",
    place="gobblin_assets.destinations.postgres.tables_place:choose_tables",
    of_datasets=frozenset({"tables_schema", "table"}),
    steps={"load_table": "gobblin_assets.destinations.postgres.tables_place:LOAD_TABLE_KIND"},
    names_table=show_postgres_table,
)
