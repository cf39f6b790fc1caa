"""Kafka's records as rows without Spark: what ``decoding`` makes of them, from and to Arrow's batches.

The input has the columns of ``consumer``'s reads, with ``headers`` where ``keep`` asks for them. Each record is in one
of three places, and the places are counted:

    rows           the value's fields, else ``value``; then the columns of ``keep``
    dead_letters   the same columns, NULL where they were to be decoded; then ``dead_letter_reason`` and the record
    left out       a tombstone, where ``on_tombstone`` is ``drop``

Rows and dead letters are in the order of the records.

``ArrowPart`` decodes keys or values: there is one class for each format that needs no Spark. A DDL of JSON is read here
where it names only scalars and arrays of them. What is left to Spark: structs and maps; ``binary``, which is Base64 in
JSON, and ``variant``; comments and constraints; texts that are no DDL, and names that Spark can't tell apart, which
Spark's decoder refuses.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from gobblin_assets.errors import CorruptionError, GobblinError, RejectedError
from gobblin_assets.model.column_names import find_alike
from gobblin_assets.rows.arrow_types import arrow_schema, arrow_type
from gobblin_assets.rows.hidden_columns import DEAD_LETTER_COLUMN, published_name
from gobblin_assets.sources.kafka.arrow_json import ArrowJson, are_utf8
from gobblin_assets.sources.kafka.json_values import NO_UTF8, JsonValues
from gobblin_assets.sources.kafka.kafka_kind import (
    KEPT_ORDER,
    KEPT_TYPES,
    Decoder,
    DecoderSpec,
    KafkaReadSpec,
    list_kept,
    require_own_names,
)
from gobblin_assets.sources.log_port import DecodedRows

_TOKEN: Final = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([A-Za-z_][A-Za-z0-9_]*)|([0-9]+)|([<>(),]))")
_END: Final = ""
_NAMES: Final = MappingProxyType({
    "boolean": "boolean", "tinyint": "tinyint", "byte": "tinyint",
    "smallint": "smallint", "short": "smallint", "int": "int", "integer": "int",
    "bigint": "bigint", "long": "bigint", "float": "float", "real": "float", "double": "double", "string": "string",
    "date": "date", "timestamp": "timestamp", "timestamp_ltz": "timestamp", "timestamp_ntz": "timestamp_ntz",
})  # fmt: skip
_DECIMALS: Final = frozenset({"decimal", "dec", "numeric"})
_DIGITS_MAX: Final = 38


@dataclass(frozen=True, slots=True)
class DdlColumns:
    """The columns that a DDL names.

    ``columns``: name and type as ``simpleString`` writes it. Without ``is_record``, the one column ``value``.
    """

    columns: tuple[tuple[str, str], ...]
    is_record: bool


def read_ddl(ddl: str) -> DdlColumns | None:
    """None: Spark has to read it."""
    tokens = _split(ddl)
    if tokens is None:
        return None
    try:
        # An array alone is the only DDL that is a type and no column.
        if len(tokens) > 1 and tokens[1] == "<":
            return DdlColumns((("value", _Reader(iter(tokens)).read_all_as_type()),), is_record=False)
        columns = _Reader(iter(tokens)).read_columns()
    except _UnreadError:
        return None
    if find_alike([name for name, _type in columns]) is not None:
        return None
    return DdlColumns(tuple(columns), is_record=True)


class _UnreadError(Exception):
    pass


def _split(ddl: str) -> list[str] | None:
    tokens, position, text = [], 0, ddl.rstrip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            return None
        tokens.append(found[0].strip())
        position = found.end()
    return tokens


class _Reader:
    """A cursor over the words of a DDL.

    ``_next`` is the next one, ``_END`` behind the last.
    """

    def __init__(self, tokens: Iterator[str]) -> None:
        self._tokens = tokens
        self._next = next(tokens, _END)

    def read_all_as_type(self) -> str:
        found = self._read_type()
        self._expect(_END)
        return found

    def read_columns(self) -> list[tuple[str, str]]:
        columns = []
        while True:
            name = self._read_name()
            columns.append((name, self._read_type()))
            if self._next == _END:
                return columns
            self._expect(",")

    def _read_name(self) -> str:
        token = self._take()
        if token.startswith("`"):
            return token[1:-1].replace("``", "`")
        if not token or not (token[0].isalpha() or token[0] == "_"):
            raise _UnreadError
        return token

    def _read_type(self) -> str:
        name = self._take().lower()
        if name == "array":
            self._expect("<")
            element = self._read_type()
            self._expect(">")
            return f"array<{element}>"
        if name in _DECIMALS:
            return self._read_decimal()
        if name not in _NAMES:
            raise _UnreadError
        return _NAMES[name]

    def _read_decimal(self) -> str:
        precision, scale = 10, 0
        if self._next == "(":
            self._take()
            precision = self._read_number()
            if self._next == ",":
                self._take()
                scale = self._read_number()
            self._expect(")")
        if not 1 <= precision <= _DIGITS_MAX or scale > precision:
            raise _UnreadError
        return f"decimal({precision},{scale})"

    def _read_number(self) -> int:
        token = self._take()
        if not token.isdecimal():
            raise _UnreadError
        return int(token)

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise _UnreadError

    def _take(self) -> str:
        token, self._next = self._next, next(self._tokens, _END)
        return token


class ArrowPart(Protocol):
    """A decoder of keys or values of one format, by Arrow.

    ``columns``: names, and Spark's types. ``can_fail``: whether a record may be wrong.
    """

    @property
    def columns(self) -> Sequence[tuple[str, str]]: ...

    @property
    def can_fail(self) -> bool: ...

    def decode(self, contents: pa.BinaryArray) -> tuple[list[pa.Array], pa.Array | None]:
        """The columns, and the reasons of records that are wrong, if there are any. NULL is a good record of NULLs."""
        ...


def find_spark_part(spec: DecoderSpec, field: str, *, is_key: bool) -> str | None:
    """The option by which only Spark can decode this. ``field`` is the place of ``spec``."""
    match spec.format:
        case Decoder.BYTES | Decoder.STRING:
            return None
        case Decoder.JSON:
            found = None if spec.schema_ is None else read_ddl(spec.schema_)
            # A key is one column, and a record's would be a struct.
            return f"{field}.schema" if found is None or (is_key and found.is_record) else None
        case _:
            return f"{field}.format"


def plan_arrow_part(spec: DecoderSpec) -> ArrowPart:
    """For what ``find_spark_part`` finds nothing in."""
    if spec.format is Decoder.JSON:
        found = read_ddl(spec.schema_ or "")
        if found is not None:
            return _Json(found)
    return _Texts() if spec.format is Decoder.STRING else _Bytes()


@dataclass(frozen=True, slots=True)
class _Bytes:
    columns: Sequence[tuple[str, str]] = (("value", "binary"),)
    can_fail: bool = False

    def decode(self, contents: pa.BinaryArray) -> tuple[list[pa.Array], pa.Array | None]:
        return [contents], None


@dataclass(frozen=True, slots=True)
class _Texts:
    columns: Sequence[tuple[str, str]] = (("value", "string"),)
    can_fail: bool = True

    def decode(self, contents: pa.BinaryArray) -> tuple[list[pa.Array], pa.Array | None]:
        try:
            return [contents.cast(pa.string())], None
        except pa.ArrowInvalid:
            good = pa.array(are_utf8(contents))
        reasons = pc.if_else(good, pa.scalar(None, pa.string()), NO_UTF8)
        return [pc.if_else(good, contents, None).cast(pa.string())], reasons


class _Json:
    """JSON: records with a column of each field, or values that are no records, which make one column."""

    can_fail = True

    def __init__(self, found: DdlColumns) -> None:
        self.columns: Sequence[tuple[str, str]] = found.columns
        schema = arrow_schema(found.columns)
        self._read = (
            ArrowJson(schema.names, schema.types).read if found.is_record else JsonValues(None, schema.types).read_all
        )

    def decode(self, contents: pa.BinaryArray) -> tuple[list[pa.Array], pa.Array | None]:
        if not contents.null_count:
            read = self._read(contents)
            return read.columns, read.reasons
        read = self._read(contents.drop_null())
        return _spread(read.columns, contents), None if read.reasons is None else _spread([read.reasons], contents)[0]


def _spread(columns: Sequence[pa.Array], contents: pa.BinaryArray) -> list[pa.Array]:
    """The columns of the contents that are not NULL, with a NULL in the place of each that is."""
    is_valid = np.asarray(contents.is_valid())
    order = pa.array(np.cumsum(is_valid) - 1, mask=~is_valid)
    return [column.take(order) for column in columns]


# Named as in Spark's own files.
_HEADERS_TYPE: Final = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
_FACTS: Final = ("topic", "partition", "offset", "timestamp", "timestamp_type")
_LETTER_TYPES: Final = MappingProxyType({
    **{name: KEPT_TYPES[f"kafka_{name}"] for name in _FACTS},
    "key": "binary",
    "value": "binary",
    "headers": KEPT_TYPES["kafka_headers"],
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
        return KEPT_TYPES[name]


def find_need_of_decoding(read: KafkaReadSpec, field: str) -> str | None:
    """The option below ``field`` by which only Spark decodes the records; None: ``ArrowDecoder`` does."""
    of_value = find_spark_part(read.value, f"{field}.value", is_key=False)
    if of_value is not None or "key" not in read.keep:
        return of_value
    return find_spark_part(read.key, f"{field}.key", is_key=True)


def _schema_of(columns: Iterable[tuple[str, str]]) -> pa.Schema:
    return pa.schema(
        [
            pa.field(name, _HEADERS_TYPE if each == KEPT_TYPES["kafka_headers"] else arrow_type(each))
            for name, each in columns
        ]
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
