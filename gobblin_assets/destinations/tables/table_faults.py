"""Compares the log with the marks of tables, and on demand with the number of their rows."""

from collections.abc import Iterator

from gobblin_assets.commit.published.port import RowsElsewhere
from gobblin_assets.commit.published.verification import Damage, Fault
from gobblin_assets.destinations.tables.marks import LoadedTable, MarkPlace
from gobblin_assets.destinations.tables.table_kinds import CountedTables


def find_table_faults(
    tables: CountedTables, table: LoadedTable, mark: MarkPlace, published: RowsElsewhere | None, *, counts_rows: bool
) -> Iterator[Fault]:
    """``mark``: of any lane of the dataset. ``published``: what the log had before.

    More rows than the log has are no fault: others may write into the table, and a load comes before its finish.
    """
    if published is None:
        return
    loaded = tables.count_loaded(mark)
    if loaded < published.row_count:
        detail = f"{published.row_count:,} rows were published, and the marks say that {loaded:,} were loaded"
        yield Fault(published.uri, Damage.MISSING, detail)
    if counts_rows and (found := tables.count_rows(table)) < published.row_count:
        yield Fault(published.uri, Damage.LENGTH, f"{found:,} rows, and {published.row_count:,} were published")
