"""How the bytes of a key or a value become columns: one decoder for each format, as expressions.

Each works in two steps. ``prepare`` decodes, once; ``reason`` and ``value`` look at what it gave. A reason is a
sentence without any of the record's content, NULL for a good record; NULL bytes are a good record.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.avro.functions import from_avro

from gobblin_assets.ingest.columns import find_raised
from gobblin_assets.ingest.sources.kafka.avro_schemas import END, END_FIELD, VALUE_FIELD
from gobblin_assets.ingest.sources.kafka.protobuf_messages import MessageType, decoder_of

FRAME_BYTES: Final = 5
"""Confluent's wire format: a zero, and the schema's id in four bytes, the highest first."""

_CORRUPT_FIELD: Final = "gobblin_corrupt"
_REST: Final = 2**31 - 1
_RAISED: Final = "kafka_schema_id"

_AVRO_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    # Dates before 1582 are what the producer wrote: no Spark of before 3.0 wrote them.
    "datetimeRebaseMode": "CORRECTED",
    # Members of a union are called after their types, so that a branch more does not rename the others.
    "enableStableIdentifiersForUnionType": "true",
}
_JSON_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT_FIELD,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


class PartDecoder(Protocol):
    @property
    def is_record(self) -> bool:
        """Whether ``value`` is a struct whose fields are to be columns."""
        ...

    def prepare(self, content: Column) -> Column: ...

    def reason(self, content: Column, prepared: Column) -> Column: ...

    def value(self, prepared: Column) -> Column: ...


@dataclass(frozen=True, slots=True)
class BytesDecoder:
    is_record: bool = False

    def prepare(self, content: Column) -> Column:
        return content

    def reason(self, content: Column, prepared: Column) -> Column:  # noqa: ARG002  any bytes are good
        return f.lit(None).cast("string")

    def value(self, prepared: Column) -> Column:
        return prepared


@dataclass(frozen=True, slots=True)
class StringDecoder:
    """UTF-8. Bytes that are not are never replaced by other characters."""

    is_record: bool = False

    def prepare(self, content: Column) -> Column:
        return content.cast("string")

    def reason(self, content: Column, prepared: Column) -> Column:  # noqa: ARG002  the bytes say it
        return f.when(~_is_utf8(content), f.lit("it is not UTF-8"))

    def value(self, prepared: Column) -> Column:
        return prepared


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """JSON by Spark's rules for ``data_type``, but never quietly less than what was sent.

    The text is read as the only element of an array inside an object of ours: alone, Spark would stop at the end
    of the first value and ignore what follows. Decimals are read as wide as they can be, and a number that the
    schema's scale would round is one that does not fit (not looked for inside of maps, which can't be compared).
    What is not UTF-8 is read with other characters in its place, and then refused: as a condition of the reading
    the same look at the bytes takes three times as long.
    """

    data_type: t.DataType
    wide_type: t.DataType

    @property
    def is_record(self) -> bool:
        return isinstance(self.data_type, t.StructType)

    def prepare(self, content: Column) -> Column:
        text = content.cast("string")
        whole = f.concat(f.lit(f'{{"{VALUE_FIELD}":['), text, f.lit(f'],"{END_FIELD}":true}}'))
        schema = t.StructType(
            [
                t.StructField(VALUE_FIELD, t.ArrayType(self.wide_type)),
                t.StructField(END_FIELD, t.BooleanType()),
                t.StructField(_CORRUPT_FIELD, t.StringType()),
            ]
        )
        return f.from_json(whole, schema, _JSON_OPTIONS)

    def reason(self, content: Column, prepared: Column) -> Column:
        values = prepared[VALUE_FIELD]
        read = prepared[END_FIELD] & prepared[_CORRUPT_FIELD].isNull() & (f.size(values) == 1)
        if self.is_record:
            read = read & f.get(values, f.lit(0)).isNotNull()
        fits = f.coalesce(read, f.lit(False)) & self._keeps_digits(values)
        is_utf8 = _is_utf8(content)
        return (
            f.when(content.isNull() | (fits & is_utf8), None)
            .when(~is_utf8, "it is not UTF-8")
            .otherwise("it is not one JSON value whose fields fit the schema")
        )

    def value(self, prepared: Column) -> Column:
        first = f.get(prepared[VALUE_FIELD], f.lit(0))
        return first if self.wide_type == self.data_type else first.try_cast(self.data_type)

    def _keeps_digits(self, values: Column) -> Column:
        first = f.get(values, f.lit(0))
        checks = [
            _at(first, path).try_cast(narrow).try_cast(wide).eqNullSafe(_at(first, path))
            for path, narrow, wide in _narrowed(self.data_type, self.wide_type)
        ]
        keeps = f.lit(True)
        for check in checks:
            keeps = keeps & check
        return keeps


@dataclass(frozen=True, slots=True, repr=False)
class AvroDecoder:
    """``reader`` and ``writers`` are schemas in their envelope, as ``avro_schemas.wrap`` makes it.

    ``subject`` None: bytes without framing, whose writer's schema is the only one of ``writers``. ``absent`` are
    ids that the registry does not have.
    """

    reader: str
    is_record: bool
    writers: Mapping[int, str]
    subject: str | None = None
    absent: frozenset[int] = field(default=frozenset())

    def prepare(self, content: Column) -> Column:
        options = {**_AVRO_OPTIONS, "avroSchema": self.reader}
        if self.subject is None:
            (writer,) = self.writers.values()
            return from_avro(f.concat(content, f.lit(END)), writer, options)
        frame = f.substring(content, 1, FRAME_BYTES)
        record = f.concat(f.substring(content, FRAME_BYTES + 1, _REST), f.lit(END))
        decoded: Column | None = None
        # The newest first: most records are by it, and each comparison before theirs costs them time.
        for schema_id, writer in reversed(list(self.writers.items())):
            of_writer = from_avro(record, writer, options)
            is_of = frame == f.lit(_frame_of(schema_id))
            decoded = f.when(is_of, of_writer) if decoded is None else decoded.when(is_of, of_writer)
        return cast("Column", decoded)

    def reason(self, content: Column, prepared: Column) -> Column:
        good = content.isNull() | f.coalesce(prepared[END_FIELD] == f.lit(END), f.lit(False))
        if self.subject is None:
            return f.when(~good, "it is not exactly one record of the Avro schema")
        frame = f.substring(content, 1, FRAME_BYTES)
        schema_id = schema_id_of(content)
        unknown = ~frame.isin(*(f.lit(_frame_of(each)) for each in (*self.writers, *sorted(self.absent))))
        reason = (
            f.when(good, None)
            .when(~is_framed(content), "it does not begin with a zero and a schema's id")
            # An expression that fails: whoever runs the write fetches the schema and tries again.
            .when(unknown, f.raise_error(f.concat(f.lit(f"[gobblin:{_RAISED}:"), schema_id, f.lit("]"))).cast("string"))
        )
        if self.absent:
            is_absent = frame.isin(*(f.lit(_frame_of(each)) for each in sorted(self.absent)))
            reason = reason.when(is_absent, f.concat(f.lit("the registry has no schema "), schema_id))
        said = f"is not exactly one record of it, or does not resolve to the reader's schema of {self.subject}"
        return reason.otherwise(f.concat(f.lit("it names Avro schema "), schema_id, f.lit(f", and {said}")))

    def value(self, prepared: Column) -> Column:
        return prepared[VALUE_FIELD]


@dataclass(frozen=True, slots=True, repr=False)
class ProtobufDecoder:
    message: MessageType
    is_framed: bool
    is_record: bool = True

    def prepare(self, content: Column) -> Column:
        gives = t.StructType([t.StructField(VALUE_FIELD, self.message.type), t.StructField(END_FIELD, t.BooleanType())])
        decode = f.udf(decoder_of(self.message), gives)
        if not self.is_framed:
            return decode(content)
        record: Column | None = None
        for framing in self.message.framings():
            rest = f.substring(content, FRAME_BYTES + 1 + len(framing), _REST)
            begins = self._begins(content, framing)
            record = f.when(begins, rest) if record is None else record.when(begins, rest)
        return decode(cast("Column", record))

    def reason(self, content: Column, prepared: Column) -> Column:
        name = self.message.name
        bad = f"it is no message of {name}"
        good = content.isNull() | f.coalesce(prepared[END_FIELD], f.lit(False))
        if not self.is_framed:
            return f.when(~good, bad)
        begins = f.lit(False)
        for framing in self.message.framings():
            begins = begins | self._begins(content, framing)
        return (
            f.when(good, None)
            .when(~is_framed(content), "it does not begin with a zero and a schema's id")
            .when(~begins, f"its message indexes are not those of {name} in the descriptor")
            .otherwise(bad)
        )

    def value(self, prepared: Column) -> Column:
        return prepared[VALUE_FIELD]

    def _begins(self, content: Column, framing: bytes) -> Column:
        return is_framed(content) & (f.substring(content, FRAME_BYTES + 1, len(framing)) == f.lit(framing))


def _is_utf8(content: Column) -> Column:
    return f.is_valid_utf8(content.cast("string"))


def is_framed(content: Column) -> Column:
    return (f.octet_length(content) >= FRAME_BYTES) & (f.substring(content, 1, 1) == f.lit(b"\0"))


def schema_id_of(content: Column) -> Column:
    """As text, from bytes that are framed."""
    return f.conv(f.hex(f.substring(content, 2, 4)), 16, 10)


def find_missing_schema(error: BaseException) -> int | None:
    """The schema id of a record that the plan did not know, if that is why a Spark action failed."""
    raised = find_raised(error)
    return int(raised[1]) if raised is not None and raised[0] == _RAISED else None


def widen(data_type: t.DataType) -> t.DataType:
    """With decimals of the most digits after the point that leave room for those before it."""
    match data_type:
        case t.DecimalType():
            return t.DecimalType(38, 38 - (data_type.precision - data_type.scale))
        case t.StructType():
            return t.StructType([t.StructField(each.name, widen(each.dataType)) for each in data_type.fields])
        case t.ArrayType():
            return t.ArrayType(widen(data_type.elementType))
        case _:
            return data_type


def _narrowed(narrow: t.DataType, wide: t.DataType) -> list[tuple[tuple[str, ...], t.DataType, t.DataType]]:
    """The places whose type was widened: paths through structs, down to arrays and decimals."""
    if narrow == wide:
        return []
    if isinstance(narrow, t.StructType) and isinstance(wide, t.StructType):
        return [
            ((inner.name, *path), low, high)
            for inner, outer in zip(narrow.fields, wide.fields, strict=True)
            for path, low, high in _narrowed(inner.dataType, outer.dataType)
        ]
    return [((), narrow, wide)]


def _at(column: Column, path: tuple[str, ...]) -> Column:
    for name in path:
        column = column.getField(name)
    return column


def _frame_of(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big")
