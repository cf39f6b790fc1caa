"""Changes of one table, and copied rows of it, as the rows of its change log; and messages of one prefix as rows.

The columns are those of the newest table, then those that only earlier ones had (NULL from now on), then our own. A
column whose type changed has the type that holds all values of both.

A message is written by ``pg_logical_emit_message``: an outbox as a dataset.
"""

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t

from gobblin_assets.errors import CorruptionError
from gobblin_assets.rows.arrow_types import arrow_schema, arrow_type, schema_to_json
from gobblin_assets.rows.schema_merge import merge_schemas, parse_schema, require_joinable
from gobblin_assets.sources.log_port import DecodedRows
from gobblin_assets.sources.postgres_log.logged_table import (
    CHANGE_COLUMNS,
    CHANGE_SCHEMA,
    COPIED_KEY,
    COPY_KEY,
    IDENTITY_KEY,
    LOST_KEY,
    TABLE_KEY,
    LoggedTable,
    list_readings,
    own_columns_last,
    parse_table,
    refuse_lost,
    require_key,
)
from gobblin_assets.sources.postgres_log.pgoutput import OPS, RowTuples, parse_tuples
from gobblin_assets.sources.postgres_log.typed_texts import TextPlace, parse_texts

MESSAGE_COLUMNS: Final[Mapping[str, str]] = MappingProxyType({
    "content": "binary",
    "_lsn": "bigint",
    "_seq": "bigint",
    "_xid": "bigint",
    "_commit_at": "timestamp",
})  # fmt: skip
"""Name to Spark type. Of a message outside of transactions, ``_lsn`` is its own place, and what follows is NULL."""

MESSAGE_SCHEMA: Final = arrow_schema(list(MESSAGE_COLUMNS.items()))


class MessageDecoder:
    """``RowDecoder`` of messages, which are rows already."""

    may_change = False

    @property
    def columns(self) -> Sequence[tuple[str, str]]:
        return list(MESSAGE_COLUMNS.items())

    @property
    def source_columns(self) -> Sequence[tuple[str, str]]:
        return self.columns

    @property
    def dead_letter_columns(self) -> Sequence[tuple[str, str]]:
        return ()

    def decode(self, records: pa.RecordBatch) -> DecodedRows:
        if records.schema != MESSAGE_SCHEMA:
            raise CorruptionError("messages have other columns than messages have")
        return DecodedRows(records, pa.RecordBatch.from_arrays([], schema=pa.schema([])), 0)


_OP_NAMES: Final = pa.array(OPS, pa.string())
_FACTS: Final = ["lsn", "seq", "xid", "commit_at"]
_COPY_MAX: Final = 2**31 - 1
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The layout by which batches of one table become rows.

    ``sources``: the place of the table's column, by the row's column.
    """

    table: LoggedTable
    places: tuple[TextPlace, ...]
    sources: Mapping[str, int]
    schema: pa.Schema


class TableDecoder:
    """``RowDecoder`` of one dataset.

    ``casts`` are the dataset's option. ``known``: the columns that the dataset has published, name to Spark type, ours
    among them; None if there are none.
    """

    def __init__(self, urn: str, casts: Mapping[str, str], known: Mapping[str, str] | None) -> None:
        self._urn = urn
        self._casts = casts
        self._columns = [] if known is None else own_columns_last(known.items())
        self._latest: tuple[bytes, _Layout] | None = None

    may_change = True

    @property
    def columns(self) -> Sequence[tuple[str, str]]:
        """Empty as long as no table is known."""
        return self._columns

    @property
    def source_columns(self) -> Sequence[tuple[str, str]]:
        """The newest table's, with ours; empty as long as no table is known."""
        if self._latest is None:
            return ()
        return [
            *((each.reading.name, each.reading.spark_type) for each in self._latest[1].places),
            *CHANGE_COLUMNS.items(),
        ]

    @property
    def dead_letter_columns(self) -> Sequence[tuple[str, str]]:
        return ()

    def learn(self, known: Mapping[str, str]) -> None:
        """The dataset has published these columns, ours among them; perhaps by another worker."""
        newer = _to_struct([(name, kind) for name, kind in self._columns if name not in CHANGE_COLUMNS])
        older = _to_struct([(name, kind) for name, kind in known.items() if name not in CHANGE_COLUMNS])
        merged = merge_schemas([newer, older])
        self._columns = own_columns_last((each.name, each.dataType.simpleString()) for each in merged.fields)
        if self._latest is not None:
            self._latest = (self._latest[0], self._make_layout(self._latest[1].table))

    def decode(self, records: pa.RecordBatch) -> DecodedRows:
        """The rows of changes or of copied rows, as the metadata of the batch's schema says.

        RejectedError for what the dataset can't hold, CorruptionError for what Postgres can't have sent.
        """
        metadata = records.schema.metadata or {}
        if LOST_KEY in metadata:
            # Nothing of the table is used, which may be another one.
            raise refuse_lost(parse_table(_get(metadata, TABLE_KEY)), metadata[LOST_KEY].decode(), urn=self._urn)
        layout = self._find_layout(_get(metadata, TABLE_KEY))
        if IDENTITY_KEY in metadata:
            require_key(layout.table, json.loads(metadata[IDENTITY_KEY]), urn=self._urn)
        copy = _read_copy(_get(metadata, COPY_KEY))
        if COPIED_KEY in metadata:
            rows = _decode_copied(records, layout, copy, metadata[COPIED_KEY])
        else:
            rows = _decode_changes(records, layout, copy)
        return DecodedRows(rows, pa.RecordBatch.from_arrays([], schema=pa.schema([])), 0)

    def _find_layout(self, text: bytes) -> _Layout:
        # Only the latest is kept: it alone has the columns of all tables so far.
        if self._latest is None or self._latest[0] != text:
            self._latest = (text, self._make_layout(parse_table(text)))
        return self._latest[1]

    def _make_layout(self, table: LoggedTable) -> _Layout:
        readings = list_readings(table, self._casts, urn=self._urn)
        newer = _to_struct([(each.name, each.spark_type) for each in readings])
        older = _to_struct([(name, kind) for name, kind in self._columns if name not in CHANGE_COLUMNS])
        field = f"datasets[{self._urn}].casts"
        require_joinable(newer, [older], allow_retyped=True, label=table.label, field=field)
        merged = merge_schemas([newer, older])
        self._columns = own_columns_last((each.name, each.dataType.simpleString()) for each in merged.fields)
        places = tuple(TextPlace(self._urn, table.label, each) for each in readings)
        sources = {each.name: number for number, each in enumerate(readings)}
        return _Layout(table, places, sources, arrow_schema(self._columns))


def _to_struct(columns: Sequence[tuple[str, str]]) -> t.StructType:
    return parse_schema(schema_to_json(columns))


def _decode_changes(records: pa.RecordBatch, layout: _Layout, copy: int) -> pa.RecordBatch:
    if records.schema.remove_metadata() != CHANGE_SCHEMA:
        raise CorruptionError(f"changes of {layout.table.label} have another schema than changes have")
    if any(records[name].null_count for name in _FACTS):
        raise CorruptionError(f"a change of {layout.table.label} has no place, number or time")
    tuples = parse_tuples(records["payload"], layout.table.oid, len(layout.places))
    values = [parse_texts(tuples.binaries(number), place) for number, place in enumerate(layout.places)]
    count = len(tuples.ops)
    # The second row of an update with an old tuple comes beside one for each message.
    if count != records.num_rows + np.count_nonzero(tuples.steps):
        raise CorruptionError(f"{records.num_rows} changes of {layout.table.label} became {count} rows")
    picked = records
    if not tuples.is_one_to_one:
        picked = records.select(_FACTS).take(pa.array(tuples.messages))
    own = {
        "_op": _OP_NAMES.take(pa.array(tuples.ops)),
        "_lsn": picked["lsn"],
        "_seq": pa.array(picked["seq"].to_numpy() + tuples.steps),
        "_xid": picked["xid"],
        "_commit_at": picked["commit_at"],
        "_unchanged": _list_unchanged(tuples, layout),
        "_copy": _repeat(copy, pa.int32(), count),
    }
    return _put_together(layout, values, own, count)


def _list_unchanged(tuples: RowTuples, layout: _Layout) -> pa.Array:
    """The names of the columns that were not sent, for each row; NULL for none."""
    kind = cast("pa.ListType[Any]", arrow_type(CHANGE_COLUMNS["_unchanged"]))
    found = {number: each for number in range(len(layout.places)) if (each := tuples.unchanged(number)) is not None}
    if not found:
        return pa.nulls(len(tuples.ops), kind)
    is_unchanged = np.stack(list(found.values()), axis=1)
    names = pa.array([layout.places[number].reading.name for number in found], pa.string())
    counts = is_unchanged.sum(axis=1)
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    values = names.take(pa.array(np.nonzero(is_unchanged)[1]))
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=kind, mask=pa.array(counts == 0))


def _decode_copied(records: pa.RecordBatch, layout: _Layout, copy: int, text: bytes) -> pa.RecordBatch:
    readings = [place.reading for place in layout.places]
    expected = arrow_schema([(each.name, each.spark_type) for each in readings])
    if records.schema.remove_metadata() != expected:
        raise CorruptionError(
            f"copied rows of {layout.table.label} have the columns {records.schema.remove_metadata()}, and the table "
            f"has {expected}"
        )
    try:
        facts = json.loads(text)
        lsn, at = int(facts["lsn"]), _EPOCH + dt.timedelta(microseconds=int(facts["at"]))
        begins = bool(facts.get("begins"))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise CorruptionError(f"copied rows of {layout.table.label} don't say where and when they were read") from error
    # What begins a copy is like a truncation before its rows.
    count, op, seq = (1, "t", -1) if begins else (records.num_rows, "r", 0)
    values = [pa.nulls(1, field.type) for field in expected] if begins else records.columns
    kinds = {name: arrow_type(spark_type) for name, spark_type in CHANGE_COLUMNS.items()}
    given = {"_op": op, "_lsn": lsn, "_seq": seq, "_commit_at": at, "_copy": copy}
    own = {name: _repeat(given.get(name), kind, count) for name, kind in kinds.items()}
    return _put_together(layout, values, own, count)


def _put_together(
    layout: _Layout, values: Sequence[pa.Array], own: Mapping[str, pa.Array], count: int
) -> pa.RecordBatch:
    columns = []
    for field in layout.schema:
        source = layout.sources.get(field.name)
        column = own.get(field.name) if source is None else values[source]
        column = pa.nulls(count, field.type) if column is None else column
        if len(column) != count:
            raise CorruptionError(f"{layout.table.label}: {count} rows have {len(column)} values of {field.name!r}")
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=layout.schema)


def _repeat(value: object, kind: Any, count: int) -> pa.Array:
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


def _get(metadata: Mapping[bytes, bytes], key: bytes) -> bytes:
    if key not in metadata:
        raise CorruptionError(f"a batch of a change log does not say its {key.decode('ascii')}")
    return metadata[key]


def _read_copy(text: bytes) -> int:
    if not text.isdigit() or not 1 <= int(text) <= _COPY_MAX:
        raise CorruptionError(f"{text!r} is no number of a copy")
    return int(text)
