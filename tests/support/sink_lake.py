"""A sink over a log that each process makes anew from its seed, with workers that are killed or stopped at failpoints.

The clock of a worker runs fast, so that what it does every ten seconds it does several times in a second.
"""

import datetime as dt
import io
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pyarrow.parquet as pq
from sqlalchemy import text

from gobblin_assets import failpoints
from gobblin_assets.commit.attempts import STAGING_NAME
from gobblin_assets.db.engine import open_external
from gobblin_assets.destinations.registry import open_destination
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.sink.dataset_sink import DatasetSink
from gobblin_assets.jobs.sink.lane_files import LaneFormat
from gobblin_assets.jobs.sink.lane_shares import plan_moves
from gobblin_assets.jobs.sink.running import make_first_lanes
from gobblin_assets.jobs.sink.sink_ports import SinkPorts
from gobblin_assets.jobs.sink.sink_rules import RollPolicy
from gobblin_assets.jobs.sink.sink_worker import SinkWorker
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.files import FileFormat
from gobblin_assets.model.state import DatasetId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.rows.arrow_types import arrow_schema
from gobblin_assets.run.destination import Destination, DestinationRequest
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.sources.jdbc.jdbc_kind import JdbcSourceSpec
from gobblin_assets.spec.job_options import LeaseSpec, LogSpec, PartitionsSpec
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec, QualitySpec, RollSpec, SinkSpec
from tests.support.fake_log import FakeLog
from tests.support.forks import FORKS
from tests.support.random_logs import COLUMNS, FakeEpochSource, Records, make_random_log, records_of
from tests.support.workers import WORKER_S_MAX, Worker

JOB: Final = "crash"
URN: Final = DatasetUrn("records")
NO_PARTITIONS: Final = PartitionsSpec()
NO_VARIABLES: Final[Mapping[str, str]] = MappingProxyType({})
_count = iter(range(1_000_000))


@dataclass(frozen=True)
class FastClock(SystemClock):
    """``speed`` seconds are one. ``behind_s``: how far its wall time is behind."""

    speed: float
    behind_s: float = 0.0

    def now(self) -> dt.datetime:
        return super().now() - dt.timedelta(seconds=self.behind_s)

    def monotonic(self) -> float:
        return time.monotonic() * self.speed

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / self.speed)


@dataclass(frozen=True)
class SinkLake:
    """The addresses and settings of one sink. Worker processes get a copy."""

    database_url: str
    directory: str
    seed: int = 1
    vnode_count: int = 5
    epoch_count: int = 5
    lanes: int = 2
    # By the workers' clocks; the database lets them end only where a test says so.
    lease_ttl_s: float = 6000.0
    speed: float = 50.0
    destination: str = ""
    partitions: PartitionsSpec = NO_PARTITIONS
    behind_s: float = 0.0

    @property
    def root(self) -> str:
        return self.destination or f"{self.directory}/lake"

    def make_log(self) -> FakeLog:
        return make_random_log(self.seed, self.vnode_count, self.epoch_count)

    def job(self) -> JobSpec:
        return JobSpec(
            job=JOB,
            source=JdbcSourceSpec(connection="none"),
            destination=self.root,
            lease=LeaseSpec(ttl_s=self.lease_ttl_s),
            retire_grace_s=0.0,
            # A drain waits for so many barriers by the fast clock.
            sink=SinkSpec(lanes=self.lanes, every_s=10.0 * self.speed, roll=RollSpec(age_s=0.0)),
            log=LogSpec(fold_keep=0, fold_min=2, fold_age_s=0.0),
        )

    @property
    def variables(self) -> Mapping[str, str]:
        """How a process reaches the destination."""
        return NO_VARIABLES

    def open_world(self) -> "SinkWorld":
        return SinkWorld(self)


@dataclass
class SinkWorld:
    """The sink opened by this process."""

    lake: SinkLake
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.lake.destination:
            Path(self.lake.root).mkdir(exist_ok=True)
        self.fs, self.root = open_file_system(self.lake.root)
        self.engine = open_external(self.lake.database_url)
        self.stores = open_stores(self.engine)

    def close(self) -> None:
        self.engine.dispose()

    def work(self, is_over: Callable[[], bool] | None = None) -> None:
        """Be a worker until all of the log is published, and lanes are as they were asked for."""
        deadline, published = time.monotonic() + WORKER_S_MAX, 0
        ask = is_over or self.is_published

        def wait(seconds: float) -> bool:
            nonlocal deadline, published
            time.sleep(seconds / self.lake.speed)
            if time.monotonic() > deadline:
                before, published = published, self.count_publications()
                assert published > before, f"the worker did not get on: {self.lines[-5:]}"
                deadline = time.monotonic() + WORKER_S_MAX
            return ask()

        self.open_worker(wait).run()

    def open_worker(self, wait: Callable[[float], bool]) -> SinkWorker:
        job = self.lake.job()
        clock = FastClock(self.lake.speed, self.lake.behind_s)
        ports = SinkPorts(
            job=job,
            stores=self.stores,
            destination=self.open_destination(
                DestinationRequest(
                    *(JobName(JOB), self.lake.root, self.fs, self.root),
                    *(self.stores, open_file_system, clock.new_id),
                )
            ),
            open_file_system=open_file_system,
            fs=self.fs,
            interrupt=lambda _attempt: None,
            clock=clock,
            say=self.lines.append,
            wait=wait,
            configuration="the same",
        )
        ports.destination.bind()
        dataset_id = self.register()
        make_first_lanes(job, self.stores, [dataset_id])
        sink = DatasetSink(
            urn=URN,
            dataset_id=dataset_id,
            spec=DatasetSpec(
                urn=URN, partitions=self.lake.partitions, quality=QualitySpec(dead_letter_fraction_max=1.0)
            ),
            source=FakeEpochSource(self.lake.make_log()),
            policy=RollPolicy(age_s=0.0),
            lane_format=LaneFormat(dict.fromkeys(Role, arrow_schema(COLUMNS)), FileFormat.PARQUET, "zstd"),
        )
        return SinkWorker(ports, {dataset_id: sink})

    def open_destination(self, request: DestinationRequest) -> Destination:
        return open_destination(request)

    def register(self) -> DatasetId:
        return self.stores.datasets.register(JobName(JOB), [URN])[URN]

    def scale(self, count: int) -> None:
        self.stores.lanes.spread(self.register(), count)

    def expire(self) -> None:
        """Let all leases run out, and nobody be counted as a live worker, as waiting would."""
        with self.engine.begin() as connection:
            for table in ("lease", "sink_worker"):
                connection.execute(
                    text(f"UPDATE gobblin.{table} SET expires_at = clock_timestamp() - interval '1 second'")
                )

    def is_published(self) -> bool:
        dataset_id = self.register()
        found = self.stores.lanes.load(dataset_id)[dataset_id]
        ends = self.lake.make_log().ends()
        at = {vnode: mark and int(mark.value) for lane in found.lanes for vnode, mark in lane.vnodes.items()}
        return at == ends and not plan_moves(found, frozenset(ends))

    def count_publications(self) -> int:
        """Of all lanes, those that were folded among them."""
        dataset_id = self.register()
        return sum(lane.version for lane in self.stores.lanes.load(dataset_id)[dataset_id].lanes)

    def published(self) -> Records:
        """The rows of the files that the ledger names."""
        records: Records = Counter()
        for role in Role:
            found = self.stores.published.find(JobName(JOB), URN, role=role)
            for file in [file for segment in (found.segments if found else ()) for file in segment.files()]:
                with self.fs.open_input(file.path) as stream:
                    table = pq.read_table(io.BytesIO(stream.read()))
                records.update((role.value, row["vnode"], row["n"]) for row in table.to_pylist())
        return records

    def expected(self) -> Records:
        return records_of(self.lake.make_log())

    def ledger(self) -> dict[str, list[tuple[int, int]]]:
        """The active intervals of each vnode, from low to high, without the empty ones."""
        query = text("""
            SELECT k.name, (l.low ->> 'value')::bigint AS low, (l.high ->> 'value')::bigint AS high
              FROM gobblin.ledger l JOIN gobblin.watermark_key k USING (key_id)
             WHERE l.active ORDER BY k.name, 2, 3
        """)
        found: dict[str, list[tuple[int, int]]] = {}
        with self.engine.connect() as connection:
            for row in connection.execute(query):
                if row.low != row.high:
                    found.setdefault(row.name, []).append((row.low, row.high))
        return found

    def scalar(self, query: str) -> object:
        with self.engine.connect() as connection:
            return connection.execute(text(query)).scalar()

    def check_exactly_once(self) -> None:
        """Check the rows, the intervals, the watermarks, the sequences and the files, after all work has ended."""
        assert self.published() == self.expected(), "what is published is not exactly the log"
        ends, ledger = self.lake.make_log().ends(), self.ledger()
        assert ledger.keys() == ends.keys()
        for vnode, intervals in ledger.items():
            assert [low for low, _high in intervals] == [0, *(high for _low, high in intervals[:-1])], (
                f"gaps or overlaps in the ledger of {vnode}: {intervals}"
            )
            assert intervals[-1][1] == ends[vnode]
        assert self.is_published()
        query = "SELECT count(*) FROM gobblin.commit_sequence WHERE state NOT IN ('DONE', 'ABORTED')"
        assert self.scalar(query) == 0, "a sequence is still open"
        assert self.scalar("SELECT count(*) FROM gobblin.lease WHERE expires_at > clock_timestamp()") == 0
        stray = set(self.stored_files()) - set(self.published_paths())
        assert not stray, f"files stand in the dataset that the log does not know: {stray}"

    def published_paths(self) -> list[str]:
        """Sorted: a fold joins segments, and with them changes the order of their files."""
        found = (self.stores.published.find(JobName(JOB), URN, role=role) for role in Role)
        return sorted(file.path for view in found if view for segment in view.segments for file in segment.files())

    def staging_left(self) -> list[str]:
        return [path for path in self._list_paths() if STAGING_NAME in path.split("/")]

    def stored_files(self) -> list[str]:
        """The files that readers may see."""
        below = self.root.count("/") + 1
        return [
            path
            for path in self._list_paths()
            if not any(part.startswith((".", "_")) for part in path.split("/")[below:])
        ]

    def _list_paths(self) -> list[str]:
        paths = [each.path for each in self.fs.list_files(self.root)]
        return [path for path in paths if path.endswith(".parquet")]

    def count_held_lanes(self) -> list[int]:
        """How many lanes each worker holds."""
        query = "SELECT count(*) FROM gobblin.lease WHERE expires_at > clock_timestamp() GROUP BY run_id ORDER BY 1"
        with self.engine.connect() as connection:
            return list(connection.execute(text(query)).scalars())

    def lane_sizes(self) -> list[int]:
        """How many vnodes each lane has, by the numbers of the lanes."""
        dataset_id = self.register()
        return [len(lane.vnodes) for lane in self.stores.lanes.load(dataset_id)[dataset_id].lanes]


def start_sink_worker(lake: SinkLake, *, failpoint: str = "", environment: Mapping[str, str] = NO_VARIABLES) -> Worker:
    """Start a worker with these failpoints armed. It ends at the log's end, once it has reached all of them.

    ``environment``: how the worker reaches the destination.
    """
    log = Path(lake.directory, f"sink-failpoints-{next(_count)}.log")
    process = FORKS.Process(target=_work, args=(lake, failpoint, str(log), {**lake.variables, **environment}))
    process.start()
    return Worker(process, log)


def _work(lake: SinkLake, failpoint: str, log: str, environment: Mapping[str, str]) -> None:
    os.environ.update(environment)
    world = lake.open_world()
    with failpoints.install(failpoints.ArmedFailpoints(failpoint, log)):
        world.work(lambda: count_reached(log) == len(list(filter(None, failpoint.split(",")))) and world.is_published())


def count_reached(log: str) -> int:
    path = Path(log)
    return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0
