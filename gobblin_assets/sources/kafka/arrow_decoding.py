"""Kafka's records as rows without Spark: what ``decoding`` makes of them, from and to Arrow's batches.

The input has the columns of ``consumer``'s reads, with ``headers`` where ``keep`` asks for them. Each record is in one
of three places, and the places are counted:

    rows           the value's fields, else ``value``; then the columns of ``keep``
    dead_letters   the same columns, NULL where they were to be decoded; then ``dead_letter_reason`` and the record
    left out       a tombstone, where ``on_tombstone`` is ``drop``

Rows and dead letters are in the order of the records.
"""

from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Final

import pyarrow as pa
from pyarrow import compute as pc

from gobblin_assets.errors import CorruptionError, GobblinError, RejectedError
from gobblin_assets.rows.arrow_types import arrow_type
from gobblin_assets.rows.hidden_columns import DEAD_LETTER_COLUMN, published_name
from gobblin_assets.sources.epoch_source import DecodedRows
from gobblin_assets.sources.kafka.arrow_parts import find_spark_part, plan_arrow_part
from gobblin_assets.sources.kafka.kafka_spec import KafkaReadSpec
from gobblin_assets.sources.kafka.kept_columns import KEPT_ORDER, list_kept, require_own_names

_HEADERS: Final = "array<struct<key:string,value:binary>>"
# Named as in Spark's own files.
_HEADERS_TYPE: Final = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
_KEPT_TYPES: Final = MappingProxyType({
    "kafka_topic": "string",
    "kafka_partition": "int",
    "kafka_offset": "bigint",
    "kafka_timestamp": "timestamp",
    "kafka_timestamp_type": "string",
    "kafka_headers": _HEADERS,
})  # fmt: skip
_LETTER_TYPES: Final = MappingProxyType({
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestamp_type": "string",
    "key": "binary",
    "value": "binary",
    "headers": _HEADERS,
})  # fmt: skip
_KEY_COLUMN: Final = KEPT_ORDER["key"]
_TIME_COLUMNS: Final = frozenset({KEPT_ORDER["timestamp"], KEPT_ORDER["timestamp_type"]})
_TIME_KINDS: Final = pa.array(["create_time", "log_append_time"])
_KNOWN_KINDS: Final = pa.array([0, 1], pa.int32())
_REASON_MAX: Final = 300
_NO_TIME: Final = pa.scalar(-1_000, pa.timestamp("us", "UTC"))


class ArrowDecoder:
    """A decoder by Arrow, made once for a topic, for one thread.

    ``columns`` are those of ``schema``, with the names of Spark's types.
    RejectedError for two columns of one name, and for what only Spark decodes, with its field.
    """

    may_change = False

    def __init__(self, read: KafkaReadSpec, topic: str, *, field: str = "kafka") -> None:
        need = find_need_of_decoding(read, field)
        if need is not None:
            raise RejectedError(f"topic {topic!r}: only Spark decodes this", field=need, hint="Publish it by Spark.")
        self._drops_tombstones = read.on_tombstone == "drop"
        self._keep = tuple(list_kept(read.keep))
        self._value = plan_arrow_part(read.value)
        self._key = plan_arrow_part(read.key) if _KEY_COLUMN in self._keep else None
        kept = [(name, self._kept_type(name)) for name in self._keep]
        require_own_names([name for name, _type in self._value.columns], self._keep, topic=topic, field=field)
        self.columns: tuple[tuple[str, str], ...] = (*self._value.columns, *kept)
        self.schema = _schema_of(self.columns)
        self.can_have_dead_letters = self._value.can_fail or (self._key is not None and self._key.can_fail)
        letter = {name: each for name, each in _LETTER_TYPES.items() if name != "headers" or "headers" in read.keep}
        self._letter = tuple(letter)
        self.dead_letter_columns: tuple[tuple[str, str], ...] = (
            *self.columns,
            (published_name(DEAD_LETTER_COLUMN), "string"),
            *((published_name(f"{DEAD_LETTER_COLUMN}_{name}"), each) for name, each in letter.items()),
        )
        self.dead_letter_schema = _schema_of(self.dead_letter_columns)

    @property
    def source_columns(self) -> Sequence[tuple[str, str]]:
        return self.columns

    @property
    def needs_times(self) -> bool:
        """Whether rows or dead letters have the times of records."""
        return self.can_have_dead_letters or not _TIME_COLUMNS.isdisjoint(self._keep)

    def decode(self, batch: pa.RecordBatch) -> DecodedRows:
        """Decode all records of a batch. CorruptionError if one of them is lost.

        A record at which a library fails is a dead letter, whatever the exception is.
        """
        try:
            return self._decode(batch)
        except (GobblinError, AssertionError, OSError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  the fault of one of the records
            if batch.num_rows == 1:
                return self._refuse(batch, error)
        half = batch.num_rows // 2
        parts = [self.decode(batch.slice(0, half)), self.decode(batch.slice(half))]
        return DecodedRows(
            pa.concat_batches([each.rows for each in parts]),
            pa.concat_batches([each.dead_letters for each in parts]),
            sum(each.left_out for each in parts),
        )

    def _refuse(self, record: pa.RecordBatch, error: Exception) -> DecodedRows:
        decoded = {name for name, _type in self._value.columns} | {_KEY_COLUMN}
        kept = [
            pa.nulls(1, each.type) if each.name in decoded else _kept_column(record, each.name) for each in self.schema
        ]
        row = pa.RecordBatch.from_arrays(kept, schema=self.schema)
        reason = pa.array([f"unexpected {type(error).__name__}: {str(error)[:_REASON_MAX]}"])
        return DecodedRows(row.slice(0, 0), self._letters(row, record, reason), 0)

    def _decode(self, batch: pa.RecordBatch) -> DecodedRows:
        records = batch
        if self._drops_tombstones and batch["value"].null_count:
            records = batch.filter(batch["value"].is_valid())
        decoded, of_value = self._value.decode(records["value"])
        key, of_key = (None, None) if self._key is None else self._key.decode(records["key"])
        kept = [key[0] if name == _KEY_COLUMN and key else _kept_column(records, name) for name in self._keep]
        rows = pa.RecordBatch.from_arrays([*decoded, *kept], schema=self.schema)
        reason = _join_reasons(of_value, of_key)
        letters = pa.RecordBatch.from_arrays(
            [pa.nulls(0, each.type) for each in self.dead_letter_schema], schema=self.dead_letter_schema
        )
        if reason is not None:
            is_dead = reason.is_valid()
            letters = self._letters(rows.filter(is_dead), records.filter(is_dead), reason.filter(is_dead))
            rows = rows.filter(reason.is_null())
        left_out = batch.num_rows - records.num_rows
        if rows.num_rows + letters.num_rows + left_out != batch.num_rows:
            raise CorruptionError(
                f"{batch.num_rows} records became {rows.num_rows} rows and {letters.num_rows} dead letters, with "
                f"{left_out} left out"
            )
        return DecodedRows(rows, letters, left_out)

    def _letters(self, rows: pa.RecordBatch, records: pa.RecordBatch, reason: pa.Array) -> pa.RecordBatch:
        """What was decoded of a record that has a fault elsewhere is no part of its letter."""
        decoded = {name for name, _type in self._value.columns} | {_KEY_COLUMN}
        own = [
            pa.nulls(rows.num_rows, field.type) if field.name in decoded else rows[field.name] for field in self.schema
        ]
        facts = [_kept_column(records, f"kafka_{name}") for name in self._letter]
        return pa.RecordBatch.from_arrays([*own, reason, *facts], schema=self.dead_letter_schema)

    def _kept_type(self, name: str) -> str:
        if name == _KEY_COLUMN and self._key is not None:
            return self._key.columns[0][1]
        return _KEPT_TYPES[name]


def find_need_of_decoding(read: KafkaReadSpec, field: str) -> str | None:
    """The option below ``field`` by which only Spark decodes the records; None: ``ArrowDecoder`` does."""
    of_value = find_spark_part(read.value, f"{field}.value", is_key=False)
    if of_value is not None or "key" not in read.keep:
        return of_value
    return find_spark_part(read.key, f"{field}.key", is_key=True)


def _schema_of(columns: Iterable[tuple[str, str]]) -> pa.Schema:
    return pa.schema(
        [pa.field(name, _HEADERS_TYPE if each == _HEADERS else arrow_type(each)) for name, each in columns]
    )


def _kept_column(records: pa.RecordBatch, name: str) -> pa.Array:
    """A column of ``keep`` from the record itself, by the column's name."""
    match name:
        case "kafka_timestamp":
            times = records["timestamp"]
            return pc.if_else(pc.equal(times, _NO_TIME), None, times)
        case "kafka_timestamp_type":
            kinds = records["timestampType"]
            return _TIME_KINDS.take(pc.if_else(pc.is_in(kinds, _KNOWN_KINDS), kinds, None))
        case "kafka_headers":
            return records["headers"].cast(_HEADERS_TYPE)
        case _:
            return records[name.removeprefix("kafka_")]


def _join_reasons(of_value: pa.Array | None, of_key: pa.Array | None) -> pa.Array | None:
    """The value's reason is looked for first."""
    reasons = [
        pc.binary_join_element_wise(f"{part}: ", each, "")
        for part, each in (("value", of_value), ("key", of_key))
        if each is not None
    ]
    return pc.coalesce(*reasons) if reasons else None
