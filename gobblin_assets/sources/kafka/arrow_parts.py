"""Decoders of keys and values into Arrow's columns, one class for each format that needs no Spark."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from gobblin_assets.rows.arrow_types import arrow_schema
from gobblin_assets.sources.kafka.arrow_json import ArrowJson, are_utf8
from gobblin_assets.sources.kafka.ddl_columns import DdlColumns, read_ddl
from gobblin_assets.sources.kafka.json_reasons import NO_UTF8
from gobblin_assets.sources.kafka.json_values import JsonValues
from gobblin_assets.sources.kafka.kafka_spec import Decoder, DecoderSpec


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
            return _JsonRecords(found) if found.is_record else _JsonValues(found)
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


class _JsonRecords:
    can_fail = True

    def __init__(self, found: DdlColumns) -> None:
        self.columns: Sequence[tuple[str, str]] = found.columns
        schema = arrow_schema(found.columns)
        self._reader = ArrowJson(schema.names, schema.types)

    def decode(self, contents: pa.BinaryArray) -> tuple[list[pa.Array], pa.Array | None]:
        if not contents.null_count:
            read = self._reader.read(contents)
            return read.columns, read.reasons
        read = self._reader.read(contents.drop_null())
        return _spread(read.columns, contents), None if read.reasons is None else _spread([read.reasons], contents)[0]


class _JsonValues:
    """Values that are no records, which make one column."""

    can_fail = True

    def __init__(self, found: DdlColumns) -> None:
        self.columns: Sequence[tuple[str, str]] = found.columns
        self._values = JsonValues(None, arrow_schema(found.columns).types)

    def decode(self, contents: pa.BinaryArray) -> tuple[list[pa.Array], pa.Array | None]:
        read = self._values.read_all(contents.drop_null())
        return _spread(read.columns, contents), None if read.reasons is None else _spread([read.reasons], contents)[0]


def _spread(columns: Sequence[pa.Array], contents: pa.BinaryArray) -> list[pa.Array]:
    """The columns of the contents that are not NULL, with a NULL in the place of each that is."""
    is_valid = np.asarray(contents.is_valid())
    order = pa.array(np.cumsum(is_valid) - 1, mask=~is_valid)
    return [column.take(order) for column in columns]
