"""The request, the ports and the report of a run, which Dagster's assets, the command line and tests share."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from gobblin_assets.commit.sequence import AttemptRecord, Publication
from gobblin_assets.commit.step_world import OpenFileSystem
from gobblin_assets.errors import ErrorFamily
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.source_declarations import SourceComments, SourceConstraints
from gobblin_assets.model.state import DatasetId, DatasetOutcome, RunId, WorkingState
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.destination import Destination
from gobblin_assets.run.job_kind import CheckResult, JobKind, Restart, StartAt
from gobblin_assets.run.job_rules import JobRules
from gobblin_assets.run.lag import Lag
from gobblin_assets.run.stores import Stores

_PUBLISHED: Final = frozenset({DatasetOutcome.COMMITTED, DatasetOutcome.PARTIAL})


class Events(Protocol):
    """The sinks of one job. Neither method fails a run: an event that can't be sent waits in the log, and is said."""

    def begin(self, dataset_ids: Collection[DatasetId]) -> None:
        """Before anything is published: new sinks get these datasets from now on."""
        ...

    def deliver(self) -> None:
        """Deliver to each sink of the job what it has not got, at least once."""
        ...


class _NoSinks:
    """``Events`` of a job without sinks."""

    def begin(self, dataset_ids: Collection[DatasetId]) -> None:
        pass

    def deliver(self) -> None:
        pass


NO_SINKS: Final[Events] = _NoSinks()


@dataclass(frozen=True, slots=True)
class ReportedAs:
    """The report of a run, which Dagster gets later, from the log. ``by``: the command; ``mode``: as it was given.

    ``is_stream``: the run, or one of many that come every few seconds, is none in Dagster.
    """

    by: str
    mode: str | None = None
    is_stream: bool = False


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The request of a run: these partitions of these datasets of one job.

    ``by_hand``: a person or a backfill asked, and AUTO refreshes complete partitions. ``waits_for_turn``: a dataset
    that another process holds is waited for until that gives it back or dies. Otherwise it is waited for as long as
    the job's ``lease.wait_s``, if ``by_hand``, and not at all if the caller comes again by itself. ``restart``: for
    logs, this once. ``news_only``: a partition that was published before is published again only if something is new.
    ``confirm_deletes``: a person looked at the source; files of a copy that it lost all at once are removed, too.
    ``only_moves``: nothing is read; what is published is where ``restart`` lets the logs go on.
    ``reported_as``: publications stay unannounced, for whoever reports them; None: the run announces them itself.
    ``run_id``: made by whoever has to know it if this process dies; None: the run makes it. ``find_done``: asked once
    recovery is over for datasets, each with the key of a partition, that are published already as they were asked for.
    """

    job: JobRules
    selection: Mapping[DatasetUrn, tuple[AssetPartition, ...]]
    mode: Mode = Mode.AUTO
    by_hand: bool = True
    dagster_run_id: str | None = None
    restart: Restart | StartAt | None = None
    news_only: bool = False
    waits_for_turn: bool = False
    confirm_deletes: bool = False
    only_moves: bool = False
    reported_as: ReportedAs | None = None
    run_id: RunId | None = None
    find_done: Callable[[], Collection[tuple[DatasetUrn, str]]] | None = None

    @property
    def announces(self) -> bool:
        """Whether a publication counts as reported once ``on_publication`` has returned."""
        return self.reported_as is None


@dataclass(frozen=True, slots=True)
class RunPorts:
    """Everything a run needs from outside. ``destination`` is the job's.

    ``kind`` is the job's, with its datasets. ``interrupt`` ends the writes of a dead attempt, as far as that is
    possible.
    ``on_publication`` is called after each finished sequence, recovered ones included, with at-least-once
    semantics: the run marks the sequence as announced after it returned, if the request ``announces``.
    ``events``: the sinks that the job names.
    """

    stores: Stores
    destination: Destination
    open_file_system: OpenFileSystem
    kind: JobKind
    interrupt: Callable[[AttemptRecord], None]
    clock: Clock
    say: Callable[[str], None]
    on_publication: Callable[["DatasetReport"], None]
    events: Events = NO_SINKS


@dataclass(frozen=True, slots=True)
class DatasetReport:
    """The report of how one dataset partition left the run. ``publication`` is set when a sequence was finished.

    ``columns``: the published schema, name to Spark type text. ``error`` is a sentence fit for a person,
    without secrets; ``error_family`` its family. ``lag``: for a log, how much this run left unread of its records at
    planning. ``comments``: the source's comments on the published columns; ``constraints``: what the source
    declares of them. ``has_rows`` False: it is made of files whose rows nobody counts.
    """

    urn: DatasetUrn
    partition: AssetPartition
    outcome: DatasetOutcome
    publication: Publication | None = None
    checks: tuple[CheckResult, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    uri: str | None = None
    error: str | None = None
    error_family: ErrorFamily | None = None
    notes: tuple[str, ...] = ()
    figures: Mapping[str, float | int] = field(default_factory=dict)
    lag: Lag | None = None
    comments: SourceComments = field(default_factory=SourceComments)
    constraints: SourceConstraints = field(default_factory=SourceConstraints)
    has_rows: bool = True

    @property
    def is_busy(self) -> bool:
        """Whether nothing was done because another process held the dataset."""
        return self.outcome is DatasetOutcome.SKIPPED and self.error is not None

    @property
    def is_good(self) -> bool:
        """Whether what was asked for is published: now, or before if nothing is new."""
        return self.outcome in _PUBLISHED or (self.outcome is DatasetOutcome.SKIPPED and not self.is_busy)

    @property
    def label(self) -> str:
        """How lines and errors name it."""
        return self.urn if self.partition.key is None else f"{self.urn} [{self.partition.key}]"


@dataclass(frozen=True, slots=True)
class RunReport:
    """A finished run. ``recovered`` are the publications of earlier runs that this one completed."""

    run_id: RunId
    state: WorkingState
    datasets: tuple[DatasetReport, ...]
    recovered: tuple[DatasetReport, ...] = ()

    @property
    def failed(self) -> tuple[DatasetReport, ...]:
        return tuple(d for d in self.datasets if not d.is_good)
