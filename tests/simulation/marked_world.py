"""The simulated world of sinks whose rows go into a table of a database, each load with the mark of its lane.

The destination, its step and ``PostgresTables`` are the product's own; the server is ``SimTables``. At every moment no
row is in the table twice, and none that the log does not have.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from unittest import mock

from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.destinations.loaded_destination import open_loaded_destination
from gobblin_assets.destinations.postgres import postgres_tables
from gobblin_assets.destinations.postgres.tables_place import TablesPlace
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.model.urn import Role
from gobblin_assets.run.destination import Destination, DestinationRequest
from tests.models.lane_traces import Transition
from tests.simulation.marked_tables import SimAddress, SimTables
from tests.simulation.sink_history import SinkHistory
from tests.simulation.sink_world import URN, SinkHands, SinkWorld
from tests.simulation.stepping import SeenProcess
from tests.simulation.world import stepped
from tests.support.random_logs import Records

_PLACE: Final = TablesPlace("warehouse", {URN: LoadedTable("shop", "records")}, "marks")
_PLACES: Final = ("tables.copy", "tables.move_mark", "tables.commit", "tables.commit", "log.finish_all", "log.seal")
"""Calls before which a worker falls asleep with a purpose."""

_thread: Final = threading.local()


@dataclass
class MarkedWorld(SinkWorld):
    """``wrong``: what was seen of the table that must never be. Whoever changes it may catch an error of the look."""

    tables: SimTables = field(default_factory=SimTables)
    wrong: list[str] = field(default_factory=list)
    _checked: int = 0

    def open_hands(self, process: SeenProcess, number: int, lines: list[str]) -> "MarkedHands":
        return MarkedHands(self, process, number, lines)

    def look(self) -> None:
        super().look()
        if self._checked != self.tables.changes:
            self._checked = self.tables.changes
            extra = self._list_rows() - self.expected
            if extra:
                self.wrong.append(f"the table has rows twice, or such as the log never had: {extra}")

    def published(self) -> Records:
        return super().published() + self._list_rows()

    def check_promises(self) -> None:
        super().check_promises()
        counted = sum(mark.loaded_rows for mark in self.tables.marks.values())
        assert counted == self.tables.rows.total(), "the marks count other rows than the table has"

    def _list_rows(self) -> Records:
        return Counter({(Role.DATA.value, vnode, int(n)): count for (vnode, n), count in self.tables.rows.items()})


class MarkedHands(SinkHands):
    world: MarkedWorld

    def work(self) -> None:
        _thread.hands = self
        super().work()

    def operations(self) -> LogOperations:
        _thread.hands = self
        return super().operations()

    def open_destination(self, request: DestinationRequest) -> Destination:
        return open_loaded_destination(request, _PLACE)


def _read_address(name: str) -> SimAddress:
    """Of the process whose turn it is: each has a thread of its own."""
    hands: Any = _thread.hands
    return SimAddress(name, "jdbc:none", None, None, tables=hands.world.tables, process=hands.process)


@contextmanager
def marked() -> Iterator[None]:
    """In the block, steps that load tables find the simulated database of their process."""
    with stepped(), mock.patch.object(postgres_tables, "read_address", _read_address):
        yield


def run_marked_history(seed: int) -> list[Transition]:
    """As ``SinkHistory.run``, of a sink whose rows go into a table."""
    world = MarkedWorld(seed)
    try:
        with marked():
            found = SinkHistory(world, places=_PLACES).run()
    except AssertionError as error:
        if not world.wrong:
            raise
        raise AssertionError(f"seed {seed}: {world.wrong[0]}") from error
    finally:
        world.stop()
    assert not world.wrong, f"seed {seed}: {world.wrong[0]}"
    return found
