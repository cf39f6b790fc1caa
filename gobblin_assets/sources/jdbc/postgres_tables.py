"""Tables and types in the catalogue of Postgres: columns, types below domains, keys, comments.

Four queries cover many tables. The decisions which types reach Spark unchanged, and how a column is read, are pure.

Spark would silently change some values: infinite dates, and times outside the years 1 to 9999 or in the ten days that
the calendar reform left out. Spark can't hold others: NaN numerics, arrays of arrays. Such a value makes the query
itself fail with a marked message: ``gobblin_value:<column number>=<value>``.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from gobblin_assets.model.watermark import WatermarkType
from gobblin_assets.sources.jdbc.catalog import Table, TableColumn
from gobblin_assets.sources.jdbc.names import TableName

# Spark writes the state of its own error behind the value. Some drivers add the query to their message, which has the
# mark in quotes of its own.
VALUE_MARK: Final = re.compile(r'(?<!\')gobblin_value:(\d+)=([^"\n]*?)(?: SQLSTATE: [0-9A-Z]{5})?(?=["\n]|$)')

_PLAIN: Final = frozenset({"bool", "int2", "int4", "int8", "float4", "float8", "text", "varchar", "bpchar", "bytea"})
_AS_TEXT: Final = frozenset({
    "uuid", "json", "jsonb", "xml", "inet", "cidr", "macaddr", "macaddr8", "name", "char", "citext",
})  # fmt: skip
_TIMES: Final = frozenset({"date", "timestamp", "timestamptz"})
_ORDERS: Final = {
    "int2": WatermarkType.LONG,
    "int4": WatermarkType.LONG,
    "int8": WatermarkType.LONG,
    "date": WatermarkType.DATE,
    "timestamp": WatermarkType.LOCAL_TIMESTAMP,
    "timestamptz": WatermarkType.TIMESTAMP,
    "text": WatermarkType.STRING,
    "varchar": WatermarkType.STRING,
}
_SPARK_TYPES: Final = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "float4": "float",
    "float8": "double",
    "bytea": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}
_LONG_DIGITS_MAX: Final = 18
_DECIMAL_DIGITS_MAX: Final = 38
# Nearly every time is one of these: found by two comparisons, where it takes four to see that it is not outside.
_USUAL: Final = "{0} >= '1582-10-15' AND {0} < '10000-01-01'"
_OUTSIDE: Final = "{0} < '0001-01-01' OR {0} >= '10000-01-01' OR ({0} >= '1582-10-05' AND {0} < '1582-10-15')"


@dataclass(frozen=True, slots=True)
class PgType:
    """A type below all domains. ``kind`` and ``element_kind`` are pg_type.typtype; ``modifier`` is its typmod.

    ``name`` and ``element`` have their schema in front where it is not pg_catalog, citext excepted: a domain may well
    be called ``numeric``. ``text`` is the type as SQL writes it, with its modifier and its brackets. ``delimiter``
    stands between the elements in the text of an array.
    """

    name: str
    kind: str
    text: str
    modifier: int
    element: str | None = None
    element_kind: str | None = None
    delimiter: str = ","


def find_order(found: PgType) -> WatermarkType | None:
    """How positions of the type compare; None: not in a way that is usable."""
    if found.name == "numeric" and found.modifier >= 0:
        precision, scale = _digits(found.modifier)
        return WatermarkType.LONG if scale == 0 and precision <= _LONG_DIGITS_MAX else None
    return _ORDERS.get(found.name)


def find_problem(found: PgType) -> str | None:
    """Why Spark can't hold the type; None if it can."""
    name = found.element or found.name
    kind = found.element_kind or found.kind
    if name == "numeric":
        return _judge_numeric(found.modifier)
    if name in _PLAIN or name in _AS_TEXT or name in _TIMES or kind == "e":
        return None
    return "Spark has no type that holds it unchanged"


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column that tells rows apart: ``quoted`` and ``type_text`` as SQL writes its name and its type."""

    quoted: str
    type_text: str

    def is_changed(self, cast: str) -> str:
        """A condition: the cast of the column does not lead back to its value."""
        return f"{cast}::{self.type_text} IS DISTINCT FROM {self.quoted}"


def write_read(found: PgType, column: str, number: int, *, key: KeyColumn | None = None) -> str:
    """The expression that reads ``column`` (quoted); ``number`` is its place in the message when a value is refused.

    ``key``: the column itself, if it is of a key; ``column`` may be a cast of it. What two rows may have that the key
    tells apart is refused, too: a value that the cast changes, and an array whose bounds are lost.
    """
    name = found.element or found.name
    kind = found.element_kind or found.kind
    is_array = found.element is not None
    as_text = name in _AS_TEXT or kind == "e"
    target = ("text[]" if is_array else "text") if as_text else found.text
    # A domain's own modifier is lost inside of an expression, and numeric without one would be rounded by Spark.
    value = f"{column}::{target}"
    refused = []
    if is_array:
        refused.append(f"array_ndims({column}) > 1")
        if key is not None:
            refused.append(f"array_lower({column}, 1) <> 1")
    if key is not None and column != key.quoted:
        refused.append(key.is_changed(column))
    if name == "numeric":
        refused.append(f"'NaN' = ANY({value})" if is_array else f"{column} = 'NaN'")
    if name in _TIMES:
        outside = _OUTSIDE.format("e" if is_array else column)
        refused.append(f"EXISTS (SELECT 1 FROM unnest({value}) AS e WHERE {outside})" if is_array else outside)
    if not refused:
        return value if as_text else column
    # The message holds the row's own value: of a constant the planner would compute the failing cast up front. It is no
    # number, whatever the column's type is.
    shown = column if key is None else key.quoted
    failure = f"CAST('gobblin_value:{number}=' || left({shown}::text, 100) AS int)::text::{target}"
    is_plain_time = name in _TIMES and not is_array and (key is None or column == key.quoted)
    usual = f"WHEN {_USUAL.format(column)} THEN {value} " if is_plain_time else ""
    return f"CASE {usual}WHEN {' OR '.join(refused)} THEN {failure} ELSE {value} END"


def _judge_numeric(modifier: int) -> str | None:
    if modifier < 0:
        return "a numeric without precision may hold more digits than Spark's 38"
    precision, scale = _digits(modifier)
    if precision > _DECIMAL_DIGITS_MAX:
        return f"it has {precision} digits, and Spark's decimals have at most {_DECIMAL_DIGITS_MAX}"
    if not 0 <= scale <= precision:
        return f"a scale of {scale} with {precision} digits is none that Spark's decimals have"
    return None


def _digits(modifier: int) -> tuple[int, int]:
    """Precision and scale, as pg_attribute.atttypmod packs them (the scale is a signed 11-bit number since 15)."""
    packed = modifier - 4
    return packed >> 16 & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024


def suggest_cast(found: PgType, column: str, *, in_key: bool = False) -> str:
    """What to write under ``casts``: for an array, an array of what its elements are cast to.

    The text of a key tells apart what the key does; a number with fewer digits would not, nor an array without bounds.
    """
    if in_key:
        return f"{column}::text"
    target = "numeric(38, 10)" if (found.element or found.name) == "numeric" else "text"
    return f"{column}::{target}{'' if found.element is None else '[]'}"


def find_spark_type(found: PgType) -> str:
    """What Spark's reader makes of ``write_read``, as Spark writes types. The type is without a problem."""
    name = found.element or found.name
    if name == "numeric":
        precision, scale = _digits(found.modifier)
        spark_type = f"decimal({precision},{scale})"
    else:
        spark_type = _SPARK_TYPES.get(name, "string")
    return spark_type if found.element is None else f"array<{spark_type}>"


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
