"""The simulated world of sinks over the change log of a Postgres: workers of three tables, which one slot gives them.

``SlotReader``, ``SlotEpochs``, ``TableCopy`` and the decisions below them are the product's own; what they ask is
answered by ``SimPostgres``. After each call the published rows must add up to what the tables had at the recorded
positions: a cut inside of a transaction, a lost change or one that is there twice is seen at once.
"""

import json
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
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
from gobblin_assets.sources.postgres_log.copy_ranges import KeyRange
from gobblin_assets.sources.postgres_log.log_starts import LOG_FACT, PLACE_MIN, TableStart
from gobblin_assets.sources.postgres_log.logged_table import COPIED_KEY, LOST_KEY, LoggedColumn, LoggedTable
from gobblin_assets.sources.postgres_log.pgoutput import RelationMessage, parse_lsn
from gobblin_assets.sources.postgres_log.postgres_log_spec import PostgresLogSourceSpec
from gobblin_assets.sources.postgres_log.range_planning import TablePlan
from gobblin_assets.sources.postgres_log.server_state import PublishedTable
from gobblin_assets.sources.postgres_log.slot_epochs import SlotEpochs
from gobblin_assets.sources.postgres_log.slot_reader import SlotReader
from gobblin_assets.sources.postgres_log.table_copy import TableCopy
from gobblin_assets.spec.job_options import LeaseSpec, LogSpec
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.sink_spec import RollSpec, SinkSpec
from tests.models.lane_traces import Transition
from tests.simulation.process import Watched
from tests.simulation.sink_world import JOB, LEASE_S, ROOT, SinkHands, SinkWorld, TurningClock
from tests.simulation.slot_server import SimPostgres, SimTransaction, read_change
from tests.simulation.state_stores import SimDatasetStore, SimPublishedFiles
from tests.simulation.stepping import SeenProcess

TABLES: Final = ("clicks", "notes", "orders")
WRITES_MAX: Final = 300
CONFIRM_S: Final = 1.0
EMPTY_CUT_S: Final = 3.0

_SOURCE_COLUMNS: Final = (("n", "bigint"),)
_COLUMNS: Final = (*_SOURCE_COLUMNS, ("op", "string"), ("lsn", "bigint"), ("seq", "bigint"))
_CONNECTION: Final = JdbcConnection(url="jdbc:postgresql://nowhere/shop", name="shop")


@dataclass
class SlotWorld(SinkWorld):
    """``stranger_at``: where somebody else has confirmed the slot to; then not all of the log can be published."""

    postgres: SimPostgres = field(init=False)
    _rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
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

    def published_of(self, table: str) -> Mapping[int, int]:
        """How often each number is there by the change log, where that is not zero times."""
        found: Counter[int] = Counter()
        for lsn, seq, op, number in sorted(row for path in self._list_paths(table) for row in self._read(path)):
            assert lsn is not None
            assert seq is not None
            if op == "t":
                found.clear()
            else:
                found[number] += -1 if op in "bd" else 1
        return {number: count for number, count in found.items() if count}

    def expected_of(self, table: str) -> Mapping[int, int]:
        """What the table had at the recorded position; of a copy in ranges, of each what its snapshot saw besides."""
        mark = self.marks().get(table, 0)
        if not mark:
            return {}
        fact = self._fact_of(table)
        ranges: Any = {"bounds": [], "seen": [fact.get("seen", "")]}
        if mark < PLACE_MIN:
            ranges = fact["copying"]["ranges"]
        elif "ranges" in fact:
            ranges = fact["ranges"]
        found = dict[int, int]()
        bounds = [0, *ranges["bounds"], WRITES_MAX + 1]
        for place, text in enumerate(ranges["seen"]):
            seen = self.postgres.snapshots.get(text.partition("@")[0], frozenset())
            until = mark if mark >= PLACE_MIN else 0
            rows = self.postgres.rows_by(table, partial(_counts, seen, until))
            found |= dict.fromkeys((each for each in rows if bounds[place] <= each < bounds[place + 1]), 1)
        return found

    def _fact_of(self, table: str) -> Any:
        urn = DatasetUrn(f"public.{table}")
        state = SimDatasetStore(self.db).load(JOB, [urn]).get(urn)
        return {} if state is None else state.source_facts.get(LOG_FACT, {})

    def require_exact(self) -> None:
        for table in TABLES:
            found, expected = self.published_of(table), self.expected_of(table)
            assert found == expected, (
                f"{table} up to {self.marks().get(table)}: missing {sorted(expected.keys() - found.keys())}, "
                f"too many {sorted(found.keys() - expected.keys())}, or not once "
                f"{sorted(each for each in found if found[each] != 1)}"
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
        marks = {table: self._followed_from(table, at) for table, at in self.marks().items() if at}
        assert position <= min(marks.values(), default=0), f"the slot is confirmed up to {position}, beyond {marks}"

    def _followed_from(self, table: str, mark: int) -> int:
        return mark if mark >= PLACE_MIN else parse_lsn(self._fact_of(table)["copying"]["place"])

    def _list_paths(self, table: str) -> list[str]:
        found = SimPublishedFiles(self.db).find(JOB, DatasetUrn(f"public.{table}"), role=Role.DATA)
        return [file.path for segment in (found.segments if found else ()) for file in segment.files()]

    def _read(self, path: str) -> list[tuple[Any, ...]]:
        """A published file never changes."""
        content = self.disk.read(path)
        if path not in self._rows:
            rows = pq.read_table(BytesIO(content)).to_pylist()
            self._rows[path] = [(row["lsn"], row["seq"], row["op"], row["n"]) for row in rows]
        return self._rows[path]


def _counts(seen: frozenset[int], until: int, transaction: SimTransaction) -> bool:
    return transaction.commit < until or transaction.xid in seen


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
        self._sim = sim
        self.snapshot = ""

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

    columns: Sequence[tuple[str, str]] = _COLUMNS
    source_columns: Sequence[tuple[str, str]] = _COLUMNS
    dead_letter_columns: Sequence[tuple[str, str]] = _COLUMNS
    may_change: bool = False

    def decode(self, records: pa.RecordBatch) -> DecodedRows:
        metadata = records.schema.metadata or {}
        assert LOST_KEY not in metadata, metadata[LOST_KEY]
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
        schema = arrow_schema(_COLUMNS)
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


def _describe(table: str) -> LoggedTable:
    return LoggedTable(0, "public", table, "d", (LoggedColumn("n", PgType("int8", "b", "bigint", -1), in_key=True),))


def _describe_relation(_self: ChangeGathering, relation: RelationMessage) -> LoggedTable:
    return _describe(relation.table)


@contextmanager
def simulated_postgres() -> Iterator[None]:
    """The product's modules talk to simulated servers."""
    opened = {"open_log_session": lambda connection: connection.opened()}
    changes: Sequence[tuple[object, Mapping[str, object]]] = (
        # Which values of a table can be read is no matter of the slot.
        (slot_epochs, {**opened, "require_copyable": lambda *_given: None}),
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
