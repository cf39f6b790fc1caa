"""Tables as the destination of a sink: its rows are loaded, and all its other files stand where a disk has them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.posix import PosixDestination
from gobblin_assets.destinations.tables.load_step import LoadTable
from gobblin_assets.destinations.tables.marks import MarkPlace, TableBatch, TableName
from gobblin_assets.destinations.tables.postgres_tables import open_tables
from gobblin_assets.model.files import DataFile
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.run.destination import Target
from gobblin_assets.run.job_kind import Output


@dataclass(frozen=True, slots=True)
class TablesPlace:
    """``connection``: the name of the database's. ``tables``: the table of each dataset. ``marks_schema``: of marks."""

    connection: str
    tables: Mapping[DatasetUrn, TableName]
    marks_schema: str


@dataclass(slots=True)
class TableDestination(PosixDestination):
    """``Destination`` of rows in tables. Files of rows are only staged; dead letters are published as files."""

    place: TablesPlace = field(kw_only=True)

    def bind(self) -> None:
        with open_tables(self.place.connection) as tables:
            tables.require(self.place.tables.values())
        # Not by super(): a slotted dataclass is another class than the one that the compiler knows.
        PosixDestination.bind(self)

    def uri_of(self, urn: DatasetUrn, role: Role) -> str:
        if role is not Role.DATA:
            return PosixDestination.uri_of(self, urn, role)
        return f"jdbc:{self.place.connection}/{self.place.tables[urn]}"

    def steps_for(self, outputs: Sequence[Output], target: Target) -> Sequence[CommitStep]:
        data = [output for output in outputs if output.role is Role.DATA]
        steps = list(PosixDestination.steps_for(self, [each for each in outputs if each not in data], target))
        files = tuple(replace(file, name=f"{each.path}/{file.name}") for each in data for file in each.files)
        return [*steps, self._load(files, target)] if files else steps

    def _load(self, files: tuple[DataFile, ...], target: Target) -> LoadTable:
        if self._identity is None:
            raise AssertionError("a destination is bound before its steps are made")
        mark = MarkPlace(self.place.marks_schema, self._identity, self.job, target.urn, target.lane_number)
        batch = TableBatch(
            self.place.tables[target.urn],
            mark,
            target.version,
            str(target.sequence_id),
            sum(file.row_count for file in files),
        )
        return LoadTable(self.place.connection, batch, files)
