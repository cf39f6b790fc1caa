"""The simulated world of sinks over the change log of a Postgres: workers of three tables, which one slot gives them.

``SlotReader``, ``SlotEpochs``, ``TableCopy`` and the decisions below them are the product's own; what they ask is
answered by ``SimPostgres``. After each call the published rows must add up to what the tables had at the recorded
positions: a cut inside of a transaction, a lost change or one that is there twice is seen at once.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from typing import Any, Final

import pyarrow.parquet as pq

from gobblin_assets.jobs.sink.dataset_sink import DatasetSink
from gobblin_assets.jobs.sink.lane_files import LaneFormat
from gobblin_assets.jobs.sink.sink_rules import RollPolicy
from gobblin_assets.jobs.sink.sink_worker import SinkWorker
from gobblin_assets.model.files import FileFormat
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.rows.arrow_types import arrow_schema
from gobblin_assets.sources.postgres_log.log_starts import LOG_FACT, PLACE_MIN
from gobblin_assets.sources.postgres_log.pgoutput import parse_lsn
from gobblin_assets.sources.postgres_log.postgres_log_kind import PostgresLogSourceSpec
from gobblin_assets.spec.job_options import LeaseSpec, LogSpec
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec, RollSpec, SinkSpec
from tests.models.lane_traces import Transition
from tests.simulation.sink_world import JOB, LEASE_S, ROOT, SinkHands, SinkWorld
from tests.simulation.slot_client import LOGGED_COLUMNS, WRITES_MAX, SimConnection, SimSlotEpochs
from tests.simulation.slot_server import SimPostgres, SimTransaction
from tests.simulation.state_stores import SimDatasetStore, SimPublishedFiles
from tests.simulation.stepping import SeenProcess

TABLES: Final = ("clicks", "notes", "orders")


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
                lane_format=LaneFormat(dict.fromkeys(Role, arrow_schema(LOGGED_COLUMNS)), FileFormat.PARQUET, "zstd"),
            )
        SinkWorker(ports, sinks).run()

    @property
    def slot_world(self) -> SlotWorld:
        assert isinstance(self.world, SlotWorld)
        return self.world


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
