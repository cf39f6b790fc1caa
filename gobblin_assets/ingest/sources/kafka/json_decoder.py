"""JSON to columns by Spark's ``from_json``, without what that loses: a record is exact, or a dead letter.

The rules, which ``DecoderSpec`` tells its users, are looked at in the order of their cost. What a record's text, or
what was read of it, can't show to be in order is read a second time; ``json_exactness`` says how.
"""

import secrets
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.ingest.sources.kafka.json_exactness import (
    count_keys,
    fits_exactly,
    has_half_pair,
    has_loose_colon,
    has_times,
    is_finite,
    keys_differ,
    mark_numbers,
    may_lose_digits,
    may_lose_text,
    names_are_plain,
    restore_texts,
    text_type,
    written_keys_max,
)
from gobblin_assets.ingest.sources.kafka.part_decoders import is_utf8

_VALUE: Final = "gobblin_value"
_END: Final = f"gobblin_end_{secrets.token_hex(16)}"
"""Nobody who writes records knows it: a text that closes our brackets can't go on as we do."""

_CORRUPT: Final = "gobblin_corrupt"
_READ: Final = "gobblin_read"
_SENT: Final = "gobblin_sent"
_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "enableDateTimeParsingFallback": "false",
}


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """``data_type`` is the schema's. Fields that it does not have are ignored.

    The text is read as the only element of an array, in an object of ours that has a second key: alone, Spark would
    stop at the end of the first value and ignore what follows. What is not UTF-8 is read with other characters in
    its place, and then refused: as a condition of the reading the same look at the bytes takes three times as long.
    """

    data_type: t.DataType

    @property
    def is_record(self) -> bool:
        return isinstance(self.data_type, t.StructType)

    def prepare(self, content: Column) -> Column:
        values = t.MapType(t.StringType(), t.ArrayType(self.data_type))
        schema = t.StructType([t.StructField(_VALUE, values), t.StructField(_CORRUPT, t.StringType())])
        inside = f.concat(f.lit(f'{{"{_VALUE}":{{"{_VALUE}":['), content.cast("string"), f.lit(f'],"{_END}":[]}}}}'))
        return f.from_json(inside, schema, _OPTIONS)

    def complete(self, content: Column, prepared: Column) -> Column | None:
        kept = text_type(self.data_type)
        if kept is None:
            return None
        text, value = content.cast("string"), _first(prepared)
        gates = [may_lose_digits(text, self.data_type), may_lose_text(text, value, self.data_type)]
        may_lose = reduce(or_, [f.coalesce(each, f.lit(True)) for each in gates if each is not None], f.lit(False))
        marked = f.when(may_lose, mark_numbers(text)).otherwise(text)
        inside = f.concat(f.lit(f'{{"{_VALUE}":['), marked, f.lit("]}"))
        schema = t.StructType([t.StructField(_VALUE, t.ArrayType(kept)), t.StructField(_CORRUPT, t.StringType())])
        is_read = self._is_read(prepared)
        needed = is_read if has_times(self.data_type) else is_read & may_lose
        sent = f.when(needed, f.from_json(inside, schema, _OPTIONS))
        return f.struct(prepared.alias(_READ), sent.alias(_SENT))

    def reason(self, content: Column, prepared: Column) -> Column:
        text = content.cast("string")
        read, sent = self._parts(prepared)
        valid = is_utf8(content)
        wrong: list[tuple[Column, str]] = [
            (~self._is_read(read), "it is not one JSON value whose fields fit the schema"),
            (self._has_rounded(read, sent), "a number or a time of it is not exact in its column, or beyond it"),
            (self._has_doubled(text, read), "it has a key twice, or one that differs from a column by case alone"),
            (has_half_pair(text), "it has half of a pair of surrogates"),
        ]
        reason = f.when(content.isNull(), None).when(~valid, "it is not UTF-8")
        for condition, said in wrong:
            reason = reason.when(condition, said)
        return reason

    def value(self, prepared: Column) -> Column:
        read, sent = self._parts(prepared)
        first = _first(read)
        if sent is None:
            return first
        restored = restore_texts(first, f.get(sent[_VALUE], f.lit(0)), self.data_type)
        return first if restored is first else f.when(sent.isNotNull(), restored).otherwise(first)

    def _parts(self, prepared: Column) -> tuple[Column, Column | None]:
        if text_type(self.data_type) is None:
            return prepared, None
        return prepared[_READ], prepared[_SENT]

    def _is_read(self, read: Column) -> Column:
        values = read[_VALUE]
        whole = f.map_keys(values) == f.array(f.lit(_VALUE), f.lit(_END))
        is_read = read[_CORRUPT].isNull() & whole & (f.size(f.map_values(values)[0]) == 1)
        if self.is_record:
            is_read = is_read & _first(read).isNotNull()
        return f.coalesce(is_read, f.lit(False))

    def _has_rounded(self, read: Column, sent: Column | None) -> Column:
        first = _first(read)
        exact = [is_finite(first, self.data_type)]
        if sent is not None:
            exact.append(fits_exactly(first, f.get(sent[_VALUE], f.lit(0)), self.data_type))
            exact.append(sent[_CORRUPT].isNull())
        return ~reduce(and_, [each for each in exact if each is not None], f.lit(True))

    def _has_doubled(self, text: Column, read: Column) -> Column:
        first = _first(read)
        in_maps = keys_differ(first, self.data_type)
        looked_at = (written_keys_max(text) != count_keys(first, self.data_type)) | has_loose_colon(text)
        doubled = looked_at & ~names_are_plain(text, self.data_type)
        return doubled if in_maps is None else doubled | ~in_maps


def _first(read: Column) -> Column:
    return f.get(f.map_values(read[_VALUE])[0], f.lit(0))
