"""The simulated world: shared storage and database, numbered rows as sources, and processes that run the product.

``run_request``, ``LogOperations``, the lease keeper, recovery, driver, abandonment and cleanup are the product's own.
Its two kinds of threads become steps: a task runs when it is submitted, and heartbeats run between the calls.
A copy of a world is cheap, so that many faults are tried from one state.
"""

import datetime as dt
import itertools
import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self
from unittest import mock

from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations import row_forms
from gobblin_assets.errors import GobblinError, RetryableError
from gobblin_assets.fs.file_system import RenameOutcome
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.files import DataFile
from gobblin_assets.model.partition import WHOLE
from gobblin_assets.model.policy import CommitPolicy
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import DatasetState, RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.rows import attempt_files
from gobblin_assets.run import round as run_round
from gobblin_assets.run.destination import Destination, DestinationRequest
from gobblin_assets.run.job_kind import JobKind, PlanRequest, WorkOrder
from gobblin_assets.run.job_rules import JobRules
from gobblin_assets.run.run_values import DatasetReport, RunPorts, RunReport, RunRequest
from gobblin_assets.run.runner import run_request
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.jdbc.jdbc_kind import JdbcSourceSpec
from gobblin_assets.spec.job_options import LeaseSpec, LogSpec, RetrySpec
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.state.leases import Holder, LeaseKeeper
from tests.simulation.commit_store import SimCommitStepStore
from tests.simulation.database import SimDatabase
from tests.simulation.destination_store import SimDestinationStore
from tests.simulation.file_system import SimDisk, SimFileSystem
from tests.simulation.lane_store import SimLaneStore
from tests.simulation.lease_store import SimLeaseStore
from tests.simulation.process import KilledError, Process, Watched, WatchedFileSystem
from tests.simulation.rate_share_store import SimRateShareStore
from tests.simulation.sink_worker_store import SimSinkWorkerStore
from tests.simulation.sqlite_file import simulated_files
from tests.simulation.state_stores import SimDatasetStore, SimPublishedFiles, SimRunStore
from tests.support.kinds import COMBINATIONS, DESTINATIONS, KINDS, UNITS

JOB: Final = "sim"
ROOT: Final = "/lake"
URNS: Final = (DatasetUrn("orders"), DatasetUrn("lines"))
FILES_PER_UNIT: Final = 2
COLUMNS: Final = {"number": "bigint"}
COMBINATION = COMBINATIONS[0]
"""The kind and the destination of new worlds. The suites change it."""

ROWS_PER_BATCH: Final = UNITS * FILES_PER_UNIT
"""One row in a file: the smallest world in which a file can be lost or doubled by itself."""

FOLDS_ALL: Final = LogSpec(fold_keep=0, fold_min=1, fold_age_s=0.0)

LEASE_S: Final = 60.0
BACK_OFF_S_MAX: Final = 3600.0
SILENT_S_MAX: Final = 2 * 86_400.0
"""After so long, cleanup no longer looks for files of attempts that never reported their end."""

FREE: Final = frozenset({"scheme", "to_uri"})
"""What a file system answers without a look at anything outside."""

# No job of this world names a sink of events, and none is a sink, so that a call fails the test.
_UNREACHED: Final[Any] = None
_CALLS_PER_BEAT: Final = 40

guards_off: frozenset[str] = frozenset()
"""The guards that new worlds leave out; only mutants set it."""


class SimClock:
    """A process's own clock: ids that depend only on the process and a counter, and a time that never moves.

    A local clock can't do worse, since its limit on a lease then never stops a zombie.
    """

    def __init__(self, process_number: int, now_s: float) -> None:
        self._ids = itertools.count(1)
        self._number = process_number
        self.now_s = now_s

    def now(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self.now_s, dt.UTC)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def new_id(self) -> uuid.UUID:
        return uuid.UUID(int=(self._number << 64) | next(self._ids))


def number_of(made: uuid.UUID) -> int:
    """The process that made an id."""
    return made.int >> 64


@dataclass
class World:
    """The state that processes share. ``events`` are the publications that Dagster was told of, with repetitions."""

    disk: SimDisk = field(default_factory=SimDisk)
    db: SimDatabase = field(default_factory=lambda: SimDatabase(without=guards_off))
    source: dict[DatasetUrn, int] = field(default_factory=lambda: dict.fromkeys(URNS, 0))
    events: Counter[uuid.UUID] = field(default_factory=Counter)
    process_count: int = 0
    bad_units: frozenset[tuple[DatasetUrn, int]] = frozenset()
    policy: CommitPolicy = CommitPolicy.FULL
    shares: bool = False
    """One task reads both datasets, so they go through the log together."""
    folds: bool = False
    """Cleanup folds all that it may, however new."""
    kind: str = field(default_factory=lambda: COMBINATION[0])
    destination: str = field(default_factory=lambda: COMBINATION[1])

    def copy(self) -> Self:
        """Another world in the same state. The processes of this world stay here."""
        return replace(
            self, disk=self.disk.copy(), db=self.db.copy(), source=dict(self.source), events=Counter(self.events)
        )

    def fingerprint(self) -> object:
        """Equal for worlds that behave in the same way from now on."""
        events = tuple(sorted((each.int, count) for each, count in self.events.items()))
        return (self.disk.fingerprint(), self.db.fingerprint(), tuple(self.source.items()), events, self.process_count)

    def add_rows(self, count: int = ROWS_PER_BATCH) -> None:
        for urn in self.source:
            self.source[urn] += count

    def expire_leases(self) -> None:
        """Move the clock by more than a lease lasts and a failed publication waits."""
        self.db.advance(LEASE_S + BACK_OFF_S_MAX)

    def list_open(self) -> list[SequenceId]:
        """The sequences that are sealed and not finished."""
        states = (SequenceState.PREPARED, SequenceState.BLOCKED, SequenceState.ABANDONING)
        return [row.sequence_id for row in self.db.sequences.values() if row.state in states]

    def open_process(self, **options: Any) -> "Runner":
        self.process_count += 1
        return Runner(self, Process(f"process {self.process_count}", **options), self.process_count)


@contextmanager
def stepped() -> Iterator[None]:
    """In the block, threads of the product are steps: tasks run when submitted, heartbeats between calls.

    Files of SQLite are simulated.
    """

    def start(keeper: LeaseKeeper) -> None:
        keeper._store.watching.keepers.append(keeper)  # type: ignore[attr-defined]  # a Watched port of this world

    with (
        mock.patch.object(LeaseKeeper, "start", start),
        mock.patch.object(run_round, "ThreadPoolExecutor", _InlinePool),
        mock.patch.object(attempt_files, "ThreadPoolExecutor", _InlinePool),
        mock.patch.object(row_forms, "ThreadPoolExecutor", _InlinePool),
        simulated_files(),
    ):
        yield


class Runner:
    """A process of the world that runs the product. ``root``: of the destination, as the log knows it."""

    root = ROOT

    def __init__(self, world: World, process: Process, number: int) -> None:
        self.world = world
        self.process = process
        self.lines: list[str] = []
        self._clock = SimClock(number, now_s=1e6 * number)
        if process.on_call is None:
            process.on_call = self._beat
        db = world.db
        self._disk = world.disk
        self._stores = Stores(
            leases=self._watch("leases", SimLeaseStore(db)),
            datasets=self._watch("datasets", SimDatasetStore(db)),
            runs=self._watch("runs", SimRunStore(db)),
            commits=self._watch("log", SimCommitStepStore(db)),
            lanes=self._watch("lanes", SimLaneStore(db)),
            published=self._watch("published", SimPublishedFiles(db)),
            destinations=self._watch("destinations", SimDestinationStore(db)),
            events=_UNREACHED,
            reports=_UNREACHED,
            sink_windows=_UNREACHED,
            sink_workers=SimSinkWorkerStore(db),
            rate_shares=SimRateShareStore(db),
            tickets=_UNREACHED,
            worker_tickets=_UNREACHED,
            heartbeats=_UNREACHED,
            wires=_UNREACHED,
            drains=_UNREACHED,
        )
        self._fs = self._watch_files(SimFileSystem(world.disk))

    # Its actions -----------------------------------------------------------------------------------------

    def run(
        self,
        mode: Mode = Mode.APPEND,
        urns: Sequence[DatasetUrn] = URNS,
        *,
        waits_for_turn: bool = False,
        confirm_deletes: bool = False,
    ) -> RunReport | None:
        """A whole run; None if the process died in it. A run that fails as a whole counts as a failed run."""
        request = RunRequest(
            self._job(),
            dict.fromkeys(urns, (WHOLE,)),
            mode,
            waits_for_turn=waits_for_turn,
            confirm_deletes=confirm_deletes,
        )
        ports = RunPorts(
            stores=self._stores,
            destination=self._destination(),
            open_file_system=self._open_file_system,
            kind=self._kind(),
            interrupt=lambda _attempt: None,
            clock=self._clock,
            say=self.lines.append,
            on_publication=self._report,
        )
        return self._alive(lambda: run_request(request, ports))

    def _job(self) -> JobRules:
        return _job(self.world.policy, FOLDS_ALL if self.world.folds else LogSpec())

    def _destination(self) -> Destination:
        return self._open_destination(ROOT, ROOT)

    def _open_destination(self, uri: str, root: str) -> Destination:
        places = (self._fs, root, self._stores, self._open_file_system, self._clock.new_id)
        return DESTINATIONS[self.world.destination](DestinationRequest(JobName(JOB), uri, *places))

    def _kind(self) -> JobKind:
        return KINDS[self.world.kind](
            self._rows(), lambda: list(self.world.source), self._clock, COLUMNS, shares=self.world.shares
        )

    def _rows(self) -> "SimRows":
        return SimRows(self)

    def recover(self) -> None:
        """Recover like the sensor and the command line."""
        self._alive(lambda: self._operations().recover_due(None, on_publication=lambda _publication: None))

    def abandon(self, sequence_id: SequenceId) -> None:
        self._alive(lambda: self._operations().abandon(sequence_id, reason="somebody said so"))

    def clean(self) -> None:
        """Clean dataset by dataset, as the command line does for a person or a schedule."""
        log = FOLDS_ALL if self.world.folds else LogSpec()
        for row in list(self.world.db.datasets.values()):
            state = DatasetState(row.dataset_id, row.job, row.urn, row.version)
            self._alive(
                lambda state=state: self._operations().clean(
                    state, root_uri=self.root, retire_grace_s=0.0, fold=log.bounds
                )
            )

    def resume(self, sequence_id: SequenceId) -> None:
        self._alive(lambda: self._operations().resume(sequence_id))

    def _operations(self) -> LogOperations:
        return LogOperations(
            store=self._stores.commits,
            leases=self._stores.leases,
            open_file_system=self._open_file_system,
            interrupt=lambda _attempt: None,
            clock=self._clock,
            holder=Holder(self.process.name, RunId(self._clock.new_id())),
            say=self.lines.append,
            lease_ttl_s=LEASE_S,
        )

    def _alive(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except KilledError:
            return None
        except GobblinError as error:
            self.lines.append(f"{type(error).__name__}: {error}")
            return None

    # How its ports come to be steps ------------------------------------------------------------------------

    def _open_file_system(self, _uri: str) -> tuple[Any, str]:
        return self._fs, self.root

    def _watch_files(self, files: SimFileSystem) -> Any:
        return WatchedFileSystem(self.process, "fs", files, FREE)

    def _watch(self, prefix: str, port: object) -> Any:
        return Watched(self.process, prefix, port)

    def _beat(self, process: Process) -> None:
        """The heartbeat's thread, as one call among the others."""
        if len(process.calls) % _CALLS_PER_BEAT == _CALLS_PER_BEAT - 1:
            for keeper in process.keepers:
                try:
                    keeper.beat()
                except GobblinError as error:
                    self.lines.append(str(error))

    def _report(self, report: DatasetReport) -> None:
        assert report.publication is not None
        sequence_id = report.publication.sequence_id
        self.process.call("dagster.event", lambda: self.world.events.update([sequence_id]))

    # For its source and extractor ------------------------------------------------------------------------

    @property
    def clock(self) -> SimClock:
        return self._clock

    def write_file(self, path: str, content: bytes) -> Any:
        def write() -> Any:
            self._disk.write_file(path, content)
            return SimFileSystem(self._disk).find_identity(path)

        return self.process.call("storage.write", write)

    def make_directory(self, path: str) -> None:
        self.process.call("storage.mkdir", lambda: SimFileSystem(self._disk).make_directories(path))

    def move(self, source: str, target: str) -> None:
        def rename() -> None:
            fs = SimFileSystem(self._disk)
            fs.make_directories(target.rpartition("/")[0])
            if fs.rename_no_replace(source, target) is not RenameOutcome.RENAMED:
                # Another process took the dataset over while this one slept, and put the directory aside.
                raise RetryableError(f"{source} is gone")
            # Like ``SparkExtractor``: the engine syncs the files that the work produced.
            fs.sync_directories([source.rpartition("/")[0]])

        self.process.call("storage.move", rename)


def _job(policy: CommitPolicy, log: LogSpec) -> JobSpec:
    return JobSpec(
        job=JOB,
        source=JdbcSourceSpec(connection="none"),
        destination=ROOT,
        commit_policy=policy,
        parallelism=1,
        retry=RetrySpec(task_tries_max=2, back_off_s=0.0),
        lease=LeaseSpec(ttl_s=LEASE_S, wait_s=0.0),
        retire_grace_s=0.0,
        log=log,
    )


class _InlinePool(Executor):
    """Runs each task when it is submitted, so that a process's calls have one order."""

    def __init__(self, *_arguments: object, **_options: object) -> None:
        pass

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments, **options))
        except BaseException as error:  # noqa: BLE001  as a pool's thread does
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        pass


class SimRows:
    """``Rows`` of the world: each look and each write is a call that can fail."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def count(self, request: PlanRequest) -> int:
        return int(self._runner.process.call("source.plan", lambda: self._runner.world.source[request.urn]))

    def read(self, urn: DatasetUrn, number: int, low: int, high: int) -> list[list[Any]]:
        if (urn, number) in self._runner.world.bad_units:
            raise RetryableError("this WorkUnit can't be read")
        return [[urn, each] for each in range(low, high)]

    def file_rows(self, count: int) -> int:
        return max(1, -(-count // FILES_PER_UNIT))

    def make_directory(self, path: str) -> None:
        self._runner.make_directory(path)

    def write(self, order: WorkOrder, path: str, rows: Sequence[list[Any]]) -> tuple[DataFile, CommitStep | None]:
        del order
        identity = self._runner.write_file(path, json.dumps(rows).encode())
        return DataFile(path.rpartition("/")[2], identity, len(rows)), None

    def move(self, source: str, target: str) -> None:
        self._runner.move(source, target)
