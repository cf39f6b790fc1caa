"""Slices: one partition of one dataset in one run each. A slice is planned, read, decided and published by itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gobblin_assets.commit.destination import StorageMismatchError
from gobblin_assets.commit.published.published_port import ActiveSchema, PublishedFiles
from gobblin_assets.commit.segment import Segment
from gobblin_assets.commit.sequence import Publication
from gobblin_assets.errors import FencedError, GobblinError, family_of
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.policy import UnitResult
from gobblin_assets.model.state import AttemptId, DatasetOutcome, DatasetState, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.run.job_kind import Staged, UnitPlan
from gobblin_assets.run.run_values import DatasetReport
from gobblin_assets.state.leases import Lease


@dataclass(frozen=True, slots=True)
class StagedTask:
    """A staged attempt with the values that its publication needs."""

    attempt_id: AttemptId
    extracted: Staged
    segments: tuple[Segment, ...]
    duration_s: float


@dataclass(slots=True)
class Slice:
    """A partition of a dataset in a run. Filled while the run goes on, by the run's own thread only.

    ``active_schemas`` are those of the dataset's active files when this was planned, in all partitions.
    """

    urn: DatasetUrn
    partition: AssetPartition
    state: DatasetState
    lease: Lease
    plan: UnitPlan
    sequence_id: SequenceId
    results: list[UnitResult] = field(default_factory=list)
    staged: list[StagedTask] = field(default_factory=list)
    open_tasks: int = 0
    error: GobblinError | None = None
    active_schemas: tuple[ActiveSchema, ...] = ()

    @property
    def label(self) -> str:
        """How progress lines and errors name it."""
        return label_of(self.urn, self.partition)

    @property
    def key_partition(self) -> str:
        """The partition of the plan's watermark keys, as the log stores it."""
        return "" if self.plan.keys_are_shared else partition_text(self.partition)

    def schemas_beside(self) -> tuple[object, ...]:
        """The schemas of the active files that will still be active when this is published."""
        own = partition_text(self.partition) if self.plan.replaces else None
        return tuple(each.file_schema for each in self.active_schemas if own is None or each.only_partition != own)

    def lacks_schema(self) -> bool:
        """Whether the dataset's columns would be unknown if this slice were published without a row."""
        if self.plan.replaces:
            return not self.schemas_beside()
        if not self.state.published_columns:
            return True
        return not self.active_schemas and dict(self.plan.columns) != dict(self.state.source_columns or {})

    def has_news(self) -> bool:
        """Whether there is something to read, or a position that the log does not have yet."""
        return any(
            not unit.is_empty
            or (
                unit.interval is not None
                and unit.interval.high != self.state.find_watermark(unit.key, self.key_partition)
            )
            for unit in self.plan.work_units
        )

    def has_new_facts(self) -> bool:
        """Whether the log would remember something else of the source once this is published."""
        known, learnt = self.state.source_facts, self.plan.partition_facts
        if learnt is None:
            return dict(self.plan.facts) != dict(known)
        by_partition = {name: known.get(name) for name in learnt}
        before = {
            name: each.get(partition_text(self.partition)) if isinstance(each, Mapping) else None
            for name, each in by_partition.items()
        }
        return before != dict(learnt)

    def units_to_read(self) -> tuple[WorkUnit, ...]:
        return tuple(unit for unit in self.plan.work_units if not unit.is_empty)


class ActiveSchemas:
    """The schemas of datasets' active files, over all partitions; new files must be readable together with them.

    The log is asked once for a dataset, and again if its version is not the one that this run made. A stream publishes
    often, nearly always with the same schema, and the log reads every active segment to answer.
    """

    def __init__(self, published: PublishedFiles, job: JobName) -> None:
        self._published = published
        self._job = job
        self._known: dict[DatasetUrn, tuple[int, tuple[ActiveSchema, ...]]] = {}

    def look_up(self, slices: Sequence[Slice]) -> None:
        """Fill ``active_schemas`` of each slice, by one query for all unknown datasets, under leases of this run."""
        versions = {slice_.urn: slice_.state.version for slice_ in slices}
        unknown = [urn for urn, version in versions.items() if self._known.get(urn, (None, ()))[0] != version]
        if unknown:
            found = self._published.find_active_schemas(self._job, unknown)
            self._known |= {urn: (versions[urn], tuple(found.get(urn, ()))) for urn in unknown}
        for slice_ in slices:
            slice_.active_schemas = self._known[slice_.urn][1]

    def remember(self, slice_: Slice, publication: Publication) -> None:
        """After a publication, keep a dataset's schemas if the publication did not change them, else forget them."""
        version, known = self._known.pop(slice_.urn, (-1, ()))
        own = [each.file_schema for each in known if each.only_partition in {None, partition_text(slice_.partition)}]
        written = [schema for task in slice_.staged for schema in task.extracted.file_schemas.values()]
        is_same = not slice_.plan.replaces and all(schema in own for schema in written)
        if is_same and publication.version == version + 1:
            self._known[slice_.urn] = (publication.version, known)


def partition_text(partition: AssetPartition) -> str:
    """The partition as the log stores it: "" for a dataset without partitions."""
    return "" if partition.key is None else partition.key


def label_of(urn: DatasetUrn, partition: AssetPartition) -> str:
    """How progress lines and errors name a dataset's partition."""
    return urn if partition.key is None else f"{urn} [{partition.key}]"


def failure_of(urn: DatasetUrn, partition: AssetPartition, error: GobblinError) -> DatasetReport:
    """The report of a dataset partition that an error kept from being published."""
    outcome = DatasetOutcome.FAILED
    if isinstance(error, FencedError):
        outcome = DatasetOutcome.FENCED
    elif isinstance(error, StorageMismatchError):
        # It waits for a person, as a blocked sequence does.
        outcome = DatasetOutcome.BLOCKED
    return DatasetReport(urn, partition, outcome, error=str(error), error_family=family_of(error))
