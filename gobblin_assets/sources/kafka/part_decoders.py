"""Decoders of the bytes of keys and values into columns: one for each format, as expressions.

Each works in steps. ``prepare`` decodes once. ``complete`` adds the results of a second look, where the first one asks
for it. ``reason`` and ``value`` use what both gave. A reason is a sentence without any of the record's content; it is
NULL for a good record. NULL bytes are a good record.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.avro.functions import from_avro

from gobblin_assets.rows.columns import find_raised
from gobblin_assets.sources.kafka.avro_schemas import END, END_FIELD, VALUE_FIELD
from gobblin_assets.sources.kafka.json_values import NO_UTF8
from gobblin_assets.sources.kafka.protobuf_messages import MessageType, decoder_of

FRAME_BYTES: Final = 5
"""Confluent's wire format: a zero, and the schema's id in four bytes, the highest first."""

_REST: Final = 2**31 - 1
_RAISED: Final = "kafka_schema_id"

_AVRO_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    # Dates before 1582 are what the producer wrote: no Spark older than 3.0 wrote them.
    "datetimeRebaseMode": "CORRECTED",
    # Members of a union are named after their types, so that one more branch does not rename the others.
    "enableStableIdentifiersForUnionType": "true",
}


Steps = Sequence[Callable[[Column], Column]]


class PartDecoder(Protocol):
    @property
    def is_record(self) -> bool:
        """Whether ``value`` is a struct whose fields are to be columns."""
        ...

    def prepare(self, content: Column) -> Column: ...

    def complete(self, content: Column) -> Steps:
        """Steps after ``prepare``. Each takes the result of the one before, and is evaluated once."""
        ...

    def reason(self, content: Column, prepared: Column) -> Column: ...

    def value(self, prepared: Column) -> Column: ...


class _OneLook:
    """The decoders of one step."""

    __slots__ = ()

    def complete(self, content: Column) -> Steps:  # noqa: ARG002  once is enough
        return ()


@dataclass(frozen=True, slots=True)
class BytesDecoder(_OneLook):
    is_record: bool = False

    def prepare(self, content: Column) -> Column:
        return content

    def reason(self, content: Column, prepared: Column) -> Column:  # noqa: ARG002  any bytes are good
        return f.lit(None).cast("string")

    def value(self, prepared: Column) -> Column:
        return prepared


@dataclass(frozen=True, slots=True)
class StringDecoder(_OneLook):
    """A decoder of texts in UTF-8. Bytes that are not UTF-8 are never replaced by other characters."""

    is_record: bool = False

    def prepare(self, content: Column) -> Column:
        return content.cast("string")

    def reason(self, content: Column, prepared: Column) -> Column:  # noqa: ARG002  the bytes say it
        return f.when(~is_utf8(content), f.lit(NO_UTF8))

    def value(self, prepared: Column) -> Column:
        return prepared


@dataclass(frozen=True, slots=True, repr=False)
class AvroDecoder(_OneLook):
    """A decoder of Avro by one schema to read with, and those by which records were written.

    ``reader`` and ``writers`` are schemas in their envelope, as ``avro_schemas.wrap`` makes it.

    ``subject`` None: bytes without framing, written by the only schema of ``writers``. ``absent`` are ids that the
    registry does not have.
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
        # The newest first: most records are written by it, and each comparison before it costs them time.
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
            # An expression that fails: the process that runs the write fetches the schema and tries again.
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
class ProtobufDecoder(_OneLook):
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


def is_utf8(content: Column) -> Column:
    return f.is_valid_utf8(content.cast("string"))


def is_framed(content: Column) -> Column:
    return (f.octet_length(content) >= FRAME_BYTES) & (f.substring(content, 1, 1) == f.lit(b"\0"))


def schema_id_of(content: Column) -> Column:
    """The id as text, from framed bytes."""
    return f.conv(f.hex(f.substring(content, 2, 4)), 16, 10)


def find_missing_schema(error: BaseException) -> int | None:
    """The id of a schema that the plan did not know, if a record by it made a Spark action fail."""
    raised = find_raised(error)
    return int(raised[1]) if raised is not None and raised[0] == _RAISED else None


def _frame_of(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big")
