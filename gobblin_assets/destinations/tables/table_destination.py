"""Tables as the destination of a sink: its rows are loaded, and all its other files stand where a disk has them."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from gobblin_assets.commit.destination import StorageMismatchError
from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.posix import PosixDestination
from gobblin_assets.destinations.tables.marks import MARKS, LoadedTable, MarkPlace, TableBatch
from gobblin_assets.destinations.tables.table_kinds import POSTGRES, CountedTables, get_table_kind
from gobblin_assets.errors import GobblinError
from gobblin_assets.model.files import DataFile
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.destination import Target
from gobblin_assets.run.job_kind import Output
from gobblin_assets.state.leases import Lease


@dataclass(frozen=True, slots=True)
class TablesPlace:
    """``connection``: its name. ``tables``: the table of each dataset. ``kind``: of tables, by the word of a job file.

    ``marks_schema``: of the table of marks; None: each table has marks as properties.
    """

    connection: str
    tables: Mapping[DatasetUrn, LoadedTable]
    marks_schema: str | None
    kind: str = POSTGRES

    def open(self) -> AbstractContextManager[CountedTables]:
        return get_table_kind(self.kind).open(self.connection)

    def mark_of(self, destination: str, job: JobName, urn: DatasetUrn, lane_number: int) -> MarkPlace:
        table = self.tables[urn] if self.marks_schema is None else LoadedTable(self.marks_schema, MARKS)
        return MarkPlace(table.schema, destination, job, urn, lane_number, table.table)


@dataclass(slots=True)
class TableDestination(PosixDestination):
    """``Destination`` of rows in tables. Files of rows are only staged; dead letters are published as files."""

    place: TablesPlace = field(kw_only=True)

    def bind(self) -> None:
        with self.place.open() as tables:
            tables.require(self.place.tables.values())
        # Not by super(): a slotted dataclass is another class than the one that the compiler knows.
        PosixDestination.bind(self)

    def check_logs(self, leases: Mapping[DatasetUrn, Lease]) -> Mapping[DatasetUrn, GobblinError]:
        """Also the errors of those of whose rows the database has fewer than the log."""
        errors = dict(PosixDestination.check_logs(self, leases))
        with self.place.open() as tables:
            for urn in leases.keys() - errors.keys():
                try:
                    self._require_loaded(tables, urn)
                except GobblinError as error:
                    errors[urn] = error
        return errors

    def _require_loaded(self, tables: CountedTables, urn: DatasetUrn) -> None:
        # The log first: a load is in the database before the log has it.
        published = self.stores.published.find_rows_elsewhere(self.job, urn)
        loaded = 0 if published is None else tables.count_loaded(self._mark_of(urn, 0))
        if published is not None and loaded < published.row_count:
            raise _behind(urn, self.place, self._mark_of(urn, 0), loaded, published.row_count)

    def uri_of(self, urn: DatasetUrn, role: Role) -> str:
        if role is not Role.DATA:
            return PosixDestination.uri_of(self, urn, role)
        return f"{get_table_kind(self.place.kind).scheme}:{self.place.connection}/{self.place.tables[urn]}"

    def steps_for(self, outputs: Sequence[Output], target: Target) -> Sequence[CommitStep]:
        data = [output for output in outputs if output.role is Role.DATA]
        steps = list(PosixDestination.steps_for(self, [each for each in outputs if each not in data], target))
        files = tuple(replace(file, name=f"{each.path}/{file.name}") for each in data for file in each.files)
        return [*steps, self._load(files, target)] if files else steps

    def _load(self, files: tuple[DataFile, ...], target: Target) -> CommitStep:
        batch = TableBatch(
            self.place.tables[target.urn],
            self._mark_of(target.urn, target.lane_number),
            target.version,
            str(target.sequence_id),
            sum(file.row_count for file in files),
        )
        return get_table_kind(self.place.kind).load(self.place.connection, batch, files)

    def _mark_of(self, urn: DatasetUrn, lane_number: int) -> MarkPlace:
        if self._identity is None:
            raise AssertionError("a destination is bound before anything else")
        return self.place.mark_of(self._identity, self.job, urn, lane_number)


def _behind(urn: DatasetUrn, place: TablesPlace, mark: MarkPlace, loaded: int, published: int) -> StorageMismatchError:
    return StorageMismatchError(
        f"{urn} is stopped: the log has {published:,} rows of it in {place.connection}/{place.tables[urn]}, and the "
        f"marks in {mark.schema}.{mark.table} say that {loaded:,} were loaded. It looks as if the database were "
        "another one, or were restored from an older backup.",
        hint="Nothing was loaded. Name the right database, or restore it to where it was.",
        urn=urn,
    )
