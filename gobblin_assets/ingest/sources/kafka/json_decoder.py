"""JSON to columns by Spark's ``from_json``, without what that loses: a record is exact, or a dead letter.

The rules, which ``DecoderSpec`` tells its users, are looked at in the order of their cost. What a record's text, or
what was read of it, can't show to be in order is read a second time; ``json_exactness`` says how.
"""

import secrets
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_, or_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.ingest.sources.kafka.json_exactness import (
    apart,
    count_keys,
    fits_exactly,
    has_half_pair,
    has_loose_colon,
    has_texts,
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
from gobblin_assets.ingest.sources.kafka.part_decoders import Steps, is_utf8

_VALUE: Final = "gobblin_value"
_END: Final = f"gobblin_end_{secrets.token_hex(16)}"
"""Nobody who writes records knows it: a text that closes our brackets can't go on as we do."""

_CORRUPT: Final = "gobblin_corrupt"
_READ: Final = "gobblin_read"
_SENT: Final = "gobblin_sent"
_GOOD: Final = "gobblin_good"
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

    def complete(self, content: Column) -> Steps:
        return (self._unwrap,) if text_type(self.data_type) is None else (self._unwrap, partial(self._reread, content))

    def reason(self, content: Column, prepared: Column) -> Column:
        text = content.cast("string")
        wrong: list[tuple[Column, str]] = [
            (~prepared[_GOOD], "it is not one JSON value whose fields fit the schema"),
            (self._has_rounded(prepared), "a number or a time of it is not exact in its column, or beyond it"),
            (self._has_doubled(text, prepared), "it has a key twice, or one that differs from a column by case alone"),
            (has_half_pair(text), "it has half of a pair of surrogates"),
        ]
        reason = f.when(content.isNull(), None).when(~is_utf8(content), "it is not UTF-8")
        for condition, said in wrong:
            reason = reason.when(condition, said)
        return reason

    def value(self, prepared: Column) -> Column:
        if not has_texts(self.data_type):
            return prepared[_READ]
        restored = apart(prepared, lambda each: restore_texts(each[_READ], each[_SENT], self.data_type))
        return f.when(prepared[_SENT].isNotNull(), restored).otherwise(prepared[_READ])

    def _unwrap(self, prepared: Column) -> Column:
        values = prepared[_VALUE]
        whole = f.map_keys(values) == f.array(f.lit(_VALUE), f.lit(_END))
        good = prepared[_CORRUPT].isNull() & whole & (f.size(f.map_values(values)[0]) == 1)
        first = f.get(f.map_values(values)[0], f.lit(0))
        if self.is_record:
            good = good & first.isNotNull()
        return f.struct(first.alias(_READ), f.coalesce(good, f.lit(False)).alias(_GOOD))

    def _reread(self, content: Column, prepared: Column) -> Column:
        text, value = content.cast("string"), prepared[_READ]
        gates = [may_lose_digits(text, self.data_type), may_lose_text(text, value, self.data_type)]
        may_lose = reduce(or_, [f.coalesce(each, f.lit(True)) for each in gates if each is not None], f.lit(False))
        is_needed, marked = may_lose, mark_numbers(text)
        if has_times(self.data_type):
            is_needed, marked = f.lit(True), f.when(may_lose, marked).otherwise(text)
        inside = f.concat(f.lit(f'{{"{_VALUE}":['), marked, f.lit("]}"))
        kept = t.ArrayType(text_type(self.data_type) or t.StringType())
        schema = t.StructType([t.StructField(_VALUE, kept), t.StructField(_CORRUPT, t.StringType())])
        found = f.from_json(inside, schema, _OPTIONS)
        sent = f.get(f.when(prepared[_GOOD] & is_needed, found)[_VALUE], f.lit(0))
        return f.struct(value.alias(_READ), prepared[_GOOD].alias(_GOOD), sent.alias(_SENT))

    def _has_rounded(self, prepared: Column) -> Column:
        exact = [is_finite(prepared[_READ], self.data_type)]
        if text_type(self.data_type) is not None:
            exact.append(fits_exactly(prepared[_READ], prepared[_SENT], self.data_type))
        return ~reduce(and_, [each for each in exact if each is not None], f.lit(True))

    def _has_doubled(self, text: Column, prepared: Column) -> Column:
        value = prepared[_READ]
        in_maps = keys_differ(value, self.data_type)
        looked_at = (written_keys_max(text) != count_keys(value, self.data_type)) | has_loose_colon(text)
        doubled = looked_at & ~names_are_plain(text, self.data_type)
        return doubled if in_maps is None else doubled | ~in_maps
