"""The simulated world of sinks whose rows are loaded into a place of rows, each load with the mark of its lane.

There are two places. Of a table of Postgres, the destination, its step and ``PostgresTables`` are the product's own,
and the server is ``SimTables``. The other place is the example's, unchanged, over a ``SimFile``. At every moment no row
is there twice, and none that the log does not have.
"""

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final
from unittest import mock

from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.destinations.loaded_destination import open_loaded_destination
from gobblin_assets.destinations.postgres import postgres_tables
from gobblin_assets.destinations.postgres.tables_place import TablesPlace
from gobblin_assets.destinations.rows_place import RowsPlace
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.model.urn import Role
from gobblin_assets.run.destination import Destination, DestinationRequest
from tests.models.lane_traces import Transition
from tests.simulation.marked_tables import SimAddress, SimTables
from tests.simulation.process import Process
from tests.simulation.sink_history import SinkHistory
from tests.simulation.sink_world import URN, SinkHands, SinkWorld
from tests.simulation.sqlite_file import SimFile, take_turn
from tests.simulation.stepping import SeenProcess
from tests.simulation.world import stepped
from tests.support.random_logs import Records
from tests.support.sqlite_rows import CONNECTION, SqlitePlace

_OF_THE_LOG: Final = ("log.finish_all", "log.seal")

_thread: Final = threading.local()


@dataclass
class MarkedWorld(SinkWorld, ABC):
    """``wrong``: what was seen of the place that must never be. Whoever changes it may catch an error of the look.

    ``place``: the product's. ``calls``: those before which a worker falls asleep with a purpose.
    """

    place: ClassVar[RowsPlace]
    calls: ClassVar[tuple[str, ...]]

    wrong: list[str] = field(default_factory=list)
    _checked: object = None

    @abstractmethod
    def take_turn(self, process: Process) -> None:
        """Have the product's place find the simulated one, as the process, in this thread."""

    @abstractmethod
    def find_changes(self) -> object:
        """Another value after each change of the place."""

    @abstractmethod
    def list_loaded(self) -> Counter[tuple[str, int]]:
        """Vnode and number of each row."""

    @abstractmethod
    def count_loaded(self) -> int:
        """By the marks of all lanes."""

    def open_hands(self, process: SeenProcess, number: int, lines: list[str]) -> "MarkedHands":
        return MarkedHands(self, process, number, lines)

    def look(self) -> None:
        super().look()
        changes = self.find_changes()
        if self._checked != changes:
            self._checked = changes
            extra = self._list_rows() - self.expected
            if extra:
                self.wrong.append(f"the table has rows twice, or such as the log never had: {extra}")

    def published(self) -> Records:
        return super().published() + self._list_rows()

    def check_promises(self) -> None:
        assert not self.wrong, self.wrong[0]
        super().check_promises()
        assert self.count_loaded() == self.list_loaded().total(), "the marks count other rows than the table has"

    def _list_rows(self) -> Records:
        return Counter({(Role.DATA.value, *row): count for row, count in self.list_loaded().items()})


@dataclass
class TableWorld(MarkedWorld):
    """Its sink loads a table of Postgres."""

    place = TablesPlace("warehouse", {URN: LoadedTable("shop", "records")}, "marks")
    calls = ("tables.copy", "tables.move_mark", "tables.commit", "tables.commit", *_OF_THE_LOG)

    tables: SimTables = field(default_factory=SimTables)

    def take_turn(self, process: Process) -> None:
        _thread.reached = self.tables, process

    def find_changes(self) -> object:
        return self.tables.changes

    def list_loaded(self) -> Counter[tuple[str, int]]:
        return Counter({(vnode, int(n)): count for (vnode, n), count in self.tables.rows.items()})

    def count_loaded(self) -> int:
        return sum(mark.loaded_rows for mark in self.tables.marks.values())


@dataclass
class FileWorld(MarkedWorld):
    """Its sink loads a file of SQLite, as the example does it."""

    place = SqlitePlace(CONNECTION, {URN: LoadedTable("main", "records")})
    calls = ("sqlite.insert", "sqlite.replace", "sqlite.commit", "sqlite.begin", *_OF_THE_LOG)

    file: SimFile = field(default_factory=SimFile)

    def take_turn(self, process: Process) -> None:
        take_turn(self.file, process)

    def find_changes(self) -> object:
        return self.file.content

    def list_loaded(self) -> Counter[tuple[str, int]]:
        return Counter(self.file.list_rows("records", "vnode, n"))

    def count_loaded(self) -> int:
        return sum(count for (count,) in self.file.list_rows("gobblin_lane", "row_count"))

    @property
    def is_locked(self) -> bool:
        return self.file.holder is not None


class MarkedHands(SinkHands):
    world: MarkedWorld

    def work(self) -> None:
        self.world.take_turn(self.process)
        super().work()

    def operations(self) -> LogOperations:
        self.world.take_turn(self.process)
        return super().operations()

    def open_destination(self, request: DestinationRequest) -> Destination:
        return open_loaded_destination(request, self.world.place)


def _read_address(name: str) -> SimAddress:
    """Of the process whose turn it is: each has a thread of its own."""
    reached: tuple[Any, Any] = _thread.reached
    tables, process = reached
    return SimAddress(name, "jdbc:none", None, None, tables=tables, process=process)


@contextmanager
def marked() -> Iterator[None]:
    """In the block, steps that load a place find the simulated one of their process."""
    with stepped(), mock.patch.object(postgres_tables, "read_address", _read_address):
        yield


def run_marked_history(seed: int, open_world: type[MarkedWorld] = TableWorld) -> list[Transition]:
    """As ``SinkHistory.run``, of a sink whose rows are loaded into a place."""
    world = open_world(seed)
    try:
        with marked():
            found = SinkHistory(world, places=world.calls).run()
    except AssertionError as error:
        if not world.wrong:
            raise
        raise AssertionError(f"seed {seed}: {world.wrong[0]}") from error
    finally:
        world.stop()
    assert not world.wrong, f"seed {seed}: {world.wrong[0]}"
    return found


def run_file_history(seed: int) -> list[Transition]:
    """The same with the example's place."""
    return run_marked_history(seed, FileWorld)
