"""A sink whose rows go into a table of the example's destination, an SQLite file. Its dead letters stand in files."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gobblin_assets.destinations.loaded_destination import open_loaded_destination
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.model.urn import Role
from gobblin_assets.run.destination import Destination, DestinationRequest
from tests.support.loaded_sink import LoadedSinkWorld
from tests.support.random_logs import Records
from tests.support.sink_lake import URN, SinkLake
from tests.support.sqlite_rows import SqlitePlace, read_rows

TABLE = "records"


@dataclass(frozen=True)
class SqliteSinkLake(SinkLake):
    @property
    def file(self) -> str:
        return f"{self.directory}/rows.sqlite"

    @property
    def variables(self) -> Mapping[str, str]:
        return {"GOBBLIN_SQLITE_DESK_FILE": self.file}

    def open_world(self) -> "SqliteSinkWorld":
        return SqliteSinkWorld(self)


@dataclass
class SqliteSinkWorld(LoadedSinkWorld):
    lake: SqliteSinkLake

    def open_destination(self, request: DestinationRequest) -> Destination:
        return open_loaded_destination(request, SqlitePlace("desk", {URN: LoadedTable("main", TABLE)}))

    def marks(self) -> list[tuple[Any, ...]]:
        """The marks of all lanes."""
        return read_rows(self.lake.file, "gobblin_lane", "lane, mark, row_count")

    def published(self) -> Records:
        """The rows of the table, and of the files of dead letters."""
        records: Records = super().published()
        assert not any(role == Role.DATA for role, _vnode, _n in records)
        found = read_rows(self.lake.file, TABLE, "vnode, n")
        records.update(Counter((Role.DATA.value, str(vnode), int(n)) for vnode, n in found))
        return records
