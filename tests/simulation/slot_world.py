"""The simulated world of sinks over the change log of a Postgres: workers of three tables, which one slot gives them.

``SlotReader``, ``SlotEpochs``, ``TableCopy`` and the decisions below them are the product's own; what they ask is
answered by ``SimPostgres``. After each call the published rows must be what the log has up to the recorded positions:
a cut inside of a transaction, a lost change or one that is there twice is seen at once.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, ClassVar, Final, Self
from unittest import mock

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from gobblin_assets.errors import GobblinError
from gobblin_assets.jobs.sink import roll_policy
from gobblin_assets.jobs.sink.dataset_sink import DatasetSink
from gobblin_assets.jobs.sink.lane_files import LaneFormat
from gobblin_assets.jobs.sink.roll_policy import RollPolicy
from gobblin_assets.jobs.sink.sink_worker import SinkWorker
from gobblin_assets.model.file_formats import FileFormat
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.rows.arrow_types import arrow_schema
from gobblin_assets.sources.epoch_source import DecodedRows, LogStart
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.postgres_types import PgType
from gobblin_assets.sources.postgres_log import slot_epochs, slot_reader, table_copy, walsender
from gobblin_assets.sources.postgres_log.change_gathering import ChangeGathering
from gobblin_assets.sources.postgres_log.log_starts import LOG_FACT, TableStart
from gobblin_assets.sources.postgres_log.logged_table import COPIED_KEY, LoggedColumn, LoggedTable
from gobblin_assets.sources.postgres_log.pgoutput import RelationMessage
from gobblin_assets.sources.postgres_log.postgres_log_spec import PostgresLogSourceSpec
from gobblin_assets.sources.postgres_log.slot_epochs import SlotEpochs
from gobblin_assets.sources.postgres_log.slot_reader import SlotReader
from gobblin_assets.sources.postgres_log.table_copy import TableCopy
from gobblin_assets.spec.job_options import LeaseSpec, LogSpec
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.sink_spec import RollSpec, SinkSpec
from tests.models.lane_traces import Transition
from tests.simulation.process import Watched
from tests.simulation.sink_world import JOB, LEASE_S, ROOT, SinkHands, SinkWorld, TurningClock
from tests.simulation.slot_server import SimPostgres, read_insert
from tests.simulation.state_stores import SimDatasetStore, SimPublishedFiles
from tests.simulation.stepping import SeenProcess

TABLES: Final = ("clicks", "notes", "orders")
WRITES_MAX: Final = 300
CONFIRM_S: Final = 1.0
EMPTY_CUT_S: Final = 3.0

_COLUMNS: Final = (("n", "bigint"),)
_CONNECTION: Final = JdbcConnection(url="jdbc:postgresql://nowhere/shop", name="shop")


@dataclass
class SlotWorld(SinkWorld):
    """``stranger_at``: where somebody else has confirmed the slot to; then not all of the log can be published."""

    postgres: SimPostgres = field(init=False)
    _rows: dict[str, list[int]] = field(default_factory=dict)
    _looked: object = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.postgres = SimPostgres(TABLES, self.chance, WRITES_MAX, self._confirming)

    def open_hands(self, process: SeenProcess, number: int, lines: list[str]) -> "SlotHands":
        return SlotHands(self, process, number, lines)

    def spread(self, count: int) -> None:
        """A table has one lane."""

    # What is so ------------------------------------------------------------------------------------------

    def is_published(self) -> bool:
        """Whether all that is committed is published of each table, and nothing else is under way."""
        last = max((each.commit for each in self.postgres.log), default=0)
        marks = self.marks()
        is_idle = self.postgres.is_settled and not self.list_open()
        return is_idle and all(marks.get(table, 0) > last for table in TABLES)

    def marks(self) -> dict[str, int]:
        """Up to where the log of each table that was begun is published."""
        return {
            key.name.removeprefix("public.").partition(":")[0]: int(key.watermark.value)
            for key in self.db.keys.values()
            if key.watermark is not None
        }

    def list_published(self) -> frozenset[str]:
        return frozenset(path for table in TABLES for path in self._list_paths(table))

    def published_of(self, table: str) -> "Counter[int]":
        return Counter(number for path in self._list_paths(table) for number in self._read(path))

    def expected_of(self, table: str) -> "Counter[int]":
        """What the copy saw, and what the log has behind it, up to the recorded position."""
        mark = self.marks().get(table, 0)
        urn = DatasetUrn(f"public.{table}")
        state = SimDatasetStore(self.db).load(JOB, [urn]).get(urn)
        facts: Any = {} if state is None else state.source_facts.get(LOG_FACT, {})
        seen = self.postgres.snapshots.get(str(facts.get("seen", "")).partition("@")[0], frozenset())
        return Counter(
            number
            for each in self.postgres.log
            if mark and (each.commit < mark or each.xid in seen)
            for of_table, number in each.rows
            if of_table == table
        )

    def require_exact(self) -> None:
        for table in TABLES:
            found, expected = self.published_of(table), self.expected_of(table)
            assert found == expected, (
                f"{table} up to {self.marks().get(table)}: missing {sorted((expected - found).elements())}, "
                f"too many {sorted((found - expected).elements())}"
            )

    def check_promises(self) -> None:
        self.require_exact()
        assert not self.list_open(), "a row is still open"

    def look(self) -> None:
        """Rows are looked at whenever a publication is finished."""
        looked = sorted((key.name, str(key.watermark)) for key in self.db.keys.values()), len(self.list_done())
        if looked != self._looked:
            self._looked = looked
            self.require_exact()

    def list_done(self) -> list[object]:
        return [row for row in self.db.sequences.values() if not row.state.is_open]

    def check(self) -> list[Transition]:
        """The steps are those of any sink; its own histories compare them with the model."""
        return []

    def _confirming(self, position: int) -> None:
        """A table that was begun, and has no copy yet, will be followed from a place behind all that is so now."""
        marks = {table: at for table, at in self.marks().items() if at}
        assert position <= min(marks.values(), default=0), f"the slot is confirmed up to {position}, beyond {marks}"

    def _list_paths(self, table: str) -> list[str]:
        found = SimPublishedFiles(self.db).find(JOB, DatasetUrn(f"public.{table}"), role=Role.DATA)
        return [file.path for segment in (found.segments if found else ()) for file in segment.files()]

    def _read(self, path: str) -> list[int]:
        """A published file never changes."""
        content = self.disk.read(path)
        if path not in self._rows:
            self._rows[path] = pq.read_table(BytesIO(content))["n"].to_pylist()
        return self._rows[path]


class SlotHands(SinkHands):
    def work(self) -> None:
        job = _job()
        ports = self.open_ports(job)
        ids = self.stores.datasets.register(JOB, [DatasetUrn(f"public.{table}") for table in TABLES])
        server = self.watch("server", self.slot_world.postgres)
        sinks = {}
        for urn, dataset_id in ids.items():
            connection = SimConnection(server, self.clock)
            spec = DatasetSpec(urn=urn)
            sinks[dataset_id] = DatasetSink(
                urn=urn,
                dataset_id=dataset_id,
                spec=spec,
                source=SimSlotEpochs(connection, job, urn, spec),
                policy=RollPolicy(age_s=0.0),
                lane_format=LaneFormat(dict.fromkeys(Role, arrow_schema(_COLUMNS)), FileFormat.PARQUET, "zstd"),
            )
        SinkWorker(ports, sinks).run()

    @property
    def slot_world(self) -> SlotWorld:
        assert isinstance(self.world, SlotWorld)
        return self.world


# What the product's reader is given in place of a network ---------------------------------------------------------


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
        self.execute = sim.execute

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Nothing is held."""

    def rollback(self) -> None:
        """Nothing is open."""


class _CopyClient:
    """The module psycopg, as a copy uses it."""

    IsolationLevel = psycopg.IsolationLevel
    Error = psycopg.Error

    @staticmethod
    def connect(sim: SimConnection, autocommit: bool) -> _CopySession:
        del autocommit
        return _CopySession(sim)


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
    selected: Sequence[_SimColumn] = tuple(_SimColumn(*each) for each in _COLUMNS)


class SimTableCopy(TableCopy):
    """The product's, but for the layout of the table and the reading of its rows."""

    def _lay_out(self, session: Any) -> Any:
        del session
        table = self._start.table
        assert table is not None
        return _describe(table.name.table), _SimQuery(table.name.table)

    def _read(self, snapshot: str, query: Any, schema: pa.Schema) -> "Generator[pa.RecordBatch]":
        connection: Any = self._connection
        numbers = connection.server.read_snapshot(snapshot, query.table)
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
    """Numbers of copied rows, and of inserts."""

    columns: Sequence[tuple[str, str]] = _COLUMNS
    source_columns: Sequence[tuple[str, str]] = _COLUMNS
    dead_letter_columns: Sequence[tuple[str, str]] = _COLUMNS
    may_change: bool = False

    def decode(self, records: pa.RecordBatch) -> DecodedRows:
        if COPIED_KEY in (records.schema.metadata or {}):
            numbers = records["n"].to_pylist()
        else:
            numbers = [read_insert(payload) for payload in records["payload"].to_pylist()]
        rows = pa.record_batch({"n": pa.array(numbers, pa.int64())})
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


def _describe(table: str) -> LoggedTable:
    return LoggedTable(0, "public", table, "d", (LoggedColumn("n", PgType("int8", "b", "bigint", -1), in_key=True),))


def _describe_relation(_self: ChangeGathering, relation: RelationMessage) -> LoggedTable:
    return _describe(relation.table)


@contextmanager
def simulated_postgres() -> Iterator[None]:
    """The product's modules talk to simulated servers."""
    opened = {"open_log_session": lambda connection: connection.opened()}
    changes: Sequence[tuple[object, Mapping[str, object]]] = (
        (slot_epochs, opened),
        (slot_reader, {**opened, "Walsender": SimWalsender, "TableCopy": SimTableCopy, "CONFIRM_EVERY_S": CONFIRM_S}),
        (
            table_copy,
            {"psycopg": _CopyClient, "plan_conninfo": lambda connection: {"sim": connection}, "time": _NoTime},
        ),
        (walsender, {"time": _NoTime}),
        (ChangeGathering, {"_describe": _describe_relation}),
        (roll_policy, {"EMPTY_CUT_AGE_S": EMPTY_CUT_S}),
    )
    with ExitStack() as stack:
        for target, names in changes:
            for name, new in names.items():
                stack.enter_context(mock.patch.object(target, name, new))
        yield


def _job() -> JobSpec:
    return JobSpec(
        job=JOB,
        source=PostgresLogSourceSpec(connection="shop", publication="lake"),
        destination=ROOT,
        lease=LeaseSpec(ttl_s=LEASE_S),
        retire_grace_s=0.0,
        sink=SinkSpec(every_s=1.0, roll=RollSpec(age_s=0.0)),
        log=LogSpec(fold_keep=0, fold_min=2, fold_age_s=0.0),
    )
