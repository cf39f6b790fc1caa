"""The kinds of tables that a sink loads. What opens one of another kind than Postgres is imported when it is needed."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Final, Protocol

from gobblin_assets.destinations.tables.load_step import LoadTable, MarkedTables
from gobblin_assets.destinations.tables.marks import LoadedTable, MarkPlace
from gobblin_assets.destinations.tables.postgres_tables import open_tables

POSTGRES: Final = "postgres"


class CountedTables(MarkedTables, Protocol):
    """Tables that can also be compared with the log."""

    def require(self, tables: Iterable[LoadedTable]) -> None:
        """Connect, and raise if one of the tables can't be loaded."""
        ...

    def count_loaded(self, place: MarkPlace) -> int:
        """The rows that all lanes of the dataset have loaded, whichever lane ``place`` is of."""
        ...

    def count_rows(self, table: LoadedTable) -> int:
        """How many rows the table has, whoever wrote them."""
        ...


@dataclass(frozen=True, slots=True)
class TableKind:
    """``scheme``: of what is shown as a table's URI. ``open``: by the name of a connection. ``load``: its steps."""

    scheme: str
    open: Callable[[str], AbstractContextManager[CountedTables]]
    load: type[LoadTable]


_POSTGRES: Final = TableKind("jdbc", open_tables, LoadTable)
_ELSEWHERE: Final = MappingProxyType({"iceberg": "gobblin_assets.destinations.iceberg.append_step:ICEBERG"})


def get_table_kind(name: str) -> TableKind:
    """By the word of a job file."""
    if name == POSTGRES:
        return _POSTGRES
    module, _, attribute = _ELSEWHERE[name].partition(":")
    found: TableKind = getattr(import_module(module), attribute)
    return found
