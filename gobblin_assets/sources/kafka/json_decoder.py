"""JSON to columns by Spark's ``from_json``, without its losses: a record is exact, or a dead letter.

``DecoderSpec`` states the rules for users; they are checked in the order of their cost. Values are read again only
where neither the record's text nor its values show that nothing was lost; ``json_exactness`` says how.
Spark interprets the checks that few records need. These checks have a step of their own, so that the code of all other
steps is compiled as a whole.
"""

import secrets
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.sources.kafka.json_exactness import (
    apart,
    count_keys,
    fits_bytes,
    fits_exactly,
    has_bare_word,
    has_floats,
    has_half_pair,
    has_more_keys,
    has_texts,
    is_finite,
    is_flat,
    keys_are_plain,
    keys_differ,
    mark_numbers,
    may_lose_digits,
    may_lose_text,
    may_lose_time,
    names_are_plain,
    read_type,
    restore_texts,
    text_type,
)
from gobblin_assets.sources.kafka.json_values import DOUBLED, HALF_PAIR, MISFIT, NO_UTF8, ROUNDED
from gobblin_assets.sources.kafka.part_decoders import Steps, is_utf8

_VALUE: Final = "gobblin_value"
_END: Final = f"gobblin_end_{secrets.token_hex(16)}"
"""Unknown to those who write records, so that no record can close our brackets and go on as we do."""

_CORRUPT: Final = f"gobblin_corrupt_{secrets.token_hex(16)}"
_READ: Final = "gobblin_read"
_GOOD: Final = "gobblin_good"
_COUNT: Final = "gobblin_count"
_DOUBTED: Final = "gobblin_doubted"
_KEYS: Final = "gobblin_keys"
_TO_MARK: Final = "gobblin_to_mark"
_TO_REREAD: Final = "gobblin_to_reread"
_COMPARED: Final = "gobblin_compared"
_ROUNDED: Final = "gobblin_rounded"
_DOUBLED: Final = "gobblin_doubled"
_HALF: Final = "gobblin_half"
_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "enableDateTimeParsingFallback": "false",
}
_LAST_KEY: Final = f',"{_END}":true}}'
_SPACED_END: Final = r"\}[ \t\r\n]++\z"
_EMPTY: Final = r"\A[ \t\r\n]*+\{[ \t\r\n]*+\}[ \t\r\n]*+\z"


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """A decoder of JSON by one of Spark's expressions.

    ``data_type`` is the schema's. Fields that it does not have are ignored.

    Alone, Spark would stop at the end of the first value and ignore the text behind it. So a key of ours is put before
    the record's last brace: an object that has this key is the first value, and ends where the text ends. A value that
    is not a record is read as the only element of an array, in an object of ours with a second key: this takes a third
    longer. Bytes that are not UTF-8 are read as replacement characters and refused afterwards: as a condition of the
    reading, the same check takes three times as long.
    """

    data_type: t.DataType

    @property
    def is_record(self) -> bool:
        return isinstance(self.data_type, t.StructType)

    def prepare(self, content: Column) -> Column:
        text, corrupt = content.cast("string"), t.StructField(_CORRUPT, t.StringType())
        if isinstance(self.data_type, t.StructType):
            before = f.substring(content, f.lit(1), f.octet_length(content) - 1).cast("string")
            spaced = f.regexp_replace(text, _SPACED_END, _LAST_KEY)
            inside = f.when(text.endswith("}"), f.concat(before, f.lit(_LAST_KEY))).otherwise(spaced)
            fields = [t.StructField(each.name, read_type(each.dataType)) for each in self.data_type.fields]
            schema = t.StructType([*fields, t.StructField(_END, t.BooleanType()), corrupt])
        else:
            values = t.MapType(t.StringType(), t.ArrayType(read_type(self.data_type)))
            schema = t.StructType([t.StructField(_VALUE, values), corrupt])
            inside = f.concat(f.lit(f'{{"{_VALUE}":{{"{_VALUE}":['), text, f.lit(f'],"{_END}":[]}}}}'))
        return f.from_json(inside, schema, self._options)

    @property
    def _options(self) -> dict[str, str]:
        # Words for numbers that JSON lacks are read only where a column takes them.
        return {**_OPTIONS, "allowNonNumericNumbers": "true" if has_floats(self.data_type) else "false"}

    def complete(self, content: Column) -> Steps:
        steps = self._unwrap, self._doubt, *([self._list] if is_flat(self.data_type) else []), self._mend
        return [partial(step, content) for step in steps]

    def reason(self, content: Column, prepared: Column) -> Column:
        rounded = f.lit(False)
        if text_type(self.data_type) is not None:
            rounded = f.coalesce(prepared[_COMPARED][_ROUNDED], rounded)
        wrong: list[tuple[Column, str]] = [
            (~prepared[_GOOD], MISFIT),
            (rounded, ROUNDED),
            (prepared[_DOUBLED], DOUBLED),
            (prepared[_HALF], HALF_PAIR),
        ]
        reason = f.when(content.isNull(), None).when(~is_utf8(content), NO_UTF8)
        for condition, said in wrong:
            reason = reason.when(condition, said)
        return reason

    def value(self, prepared: Column) -> Column:
        if not has_texts(self.data_type):
            return prepared[_READ]
        compared = prepared[_COMPARED]
        return f.when(compared.isNotNull(), compared[_READ]).otherwise(prepared[_READ])

    def _unwrap(self, content: Column, prepared: Column) -> Column:
        if isinstance(self.data_type, t.StructType):
            first = f.struct(*(prepared.getField(name).alias(name) for name in self.data_type.names))
            count = count_keys(prepared, self.data_type)
            is_empty = f.when(prepared[_END].isNull(), content.cast("string").rlike(_EMPTY))
            good = (prepared[_CORRUPT].isNull() & prepared[_END]) | is_empty
        else:
            values = prepared[_VALUE]
            whole = f.map_keys(values) == f.array(f.lit(_VALUE), f.lit(_END))
            first = f.get(f.map_values(values)[0], f.lit(0))
            count = count_keys(first, self.data_type)
            good = prepared[_CORRUPT].isNull() & whole & (f.size(f.map_values(values)[0]) == 1)
        if has_floats(self.data_type):
            good = good & ~has_bare_word(content.cast("string"))
        fits = fits_bytes(first, self.data_type)
        if fits is not None:
            good = good & fits
            first = f.when(fits, first.cast(self.data_type))
        return f.struct(first.alias(_READ), f.coalesce(good, f.lit(False)).alias(_GOOD), count.alias(_COUNT))

    def _doubt(self, content: Column, prepared: Column) -> Column:
        """Which records need a second look, by their text and value: to list their keys, or to read values again."""
        text, value, good = content.cast("string"), prepared[_READ], prepared[_GOOD]
        finite = is_finite(value, self.data_type)
        gates = {
            _DOUBTED: has_more_keys(text, prepared[_COUNT]),
            _TO_MARK: _any(
                may_lose_digits(text, self.data_type),
                may_lose_text(text, value, self.data_type),
                None if finite is None else ~finite,
            ),
            _TO_REREAD: _any(may_lose_time(text, self.data_type)),
        }
        return f.struct(
            value.alias(_READ), good.alias(_GOOD), *((good & gate).alias(name) for name, gate in gates.items())
        )

    def _list(self, content: Column, prepared: Column) -> Column:
        """Add the keys of a doubted flat record. The keys of other records are listed in ``_mend``, by object."""
        keys = f.when(prepared[_DOUBTED], f.json_object_keys(content.cast("string")))
        kept = (_READ, _GOOD, _DOUBTED, _TO_MARK, _TO_REREAD)
        return f.struct(*(prepared[name].alias(name) for name in kept), keys.alias(_KEYS))

    def _mend(self, content: Column, prepared: Column) -> Column:
        """The faults that were found, and the value with its texts restored where they differ from what was sent."""
        text, value = content.cast("string"), prepared[_READ]
        differ = keys_differ(value, self.data_type)
        if isinstance(self.data_type, t.StructType) and is_flat(self.data_type):
            plain = keys_are_plain(prepared[_KEYS], self.data_type.names)
        else:
            plain = names_are_plain(text, self.data_type)
        doubled = prepared[_DOUBTED] & ~plain
        found = [
            value.alias(_READ),
            prepared[_GOOD].alias(_GOOD),
            has_half_pair(text).alias(_HALF),
            (doubled if differ is None else doubled | ~differ).alias(_DOUBLED),
        ]
        kept = text_type(self.data_type)
        if kept is not None:
            compared = apart(self._reread(text, prepared, kept), partial(self._compare, value))
            found.append(f.when(prepared[_TO_MARK] | prepared[_TO_REREAD], compared).alias(_COMPARED))
        return f.struct(*found)

    def _reread(self, text: Column, prepared: Column, kept: t.DataType) -> Column:
        marked = f.when(prepared[_TO_MARK], mark_numbers(text)).otherwise(text)
        inside = f.concat(f.lit(f'{{"{_VALUE}":['), marked, f.lit("]}"))
        schema = t.StructType([t.StructField(_VALUE, t.ArrayType(kept)), t.StructField(_CORRUPT, t.StringType())])
        return f.get(f.from_json(inside, schema, self._options)[_VALUE], f.lit(0))

    def _compare(self, value: Column, sent: Column) -> Column:
        fits, is_unread = fits_exactly(value, sent, self.data_type), sent.isNull() & value.isNotNull()
        rounded = is_unread if fits is None else is_unread | ~fits
        if not has_texts(self.data_type):
            return f.struct(rounded.alias(_ROUNDED))
        # Spark fails the whole read if it makes a map in which a key comes twice.
        differ = keys_differ(value, self.data_type)
        restored = restore_texts(value, sent, self.data_type)
        restored = restored if differ is None else f.when(differ, restored)
        return f.struct(rounded.alias(_ROUNDED), restored.alias(_READ))


def _any(*gates: Column | None) -> Column:
    """Whether a gate is true or NULL. NULL: the gate does not know."""
    return reduce(or_, (f.coalesce(gate, f.lit(True)) for gate in gates if gate is not None), f.lit(False))
