"""The port of a job kind, which plans WorkUnits and turns them into outputs in a staging directory.

A run opens one session, plans each partition in it, and lets a worker do the plans, task by task. A plan carries
everything that its worker needs: sessions and workers look nothing up by a dataset's name. Ingestion by Spark is one
kind (``jobs.ingest``); the protocol's crash tests run another kind of a few lines.
"""

import datetime as dt
import uuid
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from gobblin_assets.commit.published.published_port import PublishedSegment
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


class OutputNames(Protocol):
    """The directories of outputs: a value that can be pickled, for workers that write in other processes."""

    @property
    def foresees_etags(self) -> bool:
        """Whether the ETag of an object is known before it is there (``fs.objects.HoldsObjects``)."""
        ...

    def directory_of(self, role: Role, partition_path: str) -> str:
        """The full path of the directory, which no other sequence ever gets."""
        ...


class SessionLostError(RetryableError):
    """The session that the whole run needs is gone: nothing more can be planned or done for any dataset."""


# What is asked for ------------------------------------------------------------------------------------------


class Restart(StrEnum):
    """A person's request for one run of a log: skip its present records, or begin as if it had never been read."""

    MOVE_TO_LATEST = "move_to_latest"
    START_OVER = "start_over"


@dataclass(frozen=True, slots=True)
class StartAt:
    """A person's request for one run of one topic: go on from these offsets, by partition number."""

    offsets: Mapping[int, int]

    @property
    def value(self) -> str:
        return "start_at"


LoadIntervals = Callable[[str | None], Mapping[str, Sequence[Interval]]]
"""The dataset's intervals in the ledger by key, ascending: those of one partition, as the log stores it, or all."""


def _no_ledger(partition: str | None) -> Mapping[str, Sequence[Interval]]:
    raise CorruptionError(f"the ledger was asked for the partition {partition}, but this plan has no ledger")


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Plan one partition of one dataset. ``mode`` may still be AUTO, which is decided by ``by_hand``.

    ``load_intervals`` reads the ledger, for plans that depend on it; a plan of the next rows needs only ``state``.
    ``confirm_deletes``, ``only_moves``: as in ``RunRequest``.
    """

    urn: DatasetUrn
    partition: AssetPartition
    state: DatasetState
    mode: Mode
    by_hand: bool
    restart: Restart | StartAt | None = None
    load_intervals: LoadIntervals = _no_ledger
    confirm_deletes: bool = False
    only_moves: bool = False


# What is planned --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """Figures of one published task: the rows that it was expected to read, the rows that it wrote, and its time."""

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


OPTIONAL_ROWS: Final = frozenset({"rows_failed", "rows"})
"""The figures of a check of rows that are published though they did not pass it: how many, and of how many."""

FIGURES: Final = "figures"
"""Among the details of a publication: the kind's own numbers, by name."""

HAS_ROWS: Final = "has_rows"
"""Among the details of a publication: False for a kind that counts no rows."""


class Judge(Protocol):
    """The judgement of a plan's kind on the work for the plan. Pure."""

    def gate(self, staged: Sequence["Staged"], state: DatasetState) -> tuple[CheckResult, ...]:
        """The checks before a publication: if a blocking check has failed, nothing is published."""
        ...

    def report(self, staged: Sequence["Staged"] | None, error: GobblinError | None) -> tuple[CheckResult, ...]:
        """Checks that never prevent a publication. ``error``: the error of a failed task of the plan.

        ``staged`` None: nothing is published.
        """
        ...

    def describe(self, staged: Sequence["Staged"]) -> Mapping[str, object]:
        """The details of the publication that the sequence keeps for people, fit for JSON."""
        ...


class NoChecks:
    """``Judge`` of a kind without checks."""

    def gate(self, staged: Sequence["Staged"], state: DatasetState) -> tuple[CheckResult, ...]:  # noqa: ARG002  the port's
        return ()

    def report(self, staged: Sequence["Staged"] | None, error: GobblinError | None) -> tuple[CheckResult, ...]:  # noqa: ARG002  the port's
        return ()

    def describe(self, staged: Sequence["Staged"]) -> Mapping[str, object]:  # noqa: ARG002  the port's
        return {}


@dataclass(frozen=True, slots=True)
class Sharing:
    """A plan with this value can be done together with plans of an equal ``key``. Names differ within a group.

    A name consists of letters, digits, ``.``, ``_`` and ``-``.
    """

    key: Hashable
    name: str


@dataclass(frozen=True, slots=True)
class DefaultSplit:
    """``SplitRules`` of a kind without rules of its own."""

    max_multi_work_units: int = 8
    task_rows_min: int = 2_000_000


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One path that a plan changes, for people: what becomes of it, and why."""

    path: str
    action: str
    why: str
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class UnitPlan:
    """The work for one dataset partition.

    ``mode`` is APPEND or REFRESH. ``replaces``: the active generation and intervals of this partition are retired when
    this plan's sequence is finished (a refresh, or a snapshot). ``is_snapshot``: no interval is recorded. ``payload``
    is the kind's own value: how the WorkUnits are done. ``columns``: the source's columns, name to type text, in order;
    empty for a source without columns. ``notes``: sentences for the run's log (rows ignored because their position is
    NULL, columns that were added, ...). ``facts`` replace the dataset's ``source_facts`` when the plan is published.
    ``partition_facts``, if not None, are kept instead. The dataset's fact of each of these names is a mapping by
    partition; only this partition's value is set; None takes it away. ``degraded``: what the source could not be asked
    this time and is left to a later run; the publication then does not count as complete. ``learn`` returns the facts
    to keep instead of ``facts``, from the figures of the published tasks; it is pure. ``task_capacities``: the loads of
    earlier tasks, in the unit of ``WorkUnit.weight``. ``sharing`` None: the plan is always done by itself.
    ``moves_watermarks`` False: the WorkUnits lie in the past of their keys, or ahead of the keys' next reading.
    ``keys_are_shared``: all partitions of the dataset share the positions, as with a log. ``unread``: the unpublished
    positions of a log, whether this run reads all of them or not; empty for tables. ``changes``: the paths that the
    plan changes, of a kind that copies files. ``reader``: the name of what reads the WorkUnits, for people; "" for a
    kind with one reader.
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
    partition_facts: Mapping[str, object] | None = None
    degraded: tuple[str, ...] = ()
    learn: Callable[[Sequence[TaskFigures]], Mapping[str, object]] | None = None
    task_capacities: tuple[int, ...] = ()
    sharing: Sharing | None = None
    unread: Unread = field(default_factory=dict)
    reader: str = ""
    changes: tuple[PlannedChange, ...] = ()
    moves_watermarks: bool = True
    keys_are_shared: bool = False


# What is done -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkOrder:
    """Do ``units`` of ``plan`` and write their outputs below ``directory``, which does not exist yet.

    Without ``units`` only ``Staged.file_schemas`` is wanted.
    ``started_at`` is the run's clock when the attempt started: the "now" of all its rows. ``tag`` names the work
    for a later ``cancel``. ``dataset_id`` and ``job`` are for comparisons with rows published before (the late
    window). ``schemas_beside``: the schemas of the dataset's other active files; the output must be readable together
    with them. ``leftovers``: directories of failed attempts at the partition, the newest first. They are this attempt's
    alone now, and finished files may be moved out of them. ``names``: of a destination without renames, which asks
    where a file will stand before it is written; None: files are written below ``directory``.
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
    leftovers: tuple[str, ...] = ()
    names: OutputNames | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """One leaf directory that was written.

    ``path`` is its full path in staging; ``partition_path`` its place below the dataset's partition, such as
    ``day=2013-01-01``, or "" when the output is not divided. ``details``: what the kind says to its own destination.
    """

    role: Role
    path: str
    partition_path: str
    files: tuple[DataFile, ...]
    details: Any = None


@dataclass(frozen=True, slots=True)
class Staged:
    """The outputs of an attempt, complete and closed but not yet durable. Rows of files are those of their footers.

    ``file_schemas`` are JSON by role; ``columns`` the published data columns, name to type text.
    ``rows_read``: the number of rows that must be written: the source's rows, less the rows that converters and the
    late window removed. It is counted while the rows are read, never from the files: an attempt whose files hold
    another number of rows is refused. ``observed_high``: the highest position that was read, if it was observed.
    ``samples``: some of the rows that were set aside, as they are shown to people. ``optional_failures``: how many rows
    of the data did not pass an optional policy, by policy. ``notes`` and ``degraded``: as in ``UnitPlan``.
    """

    outputs: tuple[Output, ...]
    rows_read: int
    file_schemas: Mapping[Role, object] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    actual_highs: Mapping[uuid.UUID, Watermark | None] = field(default_factory=dict)
    observed_high: Watermark | None = None
    samples: tuple[str, ...] = ()
    optional_failures: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()

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
        """Do the order, or raise an error family; after an error, the directory may hold anything."""
        ...

    def do_together(self, orders: Sequence[WorkOrder]) -> Sequence[Staged]:
        """``do`` for several orders, by one read and one write: their plans share, and they have one tag.

        A failure is the failure of all orders, and does not say which order caused it.
        """
        ...

    def cancel(self, tag: str) -> None:
        """End the work of that tag as soon as possible; an unknown tag is no error."""
        ...


class Session(Protocol):
    """One run's view of its source."""

    def plan(self, request: PlanRequest) -> UnitPlan:
        """Ask the source, and cut WorkUnits. RejectedError names what a person has to correct.

        SessionLostError: no other request can be planned either.
        """
        ...

    def open_worker(self) -> Worker:
        """The worker for the session's plans. Called only if there is something to do."""
        ...


# What is rewritten ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RewriteOrder:
    """Write the rows of ``segments``, all of one role and schema, below ``directory``, which does not exist yet.

    ``tag`` names the work for an interruption.
    """

    job: JobName
    urn: DatasetUrn
    role: Role
    segments: Sequence[PublishedSegment]
    directory: str
    file_bytes: int
    tag: str


class Rewriter(Protocol):
    """Reads published files and writes the same rows into fewer files."""

    def describe_interruption(self, tag: str) -> Mapping[str, object] | None:
        """How to end the work of ``tag`` after this process died, as JSON without secrets; None: it ends by itself."""
        ...

    def rewrite(self, order: RewriteOrder) -> Sequence[Output]:
        """The written directories, complete and not yet durable; after an error, they may hold anything.

        CorruptionError if the written rows are not those that were read.
        """
        ...


class JobKind(Protocol):
    """A job kind for one job, with its datasets and its source. Nothing connects before ``open``."""

    @property
    def urns(self) -> Collection[DatasetUrn]:
        """The datasets of the job."""
        ...

    def open(self, say: Callable[[str], None], requests: Sequence[PlanRequest]) -> AbstractContextManager[Session]:
        """One view for a run, open until its last task has ended.

        ``requests``: the later plan requests, for kinds that ask about all of them at once, or share a bound. An error
        of one request is raised when that request is planned.
        """
        ...

    def prepare(self) -> None:
        """Start everything that takes over the process's signals at its start, such as a JVM."""
        ...

    def current_partition(self, urn: DatasetUrn, now: dt.datetime) -> AssetPartition:
        """The partition that a stream writes to at ``now``."""
        ...

    @property
    def can_rewrite(self) -> bool:
        """Whether published files can be compacted."""
        ...

    def open_rewriter(self) -> Rewriter:
        """The rewriter for a compaction. Called only if there is something to compact, and ``can_rewrite``."""
        ...
