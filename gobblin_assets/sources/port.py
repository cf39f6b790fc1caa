"""The port of a source: it plans WorkUnits from previous states, and gives a DataFrame for some of them.

``open_plan`` gives one planning session for a run. While it is open, a source that can pins what its
readers see (Postgres: an exported snapshot); so a run keeps it open until its last task has ended.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from gobblin_assets.errors import CorruptionError
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.state import DatasetState
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.rows.column_comments import SourceComments
from gobblin_assets.run.lag import Unread
from gobblin_assets.spec.job_spec import DatasetSpec


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

    spec: DatasetSpec
    urn: DatasetUrn
    partition: AssetPartition
    state: DatasetState
    mode: Mode
    by_hand: bool
    restart: Restart | StartAt | None = None
    load_intervals: LoadIntervals = _no_ledger


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """How one task of a plan went that is published: what it was expected to read, what it wrote, and in what time."""

    estimated_row_count: int
    file_bytes: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class SharedRows:
    """``frame`` is lazy; every row has the name of its plan in ``row_quality.SHARE_COLUMN``.

    ``row_counts`` are the rows of each name, as the source gave them; a name without rows may be left out.
    """

    frame: DataFrame
    row_counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Sharing:
    """That a plan can be read, and written, together with others whose ``key`` is equal.

    ``read`` gives the rows of all of them, each plan with its WorkUnits, under the ``name`` of each. Names differ, and
    consist of letters, digits, ``.``, ``_`` and ``-``. What the datasets' specifications say of rows and files is equal
    as well, and mixes no rows.
    """

    key: Hashable
    name: str
    read: Callable[[SparkSession, Sequence[tuple["PartitionPlan", Sequence[WorkUnit]]]], SharedRows]


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What to read for one dataset partition.

    ``mode`` is APPEND or REFRESH. ``replaces``: the active generation and intervals of this partition are
    retired when this one is finished (a refresh, or a snapshot). ``is_snapshot``: no interval is recorded.
    ``columns`` is the source's schema, name to type text, in order. ``notes`` are sentences for the run's log
    (rows ignored because their position is NULL, columns that were added, ...). ``late_key``: the columns
    that, with the watermark column, tell a late row from one that was published; set when some WorkUnit has
    ``reread_from``. ``facts`` replace the dataset's ``source_facts`` when this is published. ``degraded`` says what
    could not be asked for this time and is left to a later run; the publication then does not count as complete.
    ``learn`` gives the facts to remember in place of ``facts``, from how the published tasks went; it is pure.
    ``task_capacities`` are the loads that earlier tasks bore, in what ``WorkUnit.weight`` counts. ``sharing``: None
    where a plan is always read by itself.
    ``moves_watermarks``: False where what is read lies in the past of its keys, or ahead of their next reading.
    ``keys_are_shared``: positions are those of the whole dataset, whatever partition reads them, as a log's are.
    ``comments`` are what people wrote at the source about the table and its columns, by the source's names.
    ``unread`` is what a log had that is not published, whether this run reads all of it or not; empty for tables.
    """

    urn: DatasetUrn
    partition: AssetPartition
    mode: Mode
    replaces: bool
    is_snapshot: bool
    work_units: tuple[WorkUnit, ...]
    columns: Mapping[str, str]
    watermark_column: str | None
    late_key: tuple[str, ...]
    notes: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
    degraded: tuple[str, ...] = ()
    learn: Callable[[Sequence[TaskFigures]], Mapping[str, object]] | None = None
    task_capacities: tuple[int, ...] = ()
    sharing: Sharing | None = None
    unread: Unread = field(default_factory=dict)
    moves_watermarks: bool = True
    keys_are_shared: bool = False
    comments: SourceComments = field(default_factory=SourceComments)


class PlanSession(Protocol):
    """One run's view of the source."""

    def plan(self, request: PlanRequest) -> PartitionPlan:
        """Ask the source for bounds and schema, and cut WorkUnits. RejectedError names table and column."""
        ...

    def read(self, spark: SparkSession, plan: PartitionPlan, spec: DatasetSpec, units: Sequence[WorkUnit]) -> DataFrame:
        """A lazy DataFrame of exactly the rows of ``units``, which all belong to ``plan``."""
        ...

    def explain_failure(self, plan: PartitionPlan, spec: DatasetSpec, error: Exception) -> Exception:
        """Turn what Spark or the driver raised into one of the families, naming table and column if it can."""
        ...


class Source(Protocol):
    """A kind of source, with its connection."""

    def open_plan(
        self, spark: Callable[[], SparkSession], report: Callable[[str], None], requests: Sequence[PlanRequest] = ()
    ) -> AbstractContextManager[PlanSession]:
        """``requests``: what will be planned, for sources that ask about all of it at once, or share a bound.

        What can't be done for one of them is raised when that one is planned.
        """
        ...

    def discover(self, spark: Callable[[], SparkSession]) -> Sequence[str]:
        """The names of all tables of the connection, sorted; patterns are applied by the caller."""
        ...
