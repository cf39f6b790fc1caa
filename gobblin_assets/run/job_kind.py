"""The port of a job kind: what plans WorkUnits, and turns them into outputs in a staging directory.

A run opens one session of it, plans each partition in it, and has a worker do what was planned, task by task. A plan
carries what its worker needs: sessions and workers find nothing by a dataset's name. Ingestion by Spark is one kind
(``jobs.ingest``); the protocol's crash tests run another one, of a few lines.
"""

import datetime as dt
import uuid
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from gobblin_assets.commit.published.port import PublishedSegment
from gobblin_assets.errors import CorruptionError, GobblinError, RetryableError
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.files import DataFile
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.state import AttemptId, DatasetId, DatasetState
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.model.watermark import Watermark
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.run.job_rules import SplitRules
from gobblin_assets.run.lag import Unread


class SessionLostError(RetryableError):
    """What all of a run works with is gone: nothing more of it can be planned or done, whichever the dataset."""


# What is asked for ------------------------------------------------------------------------------------------


class Restart(StrEnum):
    """What a person asks once of a log: to leave out what is in it, or to begin as if it had never been read."""

    MOVE_TO_LATEST = "move_to_latest"
    START_OVER = "start_over"


@dataclass(frozen=True, slots=True)
class StartAt:
    """What a person asks once of one topic: to go on from these offsets, by number of partition."""

    offsets: Mapping[int, int]

    @property
    def value(self) -> str:
        return "start_at"


LoadIntervals = Callable[[str | None], Mapping[str, Sequence[Interval]]]
"""What the ledger holds of the dataset by key, ascending: what a partition published, as the log stores it, or all."""


def _no_ledger(partition: str | None) -> Mapping[str, Sequence[Interval]]:
    raise CorruptionError(f"the ledger was asked for the partition {partition}, and this plan has none to look at")


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Plan one partition of one dataset. ``mode`` may still be AUTO; ``by_hand`` is what AUTO asks about.

    ``load_intervals`` reads the ledger, for plans that it decides; planning what comes next needs only ``state``.
    """

    urn: DatasetUrn
    partition: AssetPartition
    state: DatasetState
    mode: Mode
    by_hand: bool
    restart: Restart | StartAt | None = None
    load_intervals: LoadIntervals = _no_ledger


# What is planned --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """How one task of a plan went that is published: what it was expected to read, what it wrote, and in what time."""

    estimated_row_count: int
    file_bytes: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One quality check of a dataset partition, shown as a Dagster asset check."""

    name: str
    passed: bool
    blocking: bool
    description: str
    figures: Mapping[str, object] = field(default_factory=dict)


class Judge(Protocol):
    """What a plan's kind says of what was done for it. Pure."""

    def gate(self, staged: Sequence["Staged"], state: DatasetState) -> tuple[CheckResult, ...]:
        """The checks of what is about to be published: where one that blocks has failed, nothing is."""
        ...

    def tell(self, staged: Sequence["Staged"] | None, error: GobblinError | None) -> tuple[CheckResult, ...]:
        """Checks that keep nothing from being published. ``error`` is that of a task of the plan that failed.

        ``staged`` None: nothing is published.
        """
        ...

    def describe(self, staged: Sequence["Staged"]) -> Mapping[str, object]:
        """What the sequence keeps of the publication for those who look at it, fit for JSON."""
        ...


class NoChecks:
    """``Judge`` of a kind that has nothing to say."""

    def gate(self, staged: Sequence["Staged"], state: DatasetState) -> tuple[CheckResult, ...]:  # noqa: ARG002  the port's
        return ()

    def tell(self, staged: Sequence["Staged"] | None, error: GobblinError | None) -> tuple[CheckResult, ...]:  # noqa: ARG002  the port's
        return ()

    def describe(self, staged: Sequence["Staged"]) -> Mapping[str, object]:  # noqa: ARG002  the port's
        return {}


@dataclass(frozen=True, slots=True)
class Sharing:
    """That a plan can be done together with others whose ``key`` is equal. Names differ within a group.

    A name consists of letters, digits, ``.``, ``_`` and ``-``.
    """

    key: Hashable
    name: str


@dataclass(frozen=True, slots=True)
class DefaultSplit:
    """``SplitRules`` of a kind that has none of its own."""

    max_multi_work_units: int = 8
    task_rows_min: int = 2_000_000


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """What to do for one dataset partition.

    ``mode`` is APPEND or REFRESH. ``replaces``: the active generation and intervals of this partition are
    retired when this one is finished (a refresh, or a snapshot). ``is_snapshot``: no interval is recorded.
    ``payload`` is the kind's own: how the WorkUnits are done. ``columns`` are those of the source, name to type text,
    in order; none for what has no columns. ``notes`` are sentences for the run's log
    (rows ignored because their position is NULL, columns that were added, ...). ``facts`` replace the dataset's
    ``source_facts`` when this is published. ``degraded`` says what could not be asked for this time and is left to a
    later run; the publication then does not count as complete. ``learn`` gives the facts to remember in place of
    ``facts``, from how the published tasks went; it is pure. ``task_capacities`` are the loads that earlier tasks bore,
    in what ``WorkUnit.weight`` counts. ``sharing``: None where a plan is always done by itself.
    ``moves_watermarks``: False where what is done lies in the past of its keys, or ahead of their next reading.
    ``keys_are_shared``: positions are those of the whole dataset, whatever partition reads them, as a log's are.
    ``unread`` is what a log had that is not published, whether this run reads all of it or not; empty for tables.
    """

    urn: DatasetUrn
    partition: AssetPartition
    mode: Mode
    replaces: bool
    is_snapshot: bool
    work_units: tuple[WorkUnit, ...]
    payload: Any = None
    columns: Mapping[str, str] = field(default_factory=dict)
    judge: Judge = field(default_factory=NoChecks)
    split: SplitRules = field(default_factory=DefaultSplit)
    lag_max: int | None = None
    notes: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
    degraded: tuple[str, ...] = ()
    learn: Callable[[Sequence[TaskFigures]], Mapping[str, object]] | None = None
    task_capacities: tuple[int, ...] = ()
    sharing: Sharing | None = None
    unread: Unread = field(default_factory=dict)
    moves_watermarks: bool = True
    keys_are_shared: bool = False


# What is done -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkOrder:
    """Do ``units`` of ``plan`` and write what comes of them below ``directory``, which does not exist yet.

    Without ``units`` there is nothing to do: what is asked for is ``Staged.file_schemas``.
    ``started_at`` is the run's clock when the attempt started: the "now" of all its rows. ``tag`` names the work
    to a later ``cancel``. ``dataset_id`` and ``job`` are for what is compared with rows published before (the late
    window). ``schemas_beside`` are the schemas that the dataset's other active files have: what is written must be
    readable together with them.
    """

    job: JobName
    dataset_id: DatasetId
    plan: UnitPlan
    units: tuple[WorkUnit, ...]
    attempt_id: AttemptId
    directory: str
    started_at: dt.datetime
    tag: str
    schemas_beside: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """One leaf directory that was written.

    ``path`` is its full path in staging; ``partition_path`` its place below the dataset's partition, such as
    ``day=2013-01-01``, or "" when the output is not divided.
    """

    role: Role
    path: str
    partition_path: str
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class Staged:
    """What an attempt wrote, complete and closed but not yet durable. Its files' rows are those of their footers.

    ``file_schemas`` are JSON by role; ``columns`` the published data columns, name to type text.
    ``rows_read`` counts the rows that should come out again: what the source gave, less what converters and the
    late window took out. It is counted on the way of the rows, never from the files: an attempt whose files hold
    another number is given up. ``observed_high`` is the highest position that was really read, where it was observed.
    ``samples`` are some of the rows that were set aside, as people are shown them.
    """

    outputs: tuple[Output, ...]
    rows_read: int
    file_schemas: Mapping[Role, object] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    actual_highs: Mapping[uuid.UUID, Watermark | None] = field(default_factory=dict)
    observed_high: Watermark | None = None
    samples: tuple[str, ...] = ()

    def row_count(self, role: Role) -> int:
        return sum(f.row_count for output in self.outputs if output.role is role for f in output.files)


class Worker(Protocol):
    """Called from several threads at once, one for each running task."""

    def describe_interruption(self, tag: str, plans: Sequence[UnitPlan]) -> Mapping[str, object] | None:
        """What ends the work of ``tag`` after this process died, as JSON without secrets; None: it ends with it.

        ``plans`` are those that are done under the tag.
        """
        ...

    def do(self, order: WorkOrder) -> Staged:
        """Do it, or raise a family; whatever was raised, the directory may hold anything."""
        ...

    def do_together(self, orders: Sequence[WorkOrder]) -> Sequence[Staged]:
        """As ``do`` for each of them, by one read and one write: their plans share, and so does their tag.

        A failure is that of all of them. It says nothing of which one it came from.
        """
        ...

    def cancel(self, tag: str) -> None:
        """End the work of that tag as soon as possible; not knowing the tag is fine."""
        ...


class Session(Protocol):
    """One run's view of what it reads from."""

    def plan(self, request: PlanRequest) -> UnitPlan:
        """Ask the source, and cut WorkUnits. RejectedError names what a person has to mend.

        SessionLostError where no other request can be planned either.
        """
        ...

    def open_worker(self) -> Worker:
        """What does the session's plans. Called only where there is something to do."""
        ...


# What is rewritten ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RewriteOrder:
    """Write the rows of ``segments``, all of one role and schema, below ``directory``, which does not exist yet.

    ``tag`` names the work to who interrupts it.
    """

    job: JobName
    urn: DatasetUrn
    role: Role
    segments: Sequence[PublishedSegment]
    directory: str
    file_bytes: int
    tag: str


class Rewriter(Protocol):
    """What reads published files and writes the same rows into fewer ones."""

    def describe_interruption(self, tag: str) -> Mapping[str, object] | None:
        """What ends the work of ``tag`` after this process died, as JSON without secrets; None: it ends with it."""
        ...

    def rewrite(self, order: RewriteOrder) -> Sequence[Output]:
        """The directories that were written, complete and not yet durable; whatever was raised, they may hold anything.

        CorruptionError if the rows that were written are not those that were read.
        """
        ...


class JobKind(Protocol):
    """A kind of job, for one job: with its datasets and what it reads from. Nothing connects before ``open``."""

    @property
    def urns(self) -> Collection[DatasetUrn]:
        """The datasets of the job."""
        ...

    def open(self, report: Callable[[str], None], requests: Sequence[PlanRequest]) -> AbstractContextManager[Session]:
        """One view for a run, open until its last task has ended.

        ``requests``: what will be planned, for kinds that ask about all of it at once, or share a bound. What can't be
        done for one of them is raised when that one is planned.
        """
        ...

    def prepare(self) -> None:
        """Start now what would take the process's signals for itself when it starts, such as a JVM."""
        ...

    def current_partition(self, urn: DatasetUrn, now: dt.datetime) -> AssetPartition:
        """The partition that a stream writes to at ``now``."""
        ...

    @property
    def can_rewrite(self) -> bool:
        """Whether published files can be compacted."""
        ...

    def open_rewriter(self) -> Rewriter:
        """What compacts. Called only where there is something to compact, and ``can_rewrite``."""
        ...
