"""A sink whose rows go into a table of a real Postgres. Its dead letters stand in files."""

from collections import Counter
from dataclasses import dataclass, field

from gobblin_assets.destinations.registry import DestinationRequest, open_table_destination
from gobblin_assets.destinations.tables.database_address import variable_of
from gobblin_assets.destinations.tables.marks import TableName
from gobblin_assets.destinations.tables.table_destination import TablesPlace
from gobblin_assets.model.urn import Role
from gobblin_assets.run.destination import Destination
from tests.support.postgres import Database
from tests.support.random_logs import Records
from tests.support.sink_lake import URN, SinkLake, SinkWorld

CONNECTION = "warehouse"
TABLE = TableName("shop", "records")
MARKS_SCHEMA = "marks"


def variables_for(database: Database) -> dict[str, str]:
    """How a process reaches the database."""
    return {
        variable_of(CONNECTION, "URL"): database.jdbc_url,
        variable_of(CONNECTION, "USER"): database.user,
        variable_of(CONNECTION, "PASSWORD"): database.password,
    }


@dataclass(frozen=True)
class TableSinkLake(SinkLake):
    """``database``: where the rows go. The environment of each process says how it is reached."""

    database: Database = field(kw_only=True)

    def open_world(self) -> "TableSinkWorld":
        return TableSinkWorld(self)


@dataclass
class TableSinkWorld(SinkWorld):
    lake: TableSinkLake

    def open_destination(self, request: DestinationRequest) -> Destination:
        return open_table_destination(request, TablesPlace(CONNECTION, {URN: TABLE}, MARKS_SCHEMA))

    def published(self) -> Records:
        """The rows of the table, and of the files of dead letters."""
        records: Records = super().published()
        assert not any(role == Role.DATA for role, _vnode, _n in records)
        with self.lake.database.connect() as session:
            found = session.execute(f"SELECT vnode, n FROM {TABLE}").fetchall()  # type: ignore[call-overload]  # ours
        records.update(Counter((Role.DATA.value, str(vnode), int(str(n))) for vnode, n in found))
        return records
