"""The simulated world of sinks: workers over one log, whose calls take turns, and what is seen after each call.

``SinkWorker``, ``LogOperations`` and all below them are the product's own. ``trace`` has the observations that
``tests.models.lane_traces`` checks. Only the fence of a move is no fact of the log, and is noted at the move.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final

import pyarrow.parquet as pq

from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.commit.segment import list_published
from gobblin_assets.destinations.registry import open_directories
from gobblin_assets.jobs.sink.dataset_sink import DatasetSink
from gobblin_assets.jobs.sink.lane_files import LaneFormat
from gobblin_assets.jobs.sink.lane_shares import plan_moves
from gobblin_assets.jobs.sink.running import make_first_lanes
from gobblin_assets.jobs.sink.sink_ports import SinkPorts
from gobblin_assets.jobs.sink.sink_rules import RollPolicy
from gobblin_assets.jobs.sink.sink_worker import SinkWorker
from gobblin_assets.model.files import FileFormat
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import DatasetId, LaneId, RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.model.watermark import Watermark
from gobblin_assets.rows.arrow_types import arrow_schema
from gobblin_assets.run.destination import Destination, DestinationRequest
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.jdbc.jdbc_kind import JdbcSourceSpec
from gobblin_assets.spec.job_options import LeaseSpec, LogSpec
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec, QualitySpec, RollSpec, SinkSpec
from gobblin_assets.state.leases import Holder, Lease
from tests.models.lane_traces import (
    LaneObservation,
    ObservedLane,
    ObservedRow,
    ObservedVnode,
    Transition,
    check_split,
)
from tests.simulation import world as simulated
from tests.simulation.commit_store import SimCommitStepStore
from tests.simulation.database import SimDatabase
from tests.simulation.destination_store import SimDestinationStore
from tests.simulation.file_system import SimDisk, SimFileSystem
from tests.simulation.lane_store import SimLaneStore
from tests.simulation.lease_store import SimLeaseStore
from tests.simulation.process import NO_FAULTS, Faults, Watched, WatchedFileSystem
from tests.simulation.rate_share_store import SimRateShareStore
from tests.simulation.rows import SequenceRow
from tests.simulation.sink_worker_store import SimSinkWorkerStore
from tests.simulation.state_stores import SimDatasetStore, SimPublishedFiles, SimRunStore
from tests.simulation.stepping import Actor, SeenProcess
from tests.simulation.watched_log import WatchedSource
from tests.simulation.world import FREE, SimClock, number_of
from tests.support.fake_log import FakeLog
from tests.support.random_logs import COLUMNS, FakeEpochSource, Records, make_random_log, records_of

JOB: Final = JobName("sink")
URN: Final = DatasetUrn("records")
ROOT: Final = "/lake"
LEASE_S: Final = 60.0

_NOWHERE: Final = -1
"""The position of a vnode of which the log does not know yet where it begins."""
_TURN_S: Final = 0.2
_EMPTY: Final = 0.2
_KEPT: Final = 0.5
"""The share of changes that were not synced, and survive a power cut."""

_UNREACHED: Final[Any] = None  # no sink of events is named


class TurningClock(SimClock):
    """Moves by each of its process's turns, and stands while the process sleeps: nothing local stops a zombie."""

    def turn(self, seconds: float) -> None:
        self.now_s += max(seconds, _TURN_S)


@dataclass
class SinkWorld:
    """The state that processes share. ``is_over`` is asked for at each turn of a worker: whether the worker ends.

    ``watches_log``: what a worker asks of the log and of its decoder are calls as well.
    """

    seed: int
    db: SimDatabase = field(default_factory=lambda: SimDatabase(without=simulated.guards_off))
    vnode_count: int = 5
    epoch_count: int = 6
    watches_log: bool = False
    is_over: Callable[[], bool] = lambda: False
    disk: SimDisk = field(default_factory=SimDisk)
    # Since the last power cut.
    trace: list[LaneObservation] = field(default_factory=list)
    actors: list[Actor] = field(default_factory=list)
    log: FakeLog = field(init=False)
    expected: Records = field(init=False)
    _moved_by: dict[str, int] = field(default_factory=dict)
    _files: dict[SequenceId, frozenset[str]] = field(default_factory=dict)
    _visible: tuple[int, frozenset[str]] = (-1, frozenset())
    _ended_traces: list[list[LaneObservation]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.disk.mkdir(ROOT)
        self.chance = random.Random(self.seed)
        self.log = make_random_log(self.seed, self.vnode_count, self.epoch_count, empty_share=_EMPTY)
        self.expected = records_of(self.log)

    # Its processes ---------------------------------------------------------------------------------------

    def start_worker(self, faults: Faults = NO_FAULTS) -> Actor:
        """``faults``: by the numbers of its calls."""
        return self._start("worker", lambda hands: hands.work(), faults)

    def start_abandonment(self, sequence_id: SequenceId) -> Actor:
        return self._start("person", lambda hands: hands.operations().abandon(sequence_id, reason="somebody said so"))

    def _start(self, name: str, work: Callable[["SinkHands"], None], faults: Faults = NO_FAULTS) -> Actor:
        number = len(self.actors) + 1
        process = SeenProcess(f"{name} {number}", faults, look=self.look)
        lines: list[str] = []
        hands = self.open_hands(process, number, lines)
        self.actors.append(Actor(process, lambda: work(hands), lines))
        return self.actors[-1]

    def open_hands(self, process: SeenProcess, number: int, lines: list[str]) -> "SinkHands":
        return SinkHands(self, process, number, lines)

    def spread(self, count: int) -> None:
        if self.dataset_id is not None:
            SimLaneStore(self.db).spread(self.dataset_id, count)
            self.look()

    def drain(self) -> None:
        SimSinkWorkerStore(self.db).drain(JOB)

    def expire(self) -> None:
        """Let all leases run out."""
        self.db.advance(LEASE_S + 1)

    def stop(self) -> None:
        """Kill what still works."""
        for actor in self.actors:
            actor.kill()

    def cut_power(self) -> None:
        """Kill what works, and lose what was not synced; chance keeps some of it. A published file is never lost."""
        self.stop()
        self.look()
        before, finished = self._observe_visible(), self.list_published()
        self.disk.power_cut(lambda _change: self.chance.random() < _KEPT)
        self._visible = (-1, frozenset())
        lost = before - self._observe_visible()
        assert not lost & finished, f"a power cut took published files along: {sorted(lost & finished)}"
        self._ended_traces.append(self.trace)
        self.trace = []
        self.look()

    # What is so ------------------------------------------------------------------------------------------

    @property
    def is_locked(self) -> bool:
        """Whether nobody comes to an end until some process goes on."""
        return False

    @property
    def dataset_id(self) -> DatasetId | None:
        return next(iter(self.db.datasets), None)

    def find_holder(self, lane_id: LaneId) -> int:
        """The place among the actors of who held the lane last; -1: nobody did."""
        run_id = self.db.leases[lane_id].run_id
        return -1 if run_id is None else number_of(run_id) - 1

    def list_open(self) -> list[SequenceRow]:
        return [row for row in self.db.sequences.values() if row.state.is_open]

    def find_given_up_by_half(self) -> SequenceId | None:
        """Of which somebody told its place and, dead by then, not the log: a person gives it up again."""
        return next((each.sequence_id for each in self.list_open() if is_given_up_by_half(each)), None)

    def is_published(self) -> bool:
        """Whether all of the log is published, and the vnodes are spread as they are to be."""
        if self.dataset_id is None:
            return False
        found = SimLaneStore(self.db).load(self.dataset_id)[self.dataset_id]
        at = {vnode: _position(mark) for lane in found.lanes for vnode, mark in lane.vnodes.items()}
        return at == self.log.ends() and not plan_moves(found, frozenset(at))

    def list_published(self) -> frozenset[str]:
        """The paths of the files that the log names."""
        return frozenset(path for role in Role for path in self._list_published(role))

    def _list_published(self, role: Role) -> list[str]:
        found = SimPublishedFiles(self.db).find(JOB, URN, role=role)
        return [file.path for segment in (found.segments if found else ()) for file in segment.files()]

    def published(self) -> Records:
        """The rows of the files that the log names."""
        records: Records = Counter()
        for role in Role:
            for path in self._list_published(role):
                rows = pq.read_table(BytesIO(self.disk.read(path))).to_pylist()
                records.update((role.value, row["vnode"], row["n"]) for row in rows)
        return records

    def check_promises(self) -> None:
        """At the end: the sink is the log, for whoever asks the log of commits, and for whoever lists directories."""
        assert self.published() == self.expected, "what is published is not exactly the log"
        assert not self.list_open(), "a row is still open"
        phantoms = self._observe_visible() - self.list_published()
        assert not phantoms, f"nothing names the files {sorted(phantoms)}"
        for name, intervals in self._list_intervals().items():
            lows, highs = [low for low, _high in intervals], [high for _low, high in intervals]
            assert lows == [0, *highs[:-1]], f"gaps or overlaps in the ledger of {name}: {intervals}"
            assert highs[-1] == self.log.ends()[name], f"the ledger of {name} ends early: {intervals}"

    def _list_intervals(self) -> dict[str, list[tuple[int, int]]]:
        """The active intervals of each vnode, from low to high."""
        found: dict[str, list[tuple[int, int]]] = {}
        for entry in self.db.ledger.values():
            if entry.is_active and entry.low is not None and entry.high is not None:
                interval = int(entry.low.value), int(entry.high.value)
                found.setdefault(self.db.keys[entry.key_id].name, []).append(interval)
        return {name: sorted(intervals) for name, intervals in found.items()}

    # What is seen ----------------------------------------------------------------------------------------

    def look(self) -> None:
        """Take the next observation, unless nothing has changed."""
        seen = self._observe()
        if not self.trace or self.trace[-1] != seen:
            self.trace.append(seen)

    def check(self) -> list[Transition]:
        """The transitions up to now. AssertionError for a step that is none of the model's."""
        return [step for trace in (*self._ended_traces, self.trace) for step in check_split(trace)]

    def _observe(self) -> LaneObservation:
        db = self.db
        rows = {sequence.lane_id: self._observe_row(sequence) for sequence in self.list_open()}
        truncated = {vnode: at for vnode, at in self.log.truncated().items() if at > 0}
        return LaneObservation(
            {self._name(lane_id): ObservedLane(db.leases[lane_id].fence, rows.get(lane_id)) for lane_id in db.lanes},
            {
                key.name: ObservedVnode(self._name(key.lane_id), _position(key.watermark), self._moved_by.get(key.name))
                for key in db.keys.values()
            },
            self._observe_visible(),
            truncated,
        )

    def _observe_row(self, sequence: SequenceRow) -> ObservedRow:
        sequence_id = sequence.sequence_id
        if sequence_id not in self._files:
            sealed = [each for each in self.db.segments.values() if each.sequence_id == sequence_id and each.sealed]
            self._files[sequence_id] = frozenset(
                path for each in sealed for path, *_facts in list_published(each.payload, each.digest)
            )
        return ObservedRow(
            str(sequence_id),
            sequence.fence,
            {
                self.db.keys[move.key_id].name: (_position(move.old), _position(move.new))
                for move in self.db.moves.values()
                if move.sequence_id == sequence_id
            },
            self._files[sequence_id],
            sequence.state is SequenceState.ABANDONING,
        )

    def _observe_visible(self) -> frozenset[str]:
        if self._visible[0] != self.disk.calls:
            shown = (path for path in self.disk.files() if not any(part[:1] in "._" for part in path.split("/")[1:]))
            self._visible = self.disk.calls, frozenset(shown)
        return self._visible[1]

    def _name(self, lane_id: LaneId) -> str:
        return f"lane {self.db.lanes[lane_id].number}"

    def note_move(self, vnode: str, fence: int) -> None:
        self._moved_by[vnode] = fence


class NotedLaneStore(SimLaneStore):
    """Tells the world under which fence vnodes moved."""

    def __init__(self, world: SinkWorld) -> None:
        super().__init__(world.db)
        self._world = world

    def move(self, lease: Lease, number: int, vnodes: Any) -> frozenset[str]:
        before = {key.name: key.lane_id for key in self._db.keys.values()}
        there = super().move(lease, number, vnodes)
        for key in self._db.keys.values():
            if before[key.name] != key.lane_id:
                self._world.note_move(key.name, lease.fence)
        return there


class SinkHands:
    """What a process of the world works with: its own clock, and ports whose calls are the process's."""

    def __init__(self, world: SinkWorld, process: SeenProcess, number: int, lines: list[str]) -> None:
        self.world = world
        self.process = process
        self.lines = lines
        self.clock = TurningClock(number, now_s=1e6 * number)
        self._chance = random.Random(f"{world.seed} {number}")
        self._fs: Any = WatchedFileSystem(process, "fs", SimFileSystem(world.disk), FREE)
        db = world.db
        self.stores = Stores(
            leases=self.watch("leases", SimLeaseStore(db)),
            datasets=self.watch("datasets", SimDatasetStore(db)),
            runs=self.watch("runs", SimRunStore(db)),
            commits=self.watch("log", SimCommitStepStore(db)),
            lanes=self.watch("lanes", NotedLaneStore(world)),
            published=self.watch("published", SimPublishedFiles(db)),
            destinations=self.watch("destinations", SimDestinationStore(db)),
            events=_UNREACHED,
            reports=_UNREACHED,
            sink_windows=_UNREACHED,
            sink_workers=self.watch("workers", SimSinkWorkerStore(db)),
            rate_shares=SimRateShareStore(db),
            tickets=_UNREACHED,
            worker_tickets=_UNREACHED,
            heartbeats=_UNREACHED,
            wires=_UNREACHED,
            drains=_UNREACHED,
        )

    def work(self) -> None:
        """Be a worker of the sink until the world says that it is over, or somebody drains the sink."""
        job = _job()
        ports = self.open_ports(job)
        dataset_id = self.stores.datasets.register(JOB, [URN])[URN]
        make_first_lanes(job, self.stores, [dataset_id])
        source = FakeEpochSource(self.world.log, chance=self._chance, pace_s=0.0)
        sink = DatasetSink(
            urn=URN,
            dataset_id=dataset_id,
            spec=DatasetSpec(quality=QualitySpec(dead_letter_fraction_max=1.0)),
            source=WatchedSource(self.process, source) if self.world.watches_log else source,
            policy=RollPolicy(age_s=0.0),
            lane_format=LaneFormat(dict.fromkeys(Role, arrow_schema(COLUMNS)), FileFormat.PARQUET, "zstd"),
        )
        SinkWorker(ports, {dataset_id: sink}).run()

    def open_ports(self, job: JobSpec) -> SinkPorts:
        """Of a worker whose destination is bound."""
        request = DestinationRequest(JOB, ROOT, self._fs, ROOT, self.stores, self._open_file_system, self.clock.new_id)
        ports = SinkPorts(
            job=job,
            stores=self.stores,
            destination=self.open_destination(request),
            open_file_system=self._open_file_system,
            fs=self._fs,
            interrupt=lambda _attempt: None,
            clock=self.clock,
            say=self.lines.append,
            wait=self._wait,
            configuration="the same",
        )
        ports.destination.bind()
        return ports

    def open_destination(self, request: DestinationRequest) -> Destination:
        return open_directories(request)

    def operations(self) -> LogOperations:
        return LogOperations(
            store=self.stores.commits,
            leases=self.stores.leases,
            open_file_system=self._open_file_system,
            interrupt=lambda _attempt: None,
            clock=self.clock,
            holder=Holder(self.process.name, RunId(self.clock.new_id())),
            say=self.lines.append,
            lease_ttl_s=LEASE_S,
        )

    def _wait(self, seconds: float) -> bool:
        self.clock.turn(seconds)
        return self.world.is_over()

    def _open_file_system(self, _uri: str) -> tuple[Any, str]:
        return self._fs, ROOT

    def watch(self, prefix: str, port: object) -> Any:
        return Watched(self.process, prefix, port)


def is_given_up_by_half(row: SequenceRow) -> bool:
    """Whether its place refuses what its log still wants; the error says what a person does."""
    return row.state is SequenceState.BLOCKED and (row.last_error or "").endswith("Abandon it.")


def _position(mark: Watermark | None) -> int:
    return _NOWHERE if mark is None else int(mark.value)


def _job() -> JobSpec:
    return JobSpec(
        job=JOB,
        source=JdbcSourceSpec(connection="none"),
        destination=ROOT,
        lease=LeaseSpec(ttl_s=LEASE_S),
        retire_grace_s=0.0,
        sink=SinkSpec(lanes=2, roll=RollSpec(age_s=0.0)),
        log=LogSpec(fold_keep=0, fold_min=2, fold_age_s=0.0),
    )
