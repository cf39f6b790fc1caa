"""A small world for the real protocol code: sources of numbered rows, a destination, and workers to kill.

All parts but the reading are the product's own: Postgres, the POSIX file system, leases, the log, the run.
Reading is a few lines of pyarrow, so that a whole run costs milliseconds and can be killed hundreds of times.
"""

import io
import json
import os
import signal
import threading
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from sqlalchemy import text

from gobblin_assets import failpoints
from gobblin_assets.commit.attempts import MARKERS_NAME, SET_ASIDE_NAME, STAGING_NAME
from gobblin_assets.commit.destination import IDENTITY_NAME
from gobblin_assets.commit.named_repair import Keep
from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.commit.segment import decode_segment
from gobblin_assets.db.engine import open_external
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import WHOLE
from gobblin_assets.model.policy import CommitPolicy
from gobblin_assets.model.state import RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.destination import Destination, DestinationRequest
from gobblin_assets.run.job_kind import JobKind
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.run_values import DatasetReport, RunPorts, RunReport, RunRequest
from gobblin_assets.run.runner import run_request, stream_request
from gobblin_assets.run.streaming import WaitForStop
from gobblin_assets.sources.jdbc.jdbc_spec import JdbcSourceSpec
from gobblin_assets.spec.job_options import LeaseSpec, LogSpec, RetrySpec, StreamSpec
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.state.leases import Holder
from tests.support.forks import FORKS
from tests.support.kinds import DESTINATIONS, DIRECTORIES, KINDS
from tests.support.lake_files import LakeFiles, open_lake_files
from tests.support.lake_rows import LakeRows
from tests.support.workers import Worker

JOB = "crash"
OF_OURS = frozenset({MARKERS_NAME, SET_ASIDE_NAME, IDENTITY_NAME})
"""Names of the product's own records at the destination, beside the files of datasets."""

URNS = ("orders", "a/b c.Ü")
COLUMNS = {"number": "bigint", "value": "string"}

Rows = Counter[tuple[int, str]]


@dataclass(frozen=True)
class Lake:
    """The addresses and settings of one world. Worker processes get a copy.

    ``store``: the URI below which the destination lies, where it is on no disk; processes reach it by ``environment``.
    """

    database_url: str
    directory: str
    urns: tuple[str, ...] = URNS
    lease_ttl_s: float = 60.0
    lease_wait_s: float = 0.0
    policy: str = "full"
    bad_units: tuple[int, ...] = ()
    publish_tries_max: int = 5
    publish_every_s: float = 0.01
    shares: bool = False
    at: str = "lake"
    job_name: str = JOB
    folds: bool = False
    kind: str = "numbered_rows"
    destination: str = DIRECTORIES
    store: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def root(self) -> str:
        """As a job file names it."""
        return f"{self.store or self.directory}/{self.at}"

    @property
    def work_root(self) -> str:
        """The root that the log knows."""
        return self.root

    @property
    def files(self) -> LakeFiles:
        return open_lake_files(self.root)

    @property
    def events(self) -> Path:
        """The file of announced publications."""
        return Path(self.directory, "events.log")

    @property
    def acknowledged(self) -> Path:
        """The file of publications that runs reported, if the test writes one."""
        return Path(self.directory, "acknowledged.log")

    def source_of(self, urn: str) -> Path:
        return Path(self.directory, "source", f"{self.urns.index(urn)}.jsonl")

    def add_rows(self, urn: str, count: int) -> None:
        path = self.source_of(urn)
        path.parent.mkdir(parents=True, exist_ok=True)
        start = len(self.source_rows(urn))
        with path.open("a", encoding="utf-8") as out:
            for number in range(start, start + count):
                out.write(json.dumps([number, f"{urn}-{number}"]) + "\n")

    def source_rows(self, urn: str) -> list[tuple[int, str]]:
        path = self.source_of(urn)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [(number, value) for number, value in map(json.loads, lines)]

    def open_world(self) -> "World":
        return World(self)

    def open_kind(self) -> JobKind:
        return KINDS[self.kind](LakeRows(self), lambda: self.urns, SystemClock(), COLUMNS, shares=self.shares)

    def job(self) -> JobSpec:
        return JobSpec(
            job=self.job_name,
            source=JdbcSourceSpec(connection="none"),
            destination=self.root,
            commit_policy=CommitPolicy(self.policy),
            parallelism=1,
            retry=RetrySpec(task_tries_max=2, back_off_s=0.0),
            lease=LeaseSpec(ttl_s=self.lease_ttl_s, wait_s=self.lease_wait_s),
            publish_tries_max=self.publish_tries_max,
            retire_grace_s=0.0,
            stream=StreamSpec(publish_every_s=self.publish_every_s),
            log=LogSpec(fold_keep=0, fold_min=1, fold_age_s=0.0) if self.folds else LogSpec(),
        )


def make_lake(database_url: str, folder: Path, combination: tuple[str, str], **options: Any) -> Lake:
    """Thirteen rows in each of two datasets, for a job kind and a destination."""
    kind, destination = combination
    made = Lake(database_url, str(folder), kind=kind, destination=destination, **options)
    make_root(made)
    for urn in made.urns:
        made.add_rows(urn, 13)
    return made


def make_root(lake: Lake) -> None:
    """Only a disk needs a directory."""
    if lake.destination == DIRECTORIES:
        Path(lake.root).mkdir()


@dataclass
class World:
    """The lake opened by this process."""

    lake: Lake
    events: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        os.environ.update(self.lake.environment)
        self.engine = open_external(self.lake.database_url)
        self.stores = open_stores(self.engine)

    def close(self) -> None:
        self.engine.dispose()

    def run(
        self,
        *,
        mode: Mode = Mode.APPEND,
        urns: Sequence[str] | None = None,
        by_hand: bool = True,
        news_only: bool = False,
    ) -> RunReport:
        request = self._request(urns or self.lake.urns, mode=mode, by_hand=by_hand)
        return run_request(replace(request, news_only=news_only), self._ports())

    def stream(self, wait_for_stop: WaitForStop) -> RunReport:
        return stream_request(
            self._request(self.lake.urns, mode=Mode.APPEND, by_hand=False), self._ports(), wait_for_stop
        )

    def _request(self, urns: Sequence[str], *, mode: Mode, by_hand: bool) -> RunRequest:
        return RunRequest(
            job=self.lake.job(),
            selection=dict.fromkeys(map(DatasetUrn, urns), (WHOLE,)),
            mode=mode,
            by_hand=by_hand,
        )

    def _ports(self) -> RunPorts:
        return RunPorts(
            stores=self.stores,
            destination=self.open_destination(),
            open_file_system=open_file_system,
            kind=self.lake.open_kind(),
            interrupt=lambda _attempt: None,
            clock=SystemClock(),
            say=self.lines.append,
            on_publication=self._record_event,
        )

    def open_destination(self) -> Destination:
        lake = self.lake
        fs, root = open_file_system(lake.root)
        places = (lake.root, fs, root, self.stores, open_file_system, SystemClock().new_id)
        return DESTINATIONS[lake.destination](DestinationRequest(JobName(lake.job().job), *places))

    def operations(self) -> LogOperations:
        clock = SystemClock()
        return LogOperations(
            store=self.stores.commits,
            leases=self.stores.leases,
            open_file_system=open_file_system,
            interrupt=lambda _attempt: None,
            clock=clock,
            holder=Holder("test", RunId(clock.new_id())),
            say=self.lines.append,
            lease_ttl_s=self.lake.lease_ttl_s,
            tries_max=self.lake.publish_tries_max,
        )

    def expire_leases(self) -> None:
        """Let all leases run out, as waiting would."""
        self.execute("UPDATE gobblin.lease SET expires_at = clock_timestamp() - interval '1 second'")

    def make_due(self) -> None:
        """Make sequences due now whose next try was put off."""
        self.execute("UPDATE gobblin.commit_sequence SET next_try_at = clock_timestamp() WHERE next_try_at IS NOT NULL")

    def execute(self, statement: str, **arguments: object) -> None:
        with self.engine.begin() as connection:
            connection.execute(text(statement), arguments)

    def published_rows(self, urn: str) -> Rows:
        """Read straight from the log's segments and the files, without the product's readers."""
        return self.read_rows(self.published_paths(urn))

    def rows_of(self, urn: str) -> Rows:
        """The rows of the files that the ledger names for the job now."""
        found = self.stores.published.find(JobName(self.lake.job_name), DatasetUrn(urn), role=Role.DATA)
        segments = () if found is None else found.segments
        return self.read_rows([file.path for segment in segments for file in segment.files()])

    def read_rows(self, paths: Sequence[str]) -> Rows:
        found: Rows = Counter()
        for path in paths:
            table = pq.ParquetFile(io.BytesIO(self.lake.files.read(path))).read()
            found.update(zip(table["number"].to_pylist(), table["value"].to_pylist(), strict=True))
        return found

    def published_paths(self, urn: str) -> list[str]:
        query = text("""
            SELECT g.payload, g.digest FROM gobblin.segment g
              JOIN gobblin.commit_sequence s USING (sequence_id) JOIN gobblin.dataset d ON d.dataset_id = g.dataset_id
             WHERE d.urn = :urn AND g.sealed AND g.retired_by IS NULL AND s.state = 'DONE'
        """)
        with self.engine.connect() as connection:
            rows = connection.execute(query, {"urn": urn}).all()
        steps = [step for row in rows for step in decode_segment(row.payload, row.digest)]
        return [path for step in steps for path, _identity, _rows in step.published()]

    def watermark(self, urn: str) -> int | None:
        query = text("""
            SELECT k.watermark ->> 'value' FROM gobblin.watermark_key k JOIN gobblin.dataset d USING (dataset_id)
             WHERE d.urn = :urn
        """)
        with self.engine.connect() as connection:
            value = connection.execute(query, {"urn": urn}).scalar_one_or_none()
        return None if value is None else int(value)

    def scalar(self, query: str, **arguments: object) -> object:
        with self.engine.connect() as connection:
            return connection.execute(text(query), arguments).scalar()

    def stored_files(self) -> list[str]:
        """All files below the destination, except the product's own records."""
        return [path for path in self.lake.files.list_all() if not OF_OURS & set(Path(path).parts)]

    def staging_left(self) -> list[str]:
        """Also uploads that nobody has completed."""
        return [path for path in self.lake.files.list_left(STAGING_NAME) if SET_ASIDE_NAME not in Path(path).parts]

    def check_exactly_once(self) -> None:
        """Check source and dataset as multisets, the watermark and the files, after all work has ended."""
        visible = []
        for urn in self.lake.urns:
            rows = self.lake.source_rows(urn)
            assert self.published_rows(urn) == Counter(rows), f"{urn} is not exactly its source"
            assert self.watermark(urn) == len(rows), f"the watermark of {urn} is not where the rows end"
            visible += self.published_paths(urn)
        assert self.stored_files() == sorted(visible), "files stand below the destination that the log doesn't know"
        assert not (left := self.staging_left()), f"cleanup left staging behind: {left}"
        assert (
            self.scalar("SELECT count(*) FROM gobblin.commit_sequence WHERE state <> 'DONE' AND state <> 'ABORTED'")
            == 0
        ), "a sequence is still open"

    def _record_event(self, report: DatasetReport) -> None:
        assert report.publication is not None
        self.events.append(str(report.publication.sequence_id))
        with self.lake.events.open("a", encoding="utf-8") as out:
            out.write(f"{report.publication.sequence_id}\n")


_count = iter(range(1_000_000))


def start_worker(
    lake: Lake, *, failpoint: str = "", mode: Mode = Mode.APPEND, action: str = "run", argument: str = ""
) -> Worker:
    """Start a run (or ``stream``, ``recover``, ``abandon``, ``repair``) with these failpoints armed."""
    log = Path(lake.directory, f"failpoints-{next(_count)}.log")
    process = FORKS.Process(target=_work, args=(lake, failpoint, str(log), mode, action, argument))
    process.start()
    return Worker(process, log)


def _work(lake: Lake, failpoint: str, log: str, mode: Mode, action: str, argument: str) -> None:
    world = lake.open_world()
    if failpoint:
        failpoints.arm(failpoint, log)
    match action:
        case "run":
            report = world.run(mode=mode)
            raise SystemExit(1 if report.failed else 0)
        case "stream":
            stopping = threading.Event()
            signal.signal(signal.SIGTERM, lambda _number, _frame: stopping.set())
            report = world.stream(stopping.wait)
            raise SystemExit(1 if report.failed else 0)
        case "recover":
            world.operations().recover_due(None, on_publication=lambda _publication: None)
        case "abandon":
            world.operations().abandon(SequenceId(uuid.UUID(argument)), reason="a test")
        case "repair":
            keep, _, sequence_id = argument.partition(" ")
            world.operations().repair(SequenceId(uuid.UUID(sequence_id)), Keep(keep), reason="a test")
        case _:
            raise AssertionError(action)
