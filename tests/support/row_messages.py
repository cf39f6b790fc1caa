"""Messages of ``pgoutput`` made by hand, and the tables that they belong to."""

import datetime as dt
import json
import struct
from collections.abc import Mapping, Sequence
from types import EllipsisType

import pyarrow as pa

from gobblin_assets.sources.jdbc.postgres_tables import PgType
from gobblin_assets.sources.postgres_log.logged_table import (
    CHANGE_SCHEMA,
    LoggedColumn,
    LoggedTable,
    list_readings,
    table_to_json,
)

OID = 16_400
AT = dt.datetime(2026, 1, 1, 10, tzinfo=dt.UTC)

Cell = bytes | None | EllipsisType
"""What a tuple has for one column. ``...``: unchanged, and not sent."""


def new_tuple(cells: Sequence[Cell]) -> bytes:
    return struct.pack(">H", len(cells)) + b"".join(map(_write_cell, cells))


def inserted(*cells: Cell, oid: int = OID) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + new_tuple(cells)


def updated(*cells: Cell, old: Sequence[Cell] | None = None, kind: bytes = b"K", oid: int = OID) -> bytes:
    before = b"" if old is None else kind + new_tuple(old)
    return b"U" + struct.pack(">I", oid) + before + b"N" + new_tuple(cells)


def deleted(*cells: Cell, kind: bytes = b"K", oid: int = OID) -> bytes:
    return b"D" + struct.pack(">I", oid) + kind + new_tuple(cells)


def truncated(*oids: int) -> bytes:
    return b"T" + struct.pack(f">IB{len(oids)}I", len(oids), 0, *oids)


def type_named(name: str, modifier: int = -1, *, text: str | None = None) -> PgType:
    """A plain type, or an array such as ``int4[]``."""
    if name.endswith("[]"):
        element = name.removesuffix("[]")
        return PgType(f"_{element}", "b", text or name, modifier, element, "b")
    return PgType(name, "b", text or name, modifier)


def numeric(precision: int, scale: int, brackets: str = "") -> PgType:
    return type_named(
        f"numeric{brackets}", (precision << 16 | scale) + 4, text=f"numeric({precision},{scale}){brackets}"
    )


def table_of(*columns: tuple[str, PgType], identity: str = "d", oid: int = OID) -> LoggedTable:
    """A table ``public.t``; its first column is its key."""
    logged = tuple(LoggedColumn(name, kind, number == 0) for number, (name, kind) in enumerate(columns))
    return LoggedTable(oid, "public", "t", identity, logged)


def changes(
    table: LoggedTable,
    messages: Sequence[bytes],
    *,
    seqs: Sequence[int] | None = None,
    lsn: int = 1_000,
    copy: int = 1,
    at: dt.datetime = AT,
) -> pa.RecordBatch:
    """A batch of changes of one transaction, as the reader of a slot makes it."""
    count = len(messages)
    columns = [
        pa.array(messages, pa.binary()),
        pa.array([lsn] * count, pa.int64()),
        pa.array(range(1, count + 1) if seqs is None else seqs, pa.int64()),
        pa.array([77] * count, pa.int64()),
        pa.array([at] * count, pa.timestamp("us", "UTC")),
    ]
    metadata = {b"table": table_to_json(table).encode(), b"copy": str(copy).encode()}
    return pa.RecordBatch.from_arrays(columns, schema=CHANGE_SCHEMA.with_metadata(metadata))


def copied(table: LoggedTable, rows: pa.RecordBatch, *, lsn: int, copy: int = 1) -> pa.RecordBatch:
    """A batch of copied rows, read at ``AT``."""
    micros = (AT - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    return rows.replace_schema_metadata(
        {
            b"table": table_to_json(table).encode(),
            b"copy": str(copy).encode(),
            b"copied": json.dumps({"lsn": lsn, "at": micros}).encode(),
        }
    )


def _write_cell(cell: Cell) -> bytes:
    if cell is None:
        return b"n"
    if isinstance(cell, EllipsisType):
        return b"u"
    return b"t" + struct.pack(">I", len(cell)) + cell


def columns_of(table: LoggedTable, casts: Mapping[str, str], *, urn: str | None = None) -> list[tuple[str, str]]:
    """Name and Spark type of each of the table's columns."""
    return [(each.name, each.spark_type) for each in list_readings(table, casts, urn=urn)]
