"""The example's destination of rows, known to this process as an installed package's would be."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gobblin_sqlite_rows"
if str(_EXAMPLE) not in sys.path:
    sys.path.append(str(_EXAMPLE))

from gobblin_sqlite_rows import SQLITE  # noqa: E402  found by the path above
from gobblin_sqlite_rows.rows import LOAD_KIND, SqlitePlace  # noqa: E402  the same

from gobblin_assets.commit.step_kinds import register_step  # noqa: E402  the same
from gobblin_assets.spec.destination_kind import DESTINATION_KINDS, register_destination_kind  # noqa: E402  the same

__all__ = ["SQLITE", "SqlitePlace", "read_rows"]

register_step(LOAD_KIND)
if not DESTINATION_KINDS.has(SQLITE.name):
    register_destination_kind(SQLITE)


def read_rows(file: str, table: str, columns: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as sql:
        if sql.execute("SELECT count(*) FROM sqlite_master WHERE name = ?", (table,)).fetchone() == (0,):
            return []
        return sql.execute(f'SELECT {columns} FROM "{table}"').fetchall()
