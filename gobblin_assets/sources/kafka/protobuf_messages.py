"""Protobuf messages by descriptor: their Spark type, and the function that decodes one, which runs in Python workers.

Spark's own from_protobuf needs a connector that some repositories don't have; this module needs google.protobuf on the
workers. Types:

    int32, sint32, sfixed32    int            double, float, bool    the same
    int64, sint64, sfixed64    bigint         string, bytes          string, binary
    uint32, fixed32            bigint         enum                   its name; the digits of an unknown number
    uint64, fixed64            decimal(20,0)  repeated, map          array, map
    google.protobuf.Timestamp  timestamp, cut to microseconds
    wrappers (StringValue, …)  what they wrap, or NULL
    other messages             struct, or NULL where absent

A field without presence (proto3 without ``optional``) that was not sent has its default, as in Protobuf.
"""

import datetime as dt
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from pyspark.sql import types as t

from gobblin_assets.errors import RejectedError
from gobblin_assets.rows.column_names import show

DEPTH_MAX: Final = 50

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_SCALARS: Final[Mapping[int, t.DataType]] = {
    FieldDescriptor.CPPTYPE_INT32: t.IntegerType(),
    FieldDescriptor.CPPTYPE_INT64: t.LongType(),
    FieldDescriptor.CPPTYPE_UINT32: t.LongType(),
    FieldDescriptor.CPPTYPE_UINT64: t.DecimalType(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: t.DoubleType(),
    FieldDescriptor.CPPTYPE_FLOAT: t.FloatType(),
    FieldDescriptor.CPPTYPE_BOOL: t.BooleanType(),
    FieldDescriptor.CPPTYPE_ENUM: t.StringType(),
}


@dataclass(frozen=True, slots=True)
class MessageType:
    """One message of a descriptor set. ``indexes`` say where it stands in its file, as Confluent's framing does."""

    descriptor_set: bytes
    name: str
    indexes: tuple[int, ...]
    type: t.StructType

    def framings(self) -> tuple[bytes, ...]:
        """The bytes that may stand between the schema's id and a message of this type."""
        written = b"".join(_zigzag(number) for number in (len(self.indexes), *self.indexes))
        return (written, b"\0") if self.indexes == (0,) else (written,)


def parse_message_type(descriptor_set: bytes, name: str, *, field: str) -> MessageType:
    """RejectedError for bytes that are no descriptor set, one that lacks an import, or an unknown message."""
    found = descriptor_pb2.FileDescriptorSet()
    try:
        found.ParseFromString(descriptor_set)
        files = {file.name: file for file in found.file}
    except DecodeError:
        files = {}
    if not files:
        raise RejectedError(
            "expected a descriptor set, found something else",
            field=f"{field}.descriptor_file",
            hint="Write it by protoc --include_imports --descriptor_set_out=FILE.",
        )
    missing = sorted({each for file in files.values() for each in file.dependency if each not in files})
    if missing:
        raise RejectedError(
            f"the descriptor set lacks {show(missing)}, which its files import",
            field=f"{field}.descriptor_file",
            hint="Write it again by protoc --include_imports.",
        )
    try:
        descriptor = _find_descriptor(found, name)
    except TypeError as error:
        raise RejectedError(
            f"the descriptor set contradicts itself: {str(error).splitlines()[0]}",
            field=f"{field}.descriptor_file",
            hint="Write it again by protoc --include_imports.",
        ) from error
    if descriptor is None:
        known = [full for file in found.file for full in _list_messages(file)]
        close = difflib.get_close_matches(name, known, n=1)
        guess = f"Did you mean {close[0]!r}? " if close else ""
        raise RejectedError(
            f"the descriptor set has no message {name!r}",
            field=f"{field}.message",
            hint=f"{guess}It has {show(known)}.",
        )
    return MessageType(descriptor_set, name, _indexes_of(descriptor), _struct_of(descriptor, (), field))


def decoder_of(message_type: MessageType) -> Callable[[bytes | None], tuple[Any, bool] | None]:
    """Bytes → (the message as nested tuples, whether it could be decoded). None gives None."""
    descriptor_set, name = message_type.descriptor_set, message_type.name

    def decode(content: bytes | None) -> tuple[Any, bool] | None:
        if content is None:
            return None
        message = _message_class(descriptor_set, name)()
        try:
            message.ParseFromString(bytes(content))
            return _tuple_of(message), True
        except (DecodeError, ValueError, OverflowError):
            return None, False

    return decode


@lru_cache(maxsize=100)
def _message_class(descriptor_set: bytes, name: str) -> type[Message]:
    """Made once in each worker, since a class of messages can't be sent to a worker."""
    descriptor = _find_descriptor(descriptor_pb2.FileDescriptorSet.FromString(descriptor_set), name)
    if descriptor is None:
        raise KeyError(name)
    made: type[Message] = message_factory.GetMessageClass(descriptor)
    return made


def _find_descriptor(found: descriptor_pb2.FileDescriptorSet, name: str) -> Descriptor | None:
    pool = descriptor_pool.DescriptorPool()
    files = {file.name: file for file in found.file}
    added: set[str] = set()

    def add(file_name: str) -> None:
        if file_name not in added:
            added.add(file_name)
            for needed in files[file_name].dependency:
                add(needed)
            pool.AddSerializedFile(files[file_name].SerializeToString())

    for file_name in files:
        add(file_name)
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        return None


def _list_messages(file: descriptor_pb2.FileDescriptorProto) -> list[str]:
    names: list[str] = []
    left = [(file.package, each) for each in file.message_type]
    while left:
        prefix, message = left.pop(0)
        full = f"{prefix}.{message.name}" if prefix else message.name
        names.append(full)
        left += [(full, each) for each in message.nested_type if not each.options.map_entry]
    return names


def _indexes_of(descriptor: Descriptor) -> tuple[int, ...]:
    outer = descriptor.containing_type
    if outer is None:
        return (list(descriptor.file.message_types_by_name).index(descriptor.name),)
    return (*_indexes_of(outer), [each.name for each in outer.nested_types].index(descriptor.name))


def _zigzag(number: int) -> bytes:
    left, written = number << 1, bytearray()
    while left > 0x7F:
        written.append(left & 0x7F | 0x80)
        left >>= 7
    written.append(left)
    return bytes(written)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _struct_of(descriptor: Descriptor, above: tuple[str, ...], field: str) -> t.StructType:
    if descriptor.full_name in above or len(above) > DEPTH_MAX:
        raise RejectedError(
            f"the message {descriptor.full_name!r} holds itself ({' → '.join((*above, descriptor.full_name))}), and no "
            "Spark type does",
            field=f"{field}.message",
            hint="Read the topic with format: bytes, or a message without that field.",
        )
    inside = (*above, descriptor.full_name)
    return t.StructType([t.StructField(each.name, _type_of(each, inside, field)) for each in descriptor.fields])


def _type_of(each: FieldDescriptor, above: tuple[str, ...], field: str) -> t.DataType:
    if _is_map(each):
        entry = each.message_type.fields_by_name
        return t.MapType(_single_type(entry["key"], above, field), _single_type(entry["value"], above, field))
    single = _single_type(each, above, field)
    return t.ArrayType(single) if each.is_repeated else single


def _single_type(each: FieldDescriptor, above: tuple[str, ...], field: str) -> t.DataType:
    if each.message_type is None:
        if each.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return t.BinaryType() if each.type == FieldDescriptor.TYPE_BYTES else t.StringType()
        return _SCALARS[each.cpp_type]
    if each.message_type.full_name == _TIMESTAMP:
        return t.TimestampType()
    if each.message_type.full_name in _WRAPPERS:
        return _single_type(each.message_type.fields_by_name["value"], above, field)
    return _struct_of(each.message_type, above, field)


def _tuple_of(message: Message) -> tuple[Any, ...]:
    known = message.DESCRIPTOR.fields_by_number
    if any(unknown.field_number in known for unknown in UnknownFieldSet(message)):
        # Protobuf sets aside a field whose number is known and whose wire type is not, as if it had not been sent.
        raise DecodeError("a field of another type")
    return tuple(_value_of(message, field) for field in message.DESCRIPTOR.fields)


def _value_of(message: Message, field: FieldDescriptor) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if _is_map(field):
        value_field = field.message_type.fields_by_name["value"]
        return {key: _single_value(value[key], value_field) for key in value}
    if field.is_repeated:
        return [_single_value(each, field) for each in value]
    return _single_value(value, field)


def _single_value(value: Any, field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return value.ToDatetime(tzinfo=dt.UTC)
        if name in _WRAPPERS:
            return _single_value(value.value, field.message_type.fields_by_name["value"])
        return _tuple_of(value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
        return Decimal(value)
    return value
