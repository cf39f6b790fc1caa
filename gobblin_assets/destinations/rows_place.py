"""The port of a place of rows: what takes the rows of a job's datasets, with a mark of each lane beside them.

A new place is registered as a ``DestinationKind`` (``spec.destination_kind``).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.lane_marks import LaneMark, MarkPlace
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.extract import ExtractType
from gobblin_assets.model.files import DataFile, FileFormat
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.destination_kind import IntoSpec, kind_of_rows
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.source_kind import kind_of
from gobblin_assets.spec.spec_errors import into_of


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """The load of one sequence of a dataset. ``mark``: the lane's; ``version``: of the lane, as the sequence makes it.

    ``files``: the staged ones, by their full paths. ``is_marked``: as ``LoadBatch`` has it. ``replaces``: the rows take
    the place of all rows that are there.
    """

    mark: MarkPlace
    version: int
    sequence_id: str
    files: tuple[DataFile, ...]
    is_marked: bool = False
    replaces: bool = False

    @property
    def row_count(self) -> int:
        return sum(file.row_count for file in self.files)


class RowsPlace(Protocol):
    """The place where the rows of a job's datasets go. A value; it connects only where a method says so."""

    @property
    def marks(self) -> str:
        """Where the marks of lanes are, by a name."""
        ...

    @property
    def can_replace(self) -> bool:
        """Whether a load can take the place of all rows that are there."""
        ...

    def require(self) -> None:
        """Connect, and raise if rows can't be loaded."""
        ...

    def uri_of(self, urn: DatasetUrn) -> str:
        """Where the dataset's rows go, without a secret."""
        ...

    def make_step(self, urn: DatasetUrn, load: PlannedLoad) -> CommitStep:
        """The step that loads the files."""
        ...

    def find_mark(self, urn: DatasetUrn, mark: MarkPlace) -> LaneMark | None:
        """Connect. The lane's mark; None: nothing of the lane was ever loaded or given up."""
        ...

    def find_gone(self, urn: DatasetUrn, mark: MarkPlace) -> str | None:
        """Connect. Why rows, of which there are some, were loaded into another place than is there; None: it is the
        same, as far as can be told. ``mark``: of any lane.
        """
        ...

    def adopt(self, urn: DatasetUrn, marks: Mapping[MarkPlace, LaneMark], row_count: int) -> None:
        """Connect. Let what is there now go on behind the marks, and make it if it is not there.

        ``row_count``: of all rows that the log has; those of which no mark says anything count as loaded.
        """
        ...

    def count_loaded(self, marks: Mapping[DatasetUrn, MarkPlace]) -> Mapping[DatasetUrn, int]:
        """Connect. For each dataset, the rows that its lanes have loaded by their marks; ``marks``: of any lane."""
        ...

    def count_rows(self, urn: DatasetUrn) -> int | None:
        """Connect. How many rows are there, whoever wrote them; None: that can't be said."""
        ...


@dataclass(frozen=True, slots=True)
class PlaceRequest:
    """The request to a kind of destination to choose what takes the rows of each dataset of ``job``.

    ``into``: the job's; ``of_datasets``: that of each dataset, with what the dataset says otherwise. ``option``: where
    the job says it, for errors. ``source_address``: the variable of the source's address; None: it has none.
    """

    job: JobSpec
    into: Any
    of_datasets: Mapping[DatasetUrn, Any]
    specs: Mapping[DatasetUrn, DatasetSpec]
    option: str
    source_address: str | None


def choose_rows_place(
    job: JobSpec, specs: Mapping[DatasetUrn, DatasetSpec], source_address: str | None
) -> RowsPlace | None:
    """What takes the rows of a job. None: it publishes files. Checked before anything is written; connects to nothing.

    RejectedError names the field and the fix.
    """
    into = job.rows_into
    if into is None:
        return None
    _check_job(job)
    for urn, spec in specs.items():
        _refuse_files(urn, spec)
    of_datasets: dict[DatasetUrn, IntoSpec] = {
        urn: into_of(into, spec.into, f"datasets[{urn}].into") for urn, spec in specs.items()
    }
    module, _, name = kind_of_rows(into).place.partition(":")
    choose: Callable[[PlaceRequest], RowsPlace] = getattr(import_module(module), name)
    place = choose(PlaceRequest(job, into, of_datasets, specs, job.into_option, source_address))
    if not place.can_replace and not kind_of(job.source).has_own_positions:
        for urn, spec in specs.items():
            _refuse_snapshots(urn, spec, into)
    return place


def _check_job(job: JobSpec) -> None:
    """RejectedError for an option of a job that rows elsewhere do not have."""
    if job.compaction is not None:
        raise RejectedError("rows go into no files that could be compacted", field="compaction", hint="Leave it out.")
    if FileFormat(job.sink.format) is not FileFormat.PARQUET:
        raise RejectedError(
            f"rows that are loaded are staged with their types, found {job.sink.format}",
            field="sink.format",
            hint="Leave it out: staged files are Parquet.",
        )


def _refuse_snapshots(urn: DatasetUrn, spec: DatasetSpec, into: IntoSpec) -> None:
    """RejectedError for a dataset whose rows every run would replace."""
    if spec.extract is ExtractType.SNAPSHOT_ONLY and spec.partitions.kind is PartitionKind.NONE:
        raise RejectedError(
            f"each run replaces the rows of {urn}, and {into.type} takes rows that are added",
            field=f"datasets[{urn}].extract",
            hint="Write extract: append_only (or snapshot_append) with a watermark.",
        )


def _refuse_files(urn: DatasetUrn, spec: DatasetSpec) -> None:
    """RejectedError for an option of files that rows elsewhere do not have."""
    if spec.watermark is not None and spec.watermark.late_window:
        raise RejectedError(
            "rows that are read again are compared with published files, and these rows go into none",
            field=f"datasets[{urn}].watermark.late_window",
            hint="Leave it out; let rows wait until they are final by commit_lag_s.",
        )
    writer = spec.writer
    asked = {
        "partition_by": writer.partition_by,
        "time_column": writer.time_column,
        "event_time": writer.event_time,
    }
    for name, value in asked.items():
        if value:
            raise RejectedError(
                "tables and topics have no directories",
                field=f"datasets[{urn}].writer.{name}",
                hint="Leave it out, and have a column instead.",
            )
