"""What the product's reader of a slot is given in the simulated world in place of a network."""

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self
from unittest import mock

import pyarrow as pa

from gobblin_assets.errors import GobblinError
from gobblin_assets.jobs.sink import sink_rules
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.rows.arrow_types import arrow_schema
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.postgres_tables import PgType
from gobblin_assets.sources.log_port import DecodedRows, LogStart
from gobblin_assets.sources.postgres_log import (
    change_gathering,
    slot_epochs,
    slot_reader,
    table_copy,
    walsender,
)
from gobblin_assets.sources.postgres_log.change_gathering import ChangeGathering
from gobblin_assets.sources.postgres_log.copy_ranges import KeyRange
from gobblin_assets.sources.postgres_log.log_starts import TableStart
from gobblin_assets.sources.postgres_log.logged_table import (
    COPIED_KEY,
    LOST_KEY,
    TABLE_KEY,
    LoggedColumn,
    LoggedTable,
    parse_table,
    refuse_lost,
)
from gobblin_assets.sources.postgres_log.pgoutput import RelationMessage
from gobblin_assets.sources.postgres_log.postgres_log_kind import PostgresLogSourceSpec
from gobblin_assets.sources.postgres_log.server_state import PublishedTable
from gobblin_assets.sources.postgres_log.slot_epochs import SlotEpochs
from gobblin_assets.sources.postgres_log.slot_reader import SlotReader
from gobblin_assets.sources.postgres_log.table_copy import TableCopy, TablePlan
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from tests.simulation.process import Watched
from tests.simulation.sink_world import JOB, TurningClock
from tests.simulation.slot_messages import read_change

WRITES_MAX: Final = 300
CONFIRM_S: Final = 1.0
EMPTY_CUT_S: Final = 3.0

_CONNECTION: Final = JdbcConnection(url="jdbc:postgresql://nowhere/shop", name="shop")
_SOURCE_COLUMNS: Final = (("n", "bigint"),)
LOGGED_COLUMNS: Final = (*_SOURCE_COLUMNS, ("op", "string"), ("lsn", "bigint"), ("seq", "bigint"))


@dataclass(frozen=True)
class SimConnection:
    """A ``JdbcConnection`` of one process of the world; also its session. ``server``: its calls are the process's."""

    server: Watched
    clock: TurningClock
    name: str = _CONNECTION.name

    def execute(self, sql: str | bytes, arguments: Sequence[Any] | None = None) -> "_Answer":
        text = sql.decode() if isinstance(sql, bytes) else sql
        if text == table_copy._XMIN:
            self.clock.turn(0.0)
        return _Answer(self.server.execute(text, tuple(arguments or ())))

    def transaction(self) -> AbstractContextManager[None]:
        """No statement of the simulated server fails in it."""
        return nullcontext()

    @contextmanager
    def opened(self) -> Iterator[Self]:
        yield self


@dataclass(frozen=True)
class _Answer:
    rows: list[tuple[Any, ...]]

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.rows


class _CopySession:
    """psycopg's session of a copy. What is set of it has no effect: the server answers by the statement alone."""

    def __init__(self, sim: SimConnection) -> None:
        self._sim = sim
        self.snapshot = ""

    def transaction(self) -> AbstractContextManager[None]:
        """No statement of the simulated server fails in it."""
        return nullcontext()

    def execute(self, sql: str | bytes, arguments: Sequence[Any] | None = None) -> "_Answer":
        answer = self._sim.execute(sql, arguments)
        if sql == table_copy._SNAPSHOT.encode():
            self.snapshot = answer.rows[0][0]
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Nothing is held."""

    def rollback(self) -> None:
        """Nothing is open."""


class _NoTime:
    """The module time, where a moment is waited for: the server's clients go on at each question."""

    monotonic = staticmethod(lambda: 0.0)
    sleep = staticmethod(lambda _seconds: None)


@dataclass(frozen=True)
class _SimColumn:
    name: str
    held_as: str


@dataclass(frozen=True)
class _SimQuery:
    table: str
    selected: Sequence[_SimColumn] = tuple(_SimColumn(*each) for each in _SOURCE_COLUMNS)


class SimTableCopy(TableCopy):
    """The product's, but for the layout of the table and the reading of its rows."""

    def _lay_out(self, session: Any, published: PublishedTable) -> Any:
        del session
        return _describe(published.name.table), _SimQuery(published.name.table)

    def _plan(self, session: Any, published: PublishedTable, table: LoggedTable, partial: Any) -> TablePlan:
        del partial
        connection: Any = self._connection
        shape, bounds = connection.server.plan_copy(session.snapshot, published.name.table)
        return TablePlan(shape, table.columns[0].name if bounds else None, bounds)

    def _read(self, snapshot: str, query: Any, schema: pa.Schema, keys: KeyRange | None) -> "Generator[pa.RecordBatch]":
        connection: Any = self._connection
        low, high = (0, WRITES_MAX + 1) if keys is None else (keys.low or 0, keys.high or WRITES_MAX + 1)
        found = connection.server.read_snapshot(snapshot, query.table)
        numbers = [each for each in found if low <= each < high]
        for begin in range(0, len(numbers), 3):
            yield pa.record_batch([pa.array(numbers[begin : begin + 3], pa.int64())], schema=schema)


class SimWalsender:
    """``Walsender`` over the simulated server. What was sent before its end can still be read."""

    families = staticmethod(nullcontext)

    def __init__(self, connection: Any, *, slot: str, publication: str, start: int, job: str) -> None:
        del slot, publication, job
        self._sim: SimConnection = connection
        self._id = connection.clock.new_id().int
        self._buffer: list[tuple[bytes, int]] = []
        self._taken = 0
        self.sent_to = 0
        self._sim.server.stream(self._id, start)

    def read_message(self) -> bytes | None:
        if not self._buffer:
            found, keepalive = self._sim.server.fetch(self._id, 5, self._taken)
            self._buffer, self._taken = list(found), self._taken + len(found)
            if not found:
                self.sent_to = self.sent_to if keepalive is None else keepalive
                return None
        payload, self.sent_to = self._buffer.pop(0)
        return payload

    def wait(self, wait_s: float) -> None:
        self._sim.clock.turn(wait_s)

    def confirm(self, position: int) -> None:
        self._sim.server.confirm(self._id, position)

    def close(self) -> None:
        with suppress(GobblinError):
            self._sim.server.hang_up(self._id)


@dataclass(frozen=True)
class _Decoder:
    """Numbers of copied rows, and of changes, in order."""

    columns: Sequence[tuple[str, str]] = LOGGED_COLUMNS
    source_columns: Sequence[tuple[str, str]] = LOGGED_COLUMNS
    dead_letter_columns: Sequence[tuple[str, str]] = LOGGED_COLUMNS
    may_change: bool = False

    def decode(self, records: pa.RecordBatch) -> DecodedRows:
        metadata = records.schema.metadata or {}
        if LOST_KEY in metadata:
            raise refuse_lost(parse_table(metadata[TABLE_KEY]), metadata[LOST_KEY].decode(), urn="of the table")
        if COPIED_KEY in metadata:
            said = json.loads(metadata[COPIED_KEY])
            found = [(each, "r", said["lsn"], 0) for each in records["n"].to_pylist()]
            found = [(None, "t", said["lsn"], -1)] if said["begins"] else found
        else:
            found = [
                (number, op, each["lsn"], each["seq"] + step)
                for each in records.to_pylist()
                for step, (op, number) in enumerate(read_change(each["payload"]))
            ]
        schema = arrow_schema(LOGGED_COLUMNS)
        columns = zip(*found, strict=True) if found else [[] for _ in schema]
        rows = pa.record_batch(
            [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)], schema
        )
        return DecodedRows(rows, rows.slice(0, 0), 0)


class SimSlotEpochs(SlotEpochs):
    decoder: ClassVar[Any] = _Decoder()

    def __init__(self, connection: Any, job: JobSpec, urn: DatasetUrn, spec: DatasetSpec) -> None:
        source = job.source
        assert isinstance(source, PostgresLogSourceSpec)
        super().__init__(connection, source, job, urn, spec)
        self._sim: SimConnection = connection

    def open_reader(self, starts: Sequence[LogStart], say: Callable[[str], None]) -> SlotReader:
        found = [start.memory for start in starts if isinstance(start.memory, TableStart)]
        connection: Any = self._sim
        return SlotReader(connection, found, job=JOB, every_s=self._job.sink.every_s, say=say, clock=self._sim.clock)


def _describe(table: str, oid: int = 0) -> LoggedTable:
    return LoggedTable(oid, "public", table, "d", (LoggedColumn("n", PgType("int8", "b", "bigint", -1), in_key=True),))


def _describe_relation(_self: ChangeGathering, relation: RelationMessage, _urn: str) -> LoggedTable:
    return _describe(relation.table, relation.oid)


@contextmanager
def simulated_postgres() -> Iterator[None]:
    """The product's modules talk to simulated servers."""
    opened = {"open_log_session": lambda connection: connection.opened()}
    changes: Sequence[tuple[object, Mapping[str, object]]] = (
        # Which values of a table can be read is no matter of the slot.
        (slot_epochs, {**opened, "require_copyable": lambda *_given: None}),
        (slot_reader, {**opened, "Walsender": SimWalsender, "TableCopy": SimTableCopy, "CONFIRM_EVERY_S": CONFIRM_S}),
        (table_copy, {"open_source_session": _CopySession, "time": _NoTime}),
        (walsender, {"time": _NoTime}),
        (change_gathering, opened),
        (ChangeGathering, {"_describe": _describe_relation}),
        (sink_rules, {"EMPTY_CUT_AGE_S": EMPTY_CUT_S}),
    )
    with ExitStack() as stack:
        for target, names in changes:
            for name, new in names.items():
                stack.enter_context(mock.patch.object(target, name, new))
        yield
