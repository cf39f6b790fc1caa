"""Ways to load a table that leave out one rule of its marks."""

from collections.abc import Iterable

import pyarrow as pa

from gobblin_assets.destinations.lane_marks import LaneMark, MarkPlace
from gobblin_assets.destinations.load_rows import TableBatch
from gobblin_assets.destinations.postgres.database_address import Session
from gobblin_assets.destinations.postgres.postgres_tables import PostgresTables
from gobblin_assets.errors import ConflictError


class MarkApart(PostgresTables):
    """Rows are committed, and the mark in a transaction after that."""

    def _load(self, batch: TableBatch, rows: Iterable[pa.RecordBatch]) -> None:
        unmarked = _WithoutMark(self.address)
        unmarked._load(batch, rows)
        unmarked.close()
        with self._transaction() as session:
            self._move_mark(session, batch)


class LooksAndThenInserts(PostgresTables):
    """The mark is looked at before the load, and set without being compared."""

    def _move_mark(self, session: Session, batch: TableBatch) -> None:
        session.execute(
            "UPDATE marks.gobblin_lane SET version = %s, recent = ARRAY[%s::uuid] || recent WHERE lane = %s",
            (batch.version, batch.sequence_id, batch.mark.lane),
        )


class _WithoutMark(PostgresTables):
    """Nothing says what was loaded."""

    def _move_mark(self, session: Session, batch: TableBatch) -> None:
        pass


class NeverLooks(_WithoutMark):
    def find_mark(self, place: MarkPlace) -> LaneMark | None:
        del place
        return None


class ComparesVersionsOnly(PostgresTables):
    """What was given up is remembered, and not compared."""

    def _move_mark(self, session: Session, batch: TableBatch) -> None:
        session.execute("UPDATE marks.gobblin_lane SET given_up = '{}' WHERE lane = %s", (batch.mark.lane,))
        super()._move_mark(session, batch)


class GivesUpByTheLogAlone(PostgresTables):
    """Whoever abandons looks whether the rows are there, and tells the destination nothing."""

    def give_up(self, batch: TableBatch) -> bool:
        mark = self.find_mark(batch.mark)
        return mark is None or batch.sequence_id not in mark.recent


class LoadsAgainWithoutAnAnswer(LooksAndThenInserts):
    """A load without an answer is taken for one that did not happen."""

    def load(self, batch: TableBatch, rows: Iterable[pa.RecordBatch]) -> None:
        kept = list(rows)
        try:
            super().load(batch, kept)
        except (ConflictError, ConnectionError):
            super().load(batch, kept)
