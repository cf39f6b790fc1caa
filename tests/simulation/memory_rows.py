"""The place of rows of the simulated world, as suites over all places try it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.model.urn import DatasetUrn
from tests.simulation.loaded_rows import LoadedRowsWorld, LoadingRunner, MemoryPlace, ReachedTables
from tests.support.tried_place import TriedPlace


@dataclass(frozen=True)
class MemoryRows(TriedPlace):
    """Tables in memory. ``runner``: the process that loads them. Nothing of them is ever lost."""

    runner: LoadingRunner

    @property
    def variables(self) -> Mapping[str, str]:
        return {}

    def open(self, names: Mapping[DatasetUrn, str], key: str) -> MemoryPlace:
        del key
        return MemoryPlace(self.runner, {urn: LoadedTable("shop", name) for urn, name in names.items()})

    def connect(self, kind: Any = None) -> ReachedTables:
        raise NotImplementedError(kind)

    def uri_of(self, name: str) -> str:
        return f"memory:shop.{name}"

    def read(self, name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        assert columns == ("number",), "rows in memory have no other column"
        return [(number,) for _sequence, number in self.runner.tables.rows.get(name, ())]

    def marks(self, name: str) -> list[Any]:
        del name
        return sorted(self.runner.tables.marks.items(), key=str)

    def lose(self) -> None:
        raise NotImplementedError


def make_memory_rows() -> MemoryRows:
    """An empty place, which the steps of this thread find."""
    runner = LoadedRowsWorld().open_process()
    runner.take_turn()
    return MemoryRows(runner)
