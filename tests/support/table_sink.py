"""A sink whose rows go into a table of a real Postgres. Its dead letters stand in files."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gobblin_assets.destinations.loaded_destination import open_loaded_destination
from gobblin_assets.destinations.postgres.database_address import variable_of
from gobblin_assets.destinations.postgres.tables_place import TablesPlace
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.model.urn import Role
from gobblin_assets.run.destination import Destination, DestinationRequest
from tests.support.loaded_sink import LoadedSinkWorld
from tests.support.postgres import Database
from tests.support.random_logs import Records
from tests.support.sink_lake import URN, SinkLake

CONNECTION = "warehouse"
TABLE = LoadedTable("shop", "records")
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

    @property
    def variables(self) -> Mapping[str, str]:
        return variables_for(self.database)

    def open_world(self) -> "TableSinkWorld":
        return TableSinkWorld(self)


@dataclass
class TableSinkWorld(LoadedSinkWorld):
    lake: TableSinkLake

    def open_destination(self, request: DestinationRequest) -> Destination:
        return open_loaded_destination(request, TablesPlace(CONNECTION, {URN: TABLE}, MARKS_SCHEMA))

    def marks(self) -> list[tuple[Any, ...]]:
        """The marks of all lanes, without the time of their change."""
        with self.lake.database.connect() as session:
            if session.execute("SELECT to_regclass('marks.gobblin_lane')").fetchone() == (None,):
                return []
            return session.execute(
                "SELECT lane, version, recent, given_up, loaded_rows FROM marks.gobblin_lane ORDER BY lane"
            ).fetchall()

    def end_idle_sessions(self) -> int:
        """As the server does after a while: end the transactions that wait for a paused process."""
        with self.lake.database.connect() as session:
            ended = session.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND state = 'idle in transaction'"
            ).fetchall()
        return len(ended)

    def is_waited_for(self) -> bool:
        """Whether a session waits for a lock in the database of the tables."""
        with self.lake.database.connect() as session:
            query = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            return session.execute(query).fetchone() is not None

    def published(self) -> Records:
        """The rows of the table, and of the files of dead letters."""
        records: Records = super().published()
        assert not any(role == Role.DATA for role, _vnode, _n in records)
        with self.lake.database.connect() as session:
            found = session.execute(f"SELECT vnode, n FROM {TABLE}").fetchall()
        records.update(Counter((Role.DATA.value, str(vnode), int(str(n))) for vnode, n in found))
        return records
