"""The tables of a database into which the rows of a job's datasets go."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.lane_marks import LaneMark, MarkPlace
from gobblin_assets.destinations.postgres.load_step import LoadTable
from gobblin_assets.destinations.loaded_tables import LoadedTable, TableBatch
from gobblin_assets.destinations.postgres.postgres_tables import open_tables
from gobblin_assets.model.files import DataFile
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.destination import Target


@dataclass(frozen=True, slots=True)
class TablesPlace:
    """``connection``: the name of the database's. ``tables``: the table of each dataset. ``marks``: their schema."""

    connection: str
    tables: Mapping[DatasetUrn, LoadedTable]
    marks: str

    def require(self) -> None:
        with open_tables(self.connection) as tables:
            tables.require(self.tables.values())

    def uri_of(self, urn: DatasetUrn) -> str:
        return f"jdbc:{self.connection}/{self.tables[urn]}"

    def make_step(
        self, urn: DatasetUrn, mark: MarkPlace, target: Target, files: Sequence[DataFile], *, is_marked: bool
    ) -> CommitStep:
        row_count = sum(file.row_count for file in files)
        batch = TableBatch(self.tables[urn], mark, target.version, str(target.sequence_id), row_count, is_marked)
        return LoadTable(self.connection, batch, tuple(files))

    def find_mark(self, urn: DatasetUrn, mark: MarkPlace) -> LaneMark | None:
        del urn
        with open_tables(self.connection) as tables:
            return tables.find_mark(mark)

    def find_gone(self, urn: DatasetUrn, mark: MarkPlace) -> str | None:
        with open_tables(self.connection) as tables:
            return tables.find_gone(self.tables[urn], mark)

    def adopt(self, urn: DatasetUrn, marks: Mapping[MarkPlace, LaneMark], row_count: int) -> None:
        with open_tables(self.connection) as tables:
            tables.adopt(self.tables[urn], marks, row_count)

    def count_loaded(self, marks: Mapping[DatasetUrn, MarkPlace]) -> Mapping[DatasetUrn, int]:
        with open_tables(self.connection) as tables:
            return {urn: tables.count_loaded(mark) for urn, mark in marks.items()}

    def count_rows(self, urn: DatasetUrn) -> int | None:
        with open_tables(self.connection) as tables:
            return tables.count_rows(self.tables[urn])
