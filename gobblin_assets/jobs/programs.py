"""Programs that run and show jobs, by the kind of their specification, and the views that they give of datasets.

A package whose kind has a specification of its own offers a program by an entry point of the group
``gobblin_assets.job_programs``. A kind that writes the options of an ingestion needs none.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from gobblin_assets.extensions import Extensions
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.run.dry_run import PlannedSlice
from gobblin_assets.run.job_kind import CheckResult
from gobblin_assets.run.job_rules import JobRules
from gobblin_assets.run.run_values import DatasetReport, RunPorts
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_kinds import COPY_KIND, DEFAULT_KIND
from gobblin_assets.spec.job_options import DatasetOptions, JobOptions
from gobblin_assets.spec.source_spec import SourceSpec

Say = Callable[[str], None]
OnPublication = Callable[[DatasetReport], None]


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A table that has the rows. ``storage``: the kind of the store, such as postgres, iceberg."""

    name: str
    storage: str


@dataclass(frozen=True, slots=True)
class ShownTree:
    """A tree of files that a dataset is copied from. ``kind``: that of its file system, such as file, s3."""

    uri: str
    kind: str


@dataclass(frozen=True, slots=True)
class ShownAsset:
    """One role of one dataset. ``kinds``: the technologies that people see, at most three.

    ``uri``: where it is published. ``source_name``: its table or topic, for a dataset that is read over a connection;
    ``source_tree``: of a copy. ``table``: where rows go into a table.
    """

    description: str
    uri: str
    kinds: frozenset[str]
    metadata: Mapping[str, str] = field(default_factory=dict)
    source_name: str | None = None
    source_tree: ShownTree | None = None
    table: ShownTable | None = None


@dataclass(frozen=True, slots=True)
class DeclaredCheck:
    """A check that a dataset has.

    ``is_audit``: no publication evaluates it; it compares what is published with the source when somebody asks.
    ``of_sink``: of the dataset as a whole, and not of its partitions; the sink's sensor evaluates it.
    """

    name: str
    description: str
    blocking: bool = False
    is_audit: bool = False
    of_sink: bool = False


class SetId(NamedTuple):
    """A file set of a dataset. ``key``: its partition's; empty for a dataset that is one set."""

    urn: DatasetUrn
    key: str


@dataclass(frozen=True, slots=True)
class WatchRules:
    """The rules by which sets are watched.

    ``interval_s``: how often. ``running``: whether the sensor runs without being turned on. ``finds_datasets``: whether
    datasets and sets may come and go; else they are written in the job.
    """

    interval_s: int
    running: bool
    finds_datasets: bool


class FileSets(Protocol):
    """The sets that one look has found. Looks are cheap and bounded, since sensors repeat them."""

    @property
    def datasets(self) -> Mapping[DatasetUrn, DatasetOptions]:
        """The datasets as assets."""
        ...

    def list_sets(self) -> Sequence[SetId]:
        """The sets, newest keys first."""
        ...

    def find_mark(self, each: SetId) -> str | None:
        """A short text that changes when the set does; None for a set that is not ready.

        RejectedError for a set that is too large for a look, RetryableError if it can't be looked at now.
        """
        ...


class OpenFiles(Protocol):
    """Gives the file system of a URI, and the root's path in it."""

    def __call__(self, uri: str, *, umask: int | None = None) -> tuple[FileSystem, str]: ...


@dataclass(frozen=True, slots=True)
class RunResources:
    """The resources of a run in place of the environment's. ``connection`` None: the environment's."""

    open_file_system: OpenFiles = open_file_system
    connection: Any = None


FROM_ENVIRONMENT: Final = RunResources()


class JobProgram(Protocol):
    """The work of commands and assets with a job. ``job`` is a specification of the program's kind."""

    def read_datasets(self, job: Any) -> Mapping[DatasetUrn, DatasetOptions]:
        """Every dataset of the job, as written or found. RejectedError for what a person must correct."""
        ...

    def rules_of(self, job: Any) -> JobRules:
        """The rules that the engine asks the job for."""
        ...

    def root_uri(self, job: Any) -> str:
        """The root that the log knows the job by."""
        ...

    def open_run(
        self,
        job: Any,
        datasets: Mapping[DatasetUrn, DatasetOptions],
        open_spark: Callable[[], Any],
        stores: Stores,
        say: Say,
        on_publication: OnPublication,
        resources: RunResources = FROM_ENVIRONMENT,
    ) -> AbstractContextManager[RunPorts]:
        """The ports of a run of the job. ``open_spark`` gives the engine that may open a session of Spark."""
        ...

    def source_of(self, job: Any) -> SourceSpec | None:
        """The source that the job reads over a connection; None for a job that needs no connection."""
        ...

    def roles_of(self, job: Any) -> Sequence[Role]:
        """The roles that are assets of their own, DATA among them."""
        ...

    def find_discovered(self, job: Any) -> Sequence[str] | None:
        """The names that `gobblin-assets discover` found for the job's patterns; None without patterns or discovery."""
        ...

    def declare_datasets(
        self, job: Any, discovered: Sequence[str] | None, *, searches: bool
    ) -> Mapping[DatasetUrn, DatasetOptions]:
        """The datasets that are assets, with their partitions. ``discovered`` as by ``find_discovered``.

        ``searches``: a job that finds its datasets by itself looks for them now, within a bound; else it takes those
        that were found last. RejectedError for what a person must correct.
        """
        ...

    def as_assets(self, job: Any, datasets: Mapping[DatasetUrn, Any]) -> Mapping[DatasetUrn, DatasetOptions]:
        """Datasets of ``read_datasets`` as ``declare_datasets`` gives them."""
        ...

    def may_lack_datasets(self, job: Any) -> bool:
        """Whether the job may have no datasets yet, and find some later."""
        ...

    def show(self, job: Any, dataset: Any, role: Role) -> ShownAsset:
        """One role of a dataset of ``declare_datasets``, as it is shown."""
        ...

    def list_checks(self, job: Any, dataset: Any) -> Sequence[DeclaredCheck]:
        """The checks of a dataset, besides the one that says whether it is published."""
        ...

    def find_watch_rules(self, job: Any) -> WatchRules | None:
        """The rules by which a job of file sets is watched; None for another job."""
        ...

    def look_at_sets(self, job: Any) -> FileSets:
        """The file sets that are there now, of a job that has watch rules. RejectedError or RetryableError: unknown."""
        ...

    def plan_audit(self, job: Any) -> Any:
        """The job as an audit plans it: all that differs, whatever one run would do of it."""
        ...

    def judge_audit(self, name: str, planned: PlannedSlice) -> CheckResult:
        """The result of a check that is an audit, from what a run would do now. Pure."""
        ...

    @property
    def repeats_runs(self) -> bool:
        """Whether a stream of the job repeats short runs, instead of being one run with many publications."""
        ...

    def plan_stream(self, job: Any) -> Any:
        """The job as a stream runs it. RejectedError for a job that no stream can follow."""
        ...


JOB_PROGRAMS: Final = Extensions[JobProgram](
    group="gobblin_assets.job_programs",
    noun="kind of job",
    option="kind",
    accepts=lambda offered: hasattr(offered, "open_run"),
    built_in={
        DEFAULT_KIND: "gobblin_assets.jobs.ingest.program:PROGRAM",
        COPY_KIND: "gobblin_assets.jobs.copy.program:PROGRAM",
    },
)


def program_of(job: JobOptions) -> JobProgram:
    """RejectedError if no package of this environment runs jobs of the kind."""
    return JOB_PROGRAMS.get(job.kind)
