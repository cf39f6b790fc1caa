"""A table as the log has it: its columns and their types, from the latest Relation message; and its changes' schema."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.model.column_names import find_alike, name_key
from gobblin_assets.sources.jdbc.names import TableName
from gobblin_assets.sources.jdbc.postgres_tables import PgType, find_problem, find_spark_type, suggest_cast

CHANGE_SCHEMA: Final = pa.schema([
    ("payload", pa.binary()),
    ("lsn", pa.int64()),
    ("seq", pa.int64()),
    ("xid", pa.int64()),
    ("commit_at", pa.timestamp("us", "UTC")),
])  # fmt: skip
"""Changes of one table, in order. ``payload``: a whole message I, U, D or T. ``seq``: the number of its first row."""

TABLE_KEY: Final = b"table"
COPY_KEY: Final = b"copy"
COPIED_KEY: Final = b"copied"
IDENTITY_KEY: Final = b"key"
LOST_KEY: Final = b"lost"
"""Of the metadata of a batch's schema: the table as ``table_to_json`` writes it, and the number of the copy.

Changes also have JSON of the columns that told rows apart when the table was copied, or of null; and what has happened
to the table, once no more of it is known. Copied rows have JSON of ``lsn``, where the stream behind the copy begins,
``at``, in microseconds since 1970, and ``begins``: the batch has no row, and stands before those of a copy.
"""

CHANGE_COLUMNS: Final[Mapping[str, str]] = MappingProxyType({
    "_op": "string",
    "_lsn": "bigint",
    "_seq": "bigint",
    "_xid": "bigint",
    "_commit_at": "timestamp",
    "_unchanged": "array<string>",
    "_copy": "int",
})  # fmt: skip
"""Our own columns, which follow the table's. Name → Spark type."""

_CAST: Final = re.compile(
    r"""\s*(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>[^\s":()]+))\s*::\s*
        (?:(?P<text>text)|(?:numeric|decimal)\s*\(\s*(?P<precision>\d{1,4})\s*(?:,\s*(?P<scale>-?\d{1,4})\s*)?\))
        \s*(?P<array>\[\s*\])?\s*""",
    re.VERBOSE | re.IGNORECASE,
)
_DELIMITER: Final = ","
_WHOLE_NUMBERS: Final = frozenset({"int2", "int4", "int8"})


@dataclass(frozen=True, slots=True)
class LoggedColumn:
    """A column of a logged table.

    ``in_key``: the column is one of those that tell rows apart. With whole rows, these are the primary key.
    """

    name: str
    type: PgType
    in_key: bool


@dataclass(frozen=True, slots=True)
class LoggedTable:
    """A table by its latest Relation message.

    ``identity``: ``d`` (primary key), ``n`` (none), ``f`` (whole rows) or ``i`` (an index).
    """

    oid: int
    schema: str
    table: str
    identity: str
    columns: tuple[LoggedColumn, ...]

    @property
    def label(self) -> str:
        """The table's name, for messages."""
        return str(TableName(self.schema, self.table))


@dataclass(frozen=True, slots=True)
class LoggedReading:
    """The reading of a column: its texts are of ``sent``, and become values of ``held``, by a cast or as they are.

    ``in_key``: it tells rows apart, so that no cast may change its values.
    """

    name: str
    sent: PgType
    held: PgType
    is_cast: bool
    in_key: bool

    @property
    def spark_type(self) -> str:
        return find_spark_type(self.held)

    @property
    def text_cast(self) -> str:
        """The cast that holds every value."""
        return f"{_quote(self.name)}::text"


def table_to_json(table: LoggedTable) -> str:
    said = asdict(table)
    for column in said["columns"]:
        # Left out as a rule: the text tells a table that is being copied from what it was before.
        if column["type"]["delimiter"] == _DELIMITER:
            del column["type"]["delimiter"]
    return json.dumps(said, ensure_ascii=False)


def parse_table(text: str | bytes) -> LoggedTable:
    """What ``table_to_json`` wrote; CorruptionError for anything else."""
    try:
        found = json.loads(text)
        columns = tuple(LoggedColumn(each["name"], PgType(**each["type"]), each["in_key"]) for each in found["columns"])
        return LoggedTable(found["oid"], found["schema"], found["table"], found["identity"], columns)
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptionError(f"a stored table of a change log is not readable ({type(error).__name__})") from error


def list_readings(table: LoggedTable, casts: Mapping[str, str], *, urn: str | None = None) -> tuple[LoggedReading, ...]:
    """How each column is read. ``urn``: the dataset's, for messages; its table's name if it is not given.

    Casts of columns that the table lacks are left alone: the column may come later in the log, or was there before.

    RejectedError for names that Spark can't tell apart, types that Spark can't hold, and casts that only a query of
    the table could carry out.
    """
    dataset = f"datasets[{table.label if urn is None else urn}]"
    _require_names(table, dataset)
    return tuple(_read_column(table, column, casts.get(column.name), dataset) for column in table.columns)


def require_key(table: LoggedTable, key: Sequence[str] | None, *, urn: str) -> None:
    """RejectedError if the log tells rows apart by other columns than the copy did. ``key`` None: by all of them."""
    now = {column.name for column in table.columns if column.in_key}
    # Whole rows can be counted also where they have got a key.
    if now == set(key or ()) or (table.identity == "f" and not key):
        return
    said, was = (", ".join(sorted(names)) or "all of their columns" for names in (now, key or ()))
    raise RejectedError(
        f"rows of {table.label} were told apart by {was}, and are by {said} now",
        field=f"datasets[{urn}]",
        hint=f"Copy the table again, behind what is published: gobblin-assets sink recopy JOB --dataset {urn}.",
        table=table.label,
    )


def refuse_lost(table: LoggedTable, why: str, *, urn: str) -> RejectedError:
    """For changes behind which the log can't say what the table is. ``why``: a clause, of which it is the subject."""
    return RejectedError(
        f"{table.label} {why}",
        field=f"datasets[{urn}]",
        hint=f"Copy the table again, behind what is published: gobblin-assets sink recopy JOB --dataset {urn}.",
        table=table.label,
    )


def _require_names(table: LoggedTable, dataset: str) -> None:
    names = [column.name for column in table.columns]
    alike = find_alike([*CHANGE_COLUMNS, *names])
    if alike is None:
        return
    if alike[0] in CHANGE_COLUMNS:
        raise RejectedError(
            f"{table.label} has a column {alike[1]!r}, which is a name of the change log's own columns",
            field=dataset,
            hint="Rename the table's column, or leave it out of the publication by a list of columns.",
            table=table.label,
            column=alike[1],
        )
    raise RejectedError(
        f"{table.label} has columns {alike[0]!r} and {alike[1]!r}, which Spark can't tell apart",
        field=dataset,
        hint="Rename one of the two, or leave it out of the publication by a list of columns.",
        table=table.label,
        column=alike[1],
    )


def _read_column(table: LoggedTable, column: LoggedColumn, cast: str | None, dataset: str) -> LoggedReading:
    suggested = suggest_cast(column.type, _quote(column.name), in_key=column.in_key)
    held = column.type if cast is None else _parse_cast(column, cast, f"{dataset}.casts.{column.name}", suggested)
    problem = find_problem(held)
    if problem is not None:
        raise RejectedError(
            f"{table.label}.{column.name} is {held.text}: {problem}",
            field=f"{dataset}.casts",
            hint=f"Write casts: {write_cast_option(column.name, suggested)}, or leave the column out of the "
            "publication by a list of columns.",
            table=table.label,
            column=column.name,
            type=held.text,
        )
    return LoggedReading(column.name, column.type, held, cast is not None, column.in_key)


def write_cast_option(column: str, cast: str) -> str:
    """The option as a job file says it."""
    return f"{{{_to_yaml(column)}: {_to_yaml(cast)}}}"


def _parse_cast(column: LoggedColumn, cast: str, field: str, suggested: str) -> PgType:
    found = _CAST.fullmatch(cast)
    name = None if found is None else (found["quoted"] or "").replace('""', '"') or found["plain"]
    if found is None or name is None or name_key(name) != name_key(column.name):
        raise RejectedError(
            f"{cast!r} can't be carried out on changes, which come as texts of single values",
            field=field,
            hint=f"Write {suggested}; of a change log's columns there are only {_quote(column.name)}::text and "
            f"{_quote(column.name)}::numeric(p,s).",
            column=column.name,
        )
    return _cast_type(column, found, field, suggested)


def _cast_type(column: LoggedColumn, found: "re.Match[str]", field: str, suggested: str) -> PgType:
    kind = column.type.element or column.type.name
    if found["array"] and column.type.element is None:
        raise RejectedError(
            f"{column.name} is {column.type.text}, which is no array", field=field, hint=f"Write {suggested}."
        )
    if found["text"]:
        if found["array"]:
            return PgType("_text", "b", "text[]", -1, "text", "b")
        return PgType("text", "b", "text", -1)
    is_number = kind == "numeric" or kind in _WHOLE_NUMBERS
    if not is_number or bool(found["array"]) != (column.type.element is not None):
        raise RejectedError(
            f"{column.name} is {column.type.text}; only numerics and whole numbers of a change log are cast to numeric",
            field=field,
            hint=f"Write {suggested}.",
        )
    precision, scale = int(found["precision"]), int(found["scale"] or 0)
    text = f"numeric({precision},{scale})"
    # As pg_attribute.atttypmod packs them.
    modifier = (precision << 16 | scale & 0x7FF) + 4
    if found["array"]:
        return PgType("_numeric", "b", f"{text}[]", modifier, "numeric", "b")
    return PgType("numeric", "b", text, modifier)


def own_columns_last(columns: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The columns, without those of ours that are among them, followed by all of ours."""
    return [*((name, kind) for name, kind in columns if name not in CHANGE_COLUMNS), *CHANGE_COLUMNS.items()]


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _to_yaml(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
