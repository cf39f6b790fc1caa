"""The example's destination of rows, known to this process as an installed package's would be."""

import sqlite3
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.model.urn import DatasetUrn
from tests.support.tried_place import TriedPlace

_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gobblin_sqlite_rows"
if str(_EXAMPLE) not in sys.path:
    sys.path.append(str(_EXAMPLE))

from gobblin_sqlite_rows import SQLITE  # noqa: E402  found by the path above
from gobblin_sqlite_rows import rows as example  # noqa: E402  the same
from gobblin_sqlite_rows.rows import LOAD_KIND, SqlitePlace  # noqa: E402  the same
from gobblin_sqlite_rows.rows import SqliteRows as MarkedRows  # noqa: E402  the same

from gobblin_assets.commit.step_kinds import register_step  # noqa: E402  the same
from gobblin_assets.spec.destination_kind import DESTINATION_KINDS, register_destination_kind  # noqa: E402  the same

__all__ = ["SQLITE", "SqlitePlace", "SqliteRows", "example", "read_rows"]

CONNECTION = "desk"

register_step(LOAD_KIND)
if not DESTINATION_KINDS.has(SQLITE.name):
    register_destination_kind(SQLITE)


def read_rows(file: str, table: str, columns: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as sql:
        if sql.execute("SELECT count(*) FROM sqlite_master WHERE name = ?", (table,)).fetchone() == (0,):
            return []
        return sql.execute(f'SELECT {columns} FROM "{table}"').fetchall()


class ClosedRows(MarkedRows):
    """Each act opens the file and closes it."""

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class SqliteRows(TriedPlace):
    """Tables of an SQLite file."""

    file: str

    loss = "is gone"

    @property
    def variables(self) -> Mapping[str, str]:
        return {f"GOBBLIN_SQLITE_{CONNECTION.upper()}_FILE": self.file}

    def open(self, names: Mapping[DatasetUrn, str], key: str) -> SqlitePlace:
        del key
        return SqlitePlace(CONNECTION, {urn: LoadedTable("main", name) for urn, name in names.items()})

    def connect(self, kind: type[ClosedRows] | None = None) -> ClosedRows:
        return (kind or ClosedRows)(self.file)

    def uri_of(self, name: str) -> str:
        return f"sqlite:{CONNECTION}/{name}"

    def read(self, name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        return read_rows(self.file, name, ", ".join(columns))

    def marks(self, name: str) -> list[tuple[Any, ...]]:
        del name
        return read_rows(self.file, "gobblin_lane", "dataset, lane, mark, row_count")

    def lose(self) -> None:
        Path(self.file).unlink()
