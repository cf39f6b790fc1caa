"""Tables of an SQLite file as a destination of rows: ``into: {type: sqlite, connection: NAME}``."""

from typing import Final, Literal

from gobblin_assets.spec.destination_kind import DestinationKind, IntoSpec


class SqliteSpec(IntoSpec):
    """Tables of the file that the variable GOBBLIN_SQLITE_<CONNECTION>_FILE names."""

    type: Literal["sqlite"]


PLACE: Final = "gobblin_sqlite_rows.rows:choose_tables"
SQLITE: Final = DestinationKind(name="sqlite", spec=SqliteSpec, variables="SQLITE", address="FILE", place=PLACE)
