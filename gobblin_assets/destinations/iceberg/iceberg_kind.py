"""Tables of Iceberg as a kind of destination."""

from typing import Annotated, Final, Literal, cast

from pydantic import Field

from gobblin_assets.destinations.table_names import LoadedTable, name_table
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.destination_kind import DestinationKind, IntoSpec


class IcebergSpec(IntoSpec):
    """Tables of Iceberg, into which the rows of the job's datasets go, instead of files below its destination."""

    type: Literal["iceberg"]
    connection: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,100}$")] = Field(
        description="Of a catalog: the variables GOBBLIN_ICEBERG_<CONNECTION>_URL, …_USER, …_PASSWORD, …_WAREHOUSE."
    )
    namespace: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*$", max_length=200)] = Field(
        description="Of the tables. They and it are made, unless they exist."
    )
    table: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,255}$")] | None = Field(
        None, description="Of one dataset: its table. Default: its urn, with _ for other characters than letters."
    )


def iceberg_table(urn: DatasetUrn, into: IcebergSpec) -> LoadedTable:
    """The table of a dataset, by the options that hold for it."""
    return LoadedTable(into.namespace, name_table(urn, into.table))


def show_iceberg_table(urn: DatasetUrn, into: IntoSpec) -> str:
    """The name of a dataset's table, for a person."""
    return str(iceberg_table(urn, cast("IcebergSpec", into)))


ICEBERG: Final = DestinationKind(
    name="iceberg",
    spec=IcebergSpec,
    variables="ICEBERG",
    address="URL",
    place="gobblin_assets.destinations.iceberg.iceberg_place:choose_iceberg",
    of_datasets=frozenset({"table"}),
    steps={"append_to_table": "gobblin_assets.destinations.iceberg.append_step:APPEND_TO_TABLE_KIND"},
    names_table=show_iceberg_table,
)
