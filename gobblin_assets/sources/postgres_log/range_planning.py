"""The ranges in which a table is copied, if it is; and what tells that it is another table than before."""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import RetryableError
from gobblin_assets.sources.jdbc.dialect import write_table
from gobblin_assets.sources.jdbc.dialects.postgres import PostgresDialect
from gobblin_assets.sources.postgres_log.copy_ranges import split_keys
from gobblin_assets.sources.postgres_log.logged_table import LoggedTable, table_to_json
from gobblin_assets.sources.postgres_log.server_state import LogSession, PublishedTable

_NUMBERS: Final = frozenset({"int2", "int4", "int8"})
# As the snapshot has it, and now. Of a table with partitions, there is none. And whether the name is still its own.
_STORAGE: Final = """
    SELECT c.relfilenode::bigint, coalesce(pg_relation_filenode(c.oid), 0)::bigint,
           coalesce(to_regclass(%s) = c.oid, false)
      FROM pg_class c WHERE c.oid = %s"""

_STEPS: Final = """
    SELECT histogram_bounds::text::bigint[] FROM pg_stats
     WHERE schemaname = %s AND tablename = %s AND attname = %s AND NOT inherited"""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The ranges in which a table is copied.

    ``shape`` as a ``PartialCopy`` has it, ``column`` and ``bounds`` as ``SeenRanges``.
    """

    shape: str
    column: str | None = None
    bounds: tuple[int, ...] = ()


def plan_ranges(
    session: LogSession, published: PublishedTable, table: LoggedTable, *, range_rows: int | None
) -> TablePlan:
    """``table``: as the session's snapshot has it. ``range_rows`` None: only its shape is wanted.

    RetryableError if the table was written anew since the snapshot, which sees nothing of it then, or another one has
    its name.
    """
    dialect = PostgresDialect()
    name, rows = write_table(dialect, published.name), write_rows_of(published)
    # From here on until the end of the transaction, nobody empties the table, writes it anew, or takes its name.
    session.execute(f"SELECT FROM {rows} LIMIT 0".encode())
    ((seen, now, is_named),) = session.execute(_STORAGE.encode(), [name, published.oid]).fetchall()
    if seen != now or not is_named:
        raise RetryableError(f"{table.label} was emptied, written anew or replaced as its copy began")
    shape = json.dumps([seen, table_to_json(table), published.row_filter, published.key])
    digest = hashlib.sha256(shape.encode()).hexdigest()
    key = next((each for each in table.columns if published.key and each.name == published.key[0]), None)
    if range_rows is None or not seen or key is None or key.type.name not in _NUMBERS:
        return TablePlan(digest)
    condition = "true" if published.row_filter is None else f"({published.row_filter})"
    ((explained,),) = session.execute(f"EXPLAIN (FORMAT JSON) SELECT FROM {rows} WHERE {condition}".encode()).fetchall()
    parts = math.ceil(explained[0]["Plan"]["Plan Rows"] / range_rows)
    if parts == 1:
        return TablePlan(digest)
    steps = _list_steps(session, published, key.name)
    bounds = split_keys(steps, parts) if steps else ()
    return TablePlan(digest, key.name if bounds else None, bounds)


def write_rows_of(table: PublishedTable) -> str:
    """What a query reads the rows FROM that the table's log has: those of its children have logs of their own."""
    name = write_table(PostgresDialect(), table.name)
    return name if table.look.is_partitioned else f"ONLY {name}"


def _list_steps(session: LogSession, table: PublishedTable, column: str) -> Sequence[int]:
    """As ``split_keys`` takes them: by the server's statistics, or else from the least key to the greatest."""
    found = session.execute(_STEPS.encode(), [table.name.schema, table.name.table, column]).fetchall()
    if found and found[0][0]:
        return tuple(found[0][0])
    quoted, rows = PostgresDialect().quote(column), write_rows_of(table)
    ((low, high),) = session.execute(f"SELECT min({quoted}), max({quoted}) FROM {rows}".encode()).fetchall()
    return () if low is None else (low, high)
