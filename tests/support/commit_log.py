"""A commit log to write into step by step: the stores over Postgres or over the simulated database, and their clock.

The contract suites of the stores see nothing else. ``LogWorld.build`` leaves a sequence BUILDING with one staged
attempt, ``prepare`` seals it, ``publish`` finishes it. Each returns the values that it used, so that a test can pass
any of them again.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Engine

from gobblin_assets.commit.destination import DestinationStore
from gobblin_assets.commit.lanes import LaneState, LaneStore
from gobblin_assets.commit.postgres import PostgresCommitStepStore, PostgresDestinationStore
from gobblin_assets.commit.postgres.lanes import PostgresLaneStore
from gobblin_assets.commit.published.postgres import PostgresPublishedFiles
from gobblin_assets.commit.published.published_port import PublishedFiles
from gobblin_assets.commit.segment import Segment, combine_digests, encode_segments
from gobblin_assets.commit.sequence import (
    KeyMove,
    NewAttempt,
    NewSequence,
    PublishedInterval,
    SealOrder,
    StagedAttempt,
)
from gobblin_assets.commit.store import CommitStepStore
from gobblin_assets.destinations.files.rename_steps import RenameFile
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.state import (
    AttemptId,
    DatasetId,
    DatasetState,
    LaneId,
    RunId,
    SequenceId,
)
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.model.watermark import Watermark, long_watermark
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.state.datasets import DatasetStore, NewRun, RunStore
from gobblin_assets.state.leases import Holder, Lease, LeaseStore
from gobblin_assets.state.postgres import (
    PostgresDatasetStore,
    PostgresLeaseStore,
    PostgresRateShareStore,
    PostgresRunStore,
)
from gobblin_assets.state.postgres.sinks import PostgresSinkWorkerStore
from gobblin_assets.state.rate_shares import RateShareStore
from gobblin_assets.state.sinks import SinkWorkerStore
from tests.simulation.commit_store import SimCommitStepStore
from tests.simulation.database import SimDatabase
from tests.simulation.destination_store import SimDestinationStore
from tests.simulation.lane_store import SimLaneStore
from tests.simulation.lease_store import SimLeaseStore
from tests.simulation.rate_share_store import SimRateShareStore
from tests.simulation.sink_worker_store import SimSinkWorkerStore
from tests.simulation.state_stores import SimDatasetStore, SimPublishedFiles, SimRunStore
from tests.support.log_backings import Backing, PostgresBacking, SimBacking

JOB = JobName("shop")
ROOT_URI = "file:///lake"
TTL_S = 60.0


@dataclass(frozen=True, slots=True)
class Built:
    """A sequence with one staged attempt, and all values that it was made of."""

    lease: Lease
    new: NewSequence
    attempt: NewAttempt
    staged: StagedAttempt
    order: SealOrder

    @property
    def sequence_id(self) -> SequenceId:
        return self.new.sequence_id

    @property
    def fence(self) -> int:
        return self.lease.fence


@dataclass(frozen=True, slots=True)
class LogWorld:
    commits: CommitStepStore
    lanes: LaneStore
    leases: LeaseStore
    datasets: DatasetStore
    runs: RunStore
    published: PublishedFiles
    destinations: DestinationStore
    rate_shares: RateShareStore
    sink_workers: SinkWorkerStore
    backing: Backing
    names: dict[DatasetId, tuple[JobName, DatasetUrn]] = field(default_factory=dict)

    def advance(self, seconds: float) -> None:
        self.backing.advance(seconds)

    def register(self, urn: str, job: JobName = JOB) -> DatasetId:
        name = DatasetUrn(urn)
        dataset_id = self.datasets.register(job, [name])[name]
        self.names[dataset_id] = (job, name)
        return dataset_id

    def start_run(self, *, job: JobName = JOB, dagster_run_id: str | None = None) -> RunId:
        run_id = RunId(uuid.uuid4())
        self.runs.begin(NewRun(run_id, job, "worker", dagster_run_id))
        return run_id

    def take(self, dataset_id: DatasetId, run_id: RunId | None = None) -> Lease:
        """Take a free dataset for a run of its own."""
        (lease,) = self.leases.take([dataset_id], Holder("worker", run_id or self.start_run()), ttl_s=TTL_S)
        return lease

    def take_over(self, dataset_id: DatasetId) -> Lease:
        """Let the present lease run out, and take the dataset for another run."""
        self.advance(TTL_S + 1)
        return self.take(dataset_id)

    def spread(self, dataset_id: DatasetId, count: int) -> list[LaneId]:
        """Give the dataset this many lanes; returns them by number."""
        self.lanes.spread(dataset_id, count)
        return [lane.lane_id for lane in self.lanes_of(dataset_id)]

    def lanes_of(self, dataset_id: DatasetId) -> tuple[LaneState, ...]:
        return self.lanes.load(dataset_id)[dataset_id].lanes

    def take_lane(self, lane_id: LaneId, run_id: RunId | None = None) -> Lease:
        """Take a free lane for a run of its own."""
        (lease,) = self.leases.take_lanes([lane_id], Holder("worker", run_id or self.start_run()), ttl_s=TTL_S)
        return lease

    def state_of(self, dataset_id: DatasetId) -> DatasetState:
        job, urn = self.names[dataset_id]
        return self.datasets.load(job, [urn])[urn]

    def begin(
        self,
        lease: Lease,
        *,
        partition: str = "",
        replaces: bool = False,
        units: Sequence[tuple[int | None, WorkUnit]] = (),
    ) -> NewSequence:
        new = self.plan(lease, partition=partition, replaces=replaces, units=units)
        self.commits.begin(new)
        return new

    def plan(
        self,
        lease: Lease,
        *,
        partition: str = "",
        replaces: bool = False,
        units: Sequence[tuple[int | None, WorkUnit]] = (),
    ) -> NewSequence:
        """A sequence that is not begun yet."""
        status = self.leases.get_status(lease.lane_id)
        return NewSequence(
            SequenceId(uuid.uuid4()),
            lease.dataset_id,
            status.run_id or self.start_run(),
            partition,
            Mode.REFRESH if replaces else Mode.APPEND,
            replaces,
            lease.fence,
            ROOT_URI,
            tuple(units),
            lane=lease.lane,
        )

    def register_attempt(self, new: NewSequence, *, multi_work_unit: int = 0, try_number: int = 1) -> NewAttempt:
        attempt = attempt_of(new, multi_work_unit=multi_work_unit, try_number=try_number)
        self.commits.register_attempt(attempt)
        return attempt

    def build(
        self,
        lease: Lease,
        *,
        partition: str = "",
        replaces: bool = False,
        moves: Sequence[KeyMove] | None = None,
        segments: Sequence[Segment] | None = None,
        role: Role = Role.DATA,
        schema: object = None,
    ) -> Built:
        new = self.begin(lease, partition=partition, replaces=replaces)
        attempt = self.register_attempt(new)
        made = make_segments(attempt, partition=partition, role=role, schema=schema)
        parts = made if segments is None else tuple(segments)
        staged = staged_of(attempt, parts)
        self.commits.stage(staged)
        return Built(lease, new, attempt, staged, self.order(new, [staged], moves=moves))

    def order(
        self, new: NewSequence, winners: Sequence[StagedAttempt], *, moves: Sequence[KeyMove] | None = None
    ) -> SealOrder:
        """The order of a runner. ``moves`` None continues the key "id" by ten positions."""
        state = self.state_of(new.dataset_id)
        (lane,) = [each for each in self.lanes_of(new.dataset_id) if each.lane_id == new.lane_id]
        if moves is None:
            old = state.find_watermark("id", new.partition)
            moves = [move(old, 10 if old is None else int(str(old)) + 10, partition=new.partition)]
        segments = [segment for staged in winners for segment in staged.segments]
        return SealOrder(
            sequence_id=new.sequence_id,
            dataset_id=new.dataset_id,
            partition=new.partition,
            fence=new.fence,
            base_version=lane.version,
            winners=tuple(staged.attempt_id for staged in winners),
            digest=combine_digests(segment.digest for segment in segments),
            segment_count=len(segments),
            row_count=sum(segment.row_count for segment in segments),
            moves=tuple(moves),
            complete=True,
            details={"columns": [["id", "bigint"]], "source_columns": [["id", "int8"]]},
            lane=new.lane,
        )

    def prepare(self, lease: Lease, **options: Any) -> Built:
        built = self.build(lease, **options)
        self.commits.seal(built.order)
        return built

    def publish(self, lease: Lease, **options: Any) -> Built:
        built = self.prepare(lease, **options)
        self.commits.finish(built.sequence_id, fence=lease.fence)
        return built

    def block(self, built: Built) -> None:
        self.fail(built, block=True)

    def fail(self, built: Built, *, retry_in_s: float = 5.0, tries_max: int = 5, block: bool = False) -> None:
        self.commits.record_failure(
            built.sequence_id,
            fence=self.leases.get_status(built.new.lane_id).fence,
            error="no room",
            tries_max=tries_max,
            retry_in_s=retry_in_s,
            block=block,
        )

    def changes_nothing(self, call: Callable[[], object]) -> bool:
        """Make a call, and compare all tables with their state before. An error of the call passes through."""
        before = self.backing.digest()
        call()
        return self.backing.digest() == before


def attempt_of(new: NewSequence, *, multi_work_unit: int = 0, try_number: int = 1) -> NewAttempt:
    attempt_id = AttemptId(uuid.uuid4())
    return NewAttempt(
        attempt_id,
        new.sequence_id,
        new.dataset_id,
        new.fence,
        multi_work_unit,
        try_number,
        f"/lake/shop/.staging/{attempt_id.hex}",
        tag="tag",
        interruption={"session_id": "session", "user": "user", "tag": "tag"},
        lane=new.lane,
    )


def make_segments(
    attempt: NewAttempt, *, partition: str = "", role: Role = Role.DATA, row_count: int = 3, schema: object = None
) -> tuple[Segment, ...]:
    """One segment of one file."""
    step = RenameFile(
        f"{attempt.staging_path}/part-0.parquet",
        f"/lake/shop/orders/{attempt.sequence_id.hex}-{attempt.multi_work_unit}/part-0.parquet",
        FileIdentity(100, inode=7, mtime_ns=8),
        row_count,
    )
    return tuple(encode_segments([step], role=role, partition=partition, file_schema=schema))


def staged_of(attempt: NewAttempt, segments: Sequence[Segment], **changes: Any) -> StagedAttempt:
    ids = tuple(uuid.uuid4() for _segment in segments)
    staged = StagedAttempt(attempt.attempt_id, attempt.sequence_id, attempt.fence, tuple(segments), ids)
    return replace(staged, **changes)


def move(
    old: Watermark | int | None, new: int | None, *, key: str = "id", low: int | None = None, partition: str = ""
) -> KeyMove:
    """A move of longs; ``low`` None starts where the old position is. ``new`` None: a snapshot's generation."""
    left = long_watermark(old) if isinstance(old, int) else old
    right = None if new is None else long_watermark(new)
    return move_by(left, right, left if low is None else long_watermark(low), key=key, partition=partition)


def move_by(
    old: Watermark | None, new: Watermark | None, low: Watermark | None, *, key: str = "id", partition: str = ""
) -> KeyMove:
    """A move whose interval starts at ``low``. ``new`` None: a snapshot's generation."""
    intervals = () if new is None else (PublishedInterval(Interval(low, new)),)
    return KeyMove(key, partition, old, new, intervals)


def open_simulated(db: SimDatabase) -> LogWorld:
    return LogWorld(
        SimCommitStepStore(db),
        SimLaneStore(db),
        SimLeaseStore(db),
        SimDatasetStore(db),
        SimRunStore(db),
        SimPublishedFiles(db),
        SimDestinationStore(db),
        SimRateShareStore(db),
        SimSinkWorkerStore(db),
        SimBacking(db),
    )


def open_postgres(engine: Engine) -> LogWorld:
    return LogWorld(
        PostgresCommitStepStore(engine),
        PostgresLaneStore(engine),
        PostgresLeaseStore(engine),
        PostgresDatasetStore(engine),
        PostgresRunStore(engine),
        PostgresPublishedFiles(engine),
        PostgresDestinationStore(engine),
        PostgresRateShareStore(engine),
        PostgresSinkWorkerStore(engine),
        PostgresBacking(engine),
    )
