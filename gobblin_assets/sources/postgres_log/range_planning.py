"""Whether a table is copied in ranges, and where they begin; and what tells that it is another table than before."""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import RetryableError
from gobblin_assets.sources.jdbc.dialect import write_table
from gobblin_assets.sources.jdbc.dialects.postgres import PostgresDialect
from gobblin_assets.sources.jdbc.names import TableName
from gobblin_assets.sources.postgres_log.copy_ranges import split_keys
from gobblin_assets.sources.postgres_log.logged_table import LoggedTable, table_to_json
from gobblin_assets.sources.postgres_log.server_state import LogSession, PublishedTable

_NUMBERS: Final = frozenset({"int2", "int4", "int8"})
# As the snapshot has it, and now. Of a table with partitions, there is none.
_STORAGE: Final = """
    SELECT c.relfilenode::bigint, coalesce(pg_relation_filenode(c.oid), 0)::bigint
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = %s AND c.relname = %s"""

_STEPS: Final = """
    SELECT histogram_bounds::text::bigint[] FROM pg_stats
     WHERE schemaname = %s AND tablename = %s AND attname = %s AND NOT inherited"""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """``shape`` as a ``PartialCopy`` has it, ``column`` and ``bounds`` as ``SeenRanges``."""

    shape: str
    column: str | None = None
    bounds: tuple[int, ...] = ()


def plan_ranges(
    session: LogSession, published: PublishedTable, table: LoggedTable, *, range_rows: int | None
) -> TablePlan:
    """``table``: as the session's snapshot has it. ``range_rows`` None: only its shape is wanted.

    RetryableError if the table was written anew since the snapshot, which sees nothing of it then.
    """
    dialect = PostgresDialect()
    name = write_table(dialect, published.name)
    # From here on until the end of the transaction, nobody empties the table, or writes it anew.
    session.execute(f"SELECT FROM {name} LIMIT 0".encode())
    ((seen, now),) = session.execute(_STORAGE.encode(), [table.schema, table.table]).fetchall()
    if seen != now:
        raise RetryableError(f"{table.label} was emptied or written anew as its copy began")
    shape = json.dumps([seen, table_to_json(table), published.row_filter, published.key])
    digest = hashlib.sha256(shape.encode()).hexdigest()
    key = next((each for each in table.columns if published.key and each.name == published.key[0]), None)
    if range_rows is None or not seen or key is None or key.type.name not in _NUMBERS:
        return TablePlan(digest)
    condition = "true" if published.row_filter is None else f"({published.row_filter})"
    ((explained,),) = session.execute(f"EXPLAIN (FORMAT JSON) SELECT FROM {name} WHERE {condition}".encode()).fetchall()
    parts = math.ceil(explained[0]["Plan"]["Plan Rows"] / range_rows)
    if parts == 1:
        return TablePlan(digest)
    steps = _list_steps(session, table, key.name)
    bounds = split_keys(steps, parts) if steps else ()
    return TablePlan(digest, key.name if bounds else None, bounds)


def _list_steps(session: LogSession, table: LoggedTable, column: str) -> Sequence[int]:
    """As ``split_keys`` takes them: by the server's statistics, or else from the least key to the greatest."""
    found = session.execute(_STEPS.encode(), [table.schema, table.table, column]).fetchall()
    if found and found[0][0]:
        return tuple(found[0][0])
    dialect = PostgresDialect()
    quoted, name = dialect.quote(column), write_table(dialect, TableName(table.schema, table.table))
    ((low, high),) = session.execute(f"SELECT min({quoted}), max({quoted}) FROM {name}".encode()).fetchall()
    return () if low is None else (low, high)
