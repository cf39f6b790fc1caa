"""Ways to append to a table of Iceberg that leave out one rule of its marks."""

from collections.abc import Mapping, Sequence

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from gobblin_assets.destinations.iceberg.iceberg_tables import IcebergTables
from gobblin_assets.destinations.lane_marks import LaneMark, MarkPlace
from gobblin_assets.destinations.lane_properties import find_lane_mark, refusing_mark
from gobblin_assets.destinations.load_rows import TableBatch
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.failpoints import Failpoint


class RepeatedByPyiceberg(IcebergTables):
    """What is refused is repeated on the newer snapshot, without a look."""

    def _try_once(self, table: Table) -> None:
        table.metadata.properties["commit.retry.min-wait-ms"] = "0"


class MarkApart(IcebergTables):
    """Rows are committed, and the mark in a commit after that, at which it may be interrupted."""

    def _commit(
        self, batch: TableBatch, table: Table, mark: Mapping[str, str], files: Sequence[DataFile], before: Failpoint
    ) -> bool:
        if not super()._commit(batch, table, {}, files, Failpoint.STEP_BEFORE):
            return False
        found = self._find(batch.table)
        return found is not None and super()._commit(batch, found, mark, (), before)


class LooksOnce(IcebergTables):
    """After somebody else came first, the mark is not looked at again."""

    def _look(self, batch: TableBatch) -> Table:
        found = self._find(batch.table)
        assert found is not None
        return found


class MarkInSnapshot(IcebergTables):
    """The mark is in the summary of the snapshot that added the rows."""

    def _commit(
        self, batch: TableBatch, table: Table, mark: Mapping[str, str], files: Sequence[DataFile], before: Failpoint
    ) -> bool:
        transaction = table.transaction()
        with transaction.update_snapshot(dict(mark)).fast_append() as snapshot:
            for file in files:
                snapshot.append_data_file(file)
        self._try_once(table)
        try:
            transaction.commit_transaction()
        except CommitFailedException:
            return False
        return True

    def find_mark(self, place: MarkPlace) -> LaneMark | None:
        namespace, _, name = place.marks.rpartition(".")
        table = self._find(LoadedTable(namespace, name))
        snapshots = [] if table is None else table.snapshots()
        summaries = [each.summary.additional_properties for each in snapshots if each.summary]
        found = [mark for mark in (find_lane_mark(summary, place) for summary in summaries) if mark]
        return found[-1] if found else None


class NeverLooks(LooksOnce):
    def find_mark(self, place: MarkPlace) -> LaneMark | None:
        del place
        return None


class GivesUpByTheLogAlone(IcebergTables):
    """Whoever abandons looks whether the rows are there, and tells the table nothing."""

    def give_up(self, batch: TableBatch) -> bool:
        mark = self.find_mark(batch.mark)
        return mark is None or batch.sequence_id not in mark.recent


class GivesUpWithoutALook(IcebergTables):
    def give_up(self, batch: TableBatch) -> bool:
        found = self._find(batch.table)
        assert found is not None
        return self._commit(batch, found, refusing_mark(found.properties, batch), (), Failpoint.GIVE_UP_BEFORE_COMMIT)


class GivesUpByAPropertyAlone(IcebergTables):
    """The mark refuses the rows, and the table keeps its snapshot."""

    def give_up(self, batch: TableBatch) -> bool:
        found = self._find(batch.table)
        assert found is not None
        mark = find_lane_mark(found.properties, batch.mark)
        if mark is not None and batch.sequence_id in mark.recent:
            return False
        with found.transaction() as transaction:
            transaction.set_properties(refusing_mark(found.properties, batch))
        return True
