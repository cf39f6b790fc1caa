"""Tables in the catalogue of Postgres: columns, types below domains, keys, comments. Four queries cover many tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from gobblin_assets.sources.jdbc.catalog import Table, TableColumn
from gobblin_assets.sources.jdbc.names import TableName
from gobblin_assets.sources.jdbc.postgres_types import PgType, find_order

Query = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Rows of a query with its arguments."""

_TABLES: Final = """
    SELECT x.place, c.oid, n.nspname, c.relname, obj_description(c.oid, 'pg_class')
      FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS x(schema, name, place)
      JOIN pg_class c ON c.relname = x.name AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
      JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE CASE WHEN x.schema IS NULL THEN pg_table_is_visible(c.oid) ELSE n.nspname = x.schema END"""

_COLUMNS: Final = """
    SELECT attrelid, attname, NOT attnotnull, col_description(attrelid, attnum), atttypid, atttypmod FROM pg_attribute
     WHERE attrelid = ANY (%s::oid[]) AND attnum > 0 AND NOT attisdropped ORDER BY attrelid, attnum"""

_KEYS: Final = """
    SELECT c.oid, ({primary}), ({identity}) FROM pg_class c WHERE c.oid = ANY (%s::oid[])"""

# A type below a domain has the modifier of the innermost domain, which is the only one that may have any. The elements
# of an array of a domain are looked for in the same way.
_TYPES: Final = """
    WITH RECURSIVE unfolded AS (
        SELECT place, type, modifier FROM unnest(%s::oid[], %s::int4[]) WITH ORDINALITY AS x(type, modifier, place)
        UNION ALL
        SELECT u.place, d.typbasetype, d.typtypmod
          FROM unfolded u JOIN pg_type d ON d.oid = u.type AND d.typtype = 'd'
    ), asked AS (
        SELECT u.place, u.modifier, t.oid AS type, e.oid AS element
          FROM unfolded u
          JOIN pg_type t ON t.oid = u.type AND t.typtype <> 'd'
          LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A' AND t.typlen = -1
    ), below AS (
        SELECT place, element, modifier FROM asked WHERE element IS NOT NULL
        UNION ALL
        SELECT b.place, d.typbasetype, d.typtypmod
          FROM below b JOIN pg_type d ON d.oid = b.element AND d.typtype = 'd'
    ), named AS (
        SELECT a.place, a.type, coalesce(b.element, 0) AS element, coalesce(b.modifier, a.modifier) AS modifier
          FROM asked a
          LEFT JOIN (below b JOIN pg_type t ON t.oid = b.element AND t.typtype <> 'd') ON b.place = a.place
    )
    SELECT n.place,
           CASE WHEN tn.nspname = 'pg_catalog' OR t.typname = 'citext' THEN t.typname
                ELSE format('%%I.%%I', tn.nspname, t.typname) END,
           t.typtype::text,
           format_type(coalesce(nullif(e.typarray, 0), t.oid), n.modifier),
           n.modifier,
           CASE WHEN e.oid IS NULL OR en.nspname = 'pg_catalog' OR e.typname = 'citext' THEN e.typname
                ELSE format('%%I.%%I', en.nspname, e.typname) END,
           e.typtype::text,
           coalesce(e.typdelim, ',')::text
      FROM named n
      JOIN pg_type t ON t.oid = n.type JOIN pg_namespace tn ON tn.oid = t.typnamespace
      LEFT JOIN pg_type e ON e.oid = n.element LEFT JOIN pg_namespace en ON en.oid = e.typnamespace
     ORDER BY n.place"""


@dataclass(frozen=True, slots=True)
class PgTable:
    """A table, with the type of each column by its name."""

    table: Table
    types: Mapping[str, PgType]


def find_tables(query: Query, names: Sequence[TableName]) -> dict[TableName, PgTable]:
    """The tables that exist, by their names as given."""
    found = query(_TABLES, ([name.schema for name in names], [name.table for name in names])) if names else []
    oids = sorted({row[1] for row in found})
    declared = _by_table(query(_COLUMNS, (oids,)) if oids else [])
    keys = find_keys(query, oids)
    types = find_types(query, {column[3:] for columns in declared.values() for column in columns})
    tables = {}
    for place, oid, schema, name, comment in found:
        columns = [
            (column, types[number, modifier], nullable, about)
            for column, nullable, about, number, modifier in declared.get(oid, [])
        ]
        tables[names[place - 1]] = PgTable(
            Table(
                TableName(schema, name),
                tuple(
                    TableColumn(column, of.text, nullable, find_order(of), about)
                    for column, of, nullable, about in columns
                ),
                keys[oid].primary if oid in keys else (),
                comment,
            ),
            {column: of for column, of, _nullable, _about in columns},
        )
    return tables


def write_key(index: str) -> str:
    """SQL for the names of an index's key, as an array in their order; NULL if the table ``c`` has no such index.

    ``index``: a condition on ``i``, which is a pg_index. Columns that an index only includes are none of its key.
    """
    # Servers before 11 have no columns that are only included.
    return f"""SELECT array_agg(a.attname::text ORDER BY k.place)
                 FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
                 JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                WHERE i.indrelid = c.oid AND {index}
                  AND k.place <= coalesce((to_jsonb(i) ->> 'indnkeyatts')::int, i.indnatts)"""


ROW_IDENTITY: Final = write_key("""CASE c.relreplident
                      WHEN 'i' THEN i.indisreplident
                      -- Nothing of a row is in its changes, which are insertions.
                      WHEN 'n' THEN false
                      -- A key that is checked at the end of a transaction tells rows apart only there.
                      ELSE i.indisprimary AND i.indimmediate END""")
"""SQL for the columns that tell the rows of the table ``c`` apart in its changes, as ``write_key`` gives them.

With whole rows in its changes (FULL) these are the primary key, too.
"""


@dataclass(frozen=True, slots=True)
class TableKeys:
    """The names of the columns that tell a table's rows apart.

    ``primary``: of the constraint. ``identity``: what tells rows apart in changes; empty: nothing but whole rows.
    """

    primary: tuple[str, ...]
    identity: tuple[str, ...]


def find_keys(query: Query, oids: Sequence[int]) -> dict[int, TableKeys]:
    """Of the tables that exist, by their numbers in pg_class."""
    sql = _KEYS.format(primary=write_key("i.indisprimary"), identity=ROW_IDENTITY)
    rows = query(sql, (list(oids),)) if oids else []
    return {oid: TableKeys(tuple(primary or ()), tuple(identity or ())) for oid, primary, identity in rows}


def find_types(query: Query, wanted: Iterable[tuple[int, int]]) -> dict[tuple[int, int], PgType]:
    """The types below domains, each by its number in pg_type and its modifier. Types that are gone are left out."""
    asked = sorted(set(wanted))
    if not asked:
        return {}
    rows = query(_TYPES, ([number for number, _modifier in asked], [modifier for _number, modifier in asked]))
    return {asked[place - 1]: PgType(*row) for place, *row in rows}


def _by_table(rows: Iterable[tuple[Any, ...]]) -> dict[int, list[tuple[Any, ...]]]:
    return {oid: [row[1:] for row in some] for oid, some in groupby(rows, itemgetter(0))}
