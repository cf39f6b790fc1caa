"""JSON records to columns by Arrow's own reader, as exact as ``JsonValues``, which reads the few records that are left.

Arrow's reader takes a batch's records as one text. It is given a record only where the text shows that both agree, and
its result is looked at again:

    one row each     a record begins and ends with a brace, and behind a brace that closes no value begins. So no record
                     holds two values, and none ends inside of another's. This also keeps away a bare ``null``, at which
                     Arrow's reader ends the process.
    what JSON is     Arrow takes NaN and Infinity, but no texts of these, and knows no limits of depth and length.
    names            At first, no field may be unknown. Once one is, such fields are ignored from then on, and records
                     whose keys are escaped, or may differ from a column's by case alone, are left to ``JsonValues``.
    numbers          Arrow refuses what it would have to round, except in floating-point numbers; for these and for
                     decimals, the results are looked at. A decimal is read with 256 bits: with 128, a number of up to
                     38 digits of its own that the column's scale makes too long becomes another number, in silence.
                     Where a column is a decimal, numbers of many places behind the point or of large exponents are left
                     to ``JsonValues``: Arrow looks up powers of ten beyond the end of its table, which can end the
                     process.
    times            are read as texts or as whole seconds, and converted where they have the usual form.

If the reader fails, it names the record, or half of the records are read again. Each failure costs as much as many
records of ``JsonValues``. So there is a bound for failures, and ``JsonValues`` alone reads the batches after one with
more.

A column may be read in one of several types, by what its records hold: a time as text or as whole seconds, a decimal as
number or as text. ``finish_column`` turns each into the column's type, and finds what may not be exact.
"""

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc
from pyarrow import json as arrow_json

from gobblin_assets.sources.kafka.json_times import MICROS_PER_SECOND, SECONDS_MAX
from gobblin_assets.sources.kafka.json_values import (
    DEPTH_MAX,
    NAME_LENGTH_MAX,
    NUMBER_DIGITS_MAX,
    JsonColumns,
    JsonValues,
)

Rows = np.ndarray[Any, np.dtype[np.bool_]]
"""Whether each row is meant."""

_DIGITS_MAX: Final = 38

# Days that there are in every year, and the last of February in leap years but those that end a century.
_YEAR: Final = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_DAY: Final = (
    f"(?:{_YEAR}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    "|[1-9][0-9](?:0[48]|[2468][048]|[13579][26])-02-29)"
)
_CLOCK: Final = "[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{1,6})?"
_DATE: Final = f"^{_DAY}$"
_LOCAL: Final = f"^{_DAY}{_CLOCK}$"
_INSTANT: Final = f"^{_DAY}{_CLOCK}(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])?$"
_ZONE: Final = "(?:Z|[+-][0-9]{2}:[0-9]{2})$"


def reading_types(data_type: pa.DataType) -> list[pa.DataType]:
    """The types in which a column can be read, the likeliest first."""
    if pa.types.is_list(data_type):
        return [pa.list_(data_type.value_field.with_type(each)) for each in reading_types(data_type.value_type)]
    if pa.types.is_timestamp(data_type):
        return [pa.string()] if data_type.tz is None else [pa.string(), pa.int64()]
    if pa.types.is_date(data_type):
        return [pa.string()]
    if pa.types.is_decimal(data_type):
        return [_wide_decimal(data_type.scale), pa.string()]
    return [data_type]


def finish_column(read: pa.Array, data_type: pa.DataType) -> tuple[pa.Array, Rows | None]:
    """The column, and the rows that have to be read in another way, if there are any."""
    if pa.types.is_list(data_type):
        return _finish_list(read, data_type)
    if pa.types.is_floating(data_type):
        return read, _odd_floats(read)
    if pa.types.is_decimal(data_type):
        return _finish_decimal(read, data_type)
    if pa.types.is_date(data_type):
        return _finish_text(read, _DATE, data_type)
    if pa.types.is_timestamp(data_type):
        if data_type.tz is None:
            return _finish_text(read, _LOCAL, data_type)
        return _finish_instant(read, data_type)
    return read, None


def _finish_list(read: pa.ListArray, data_type: pa.DataType) -> tuple[pa.Array, Rows | None]:
    elements, odd = finish_column(read.values, data_type.value_type)
    mask = read.is_null() if read.null_count else None
    made = pa.ListArray.from_arrays(read.offsets, elements, type=data_type, mask=mask)
    if odd is None:
        return made, None
    rows = np.zeros(len(read), dtype=np.bool_)
    rows[pc.list_parent_indices(read).to_numpy()[odd]] = True
    return made, rows


def _odd_floats(read: pa.Array) -> Rows | None:
    """Not finite, or zero with a sign: a whole number -0 has none."""
    numbers = np.asarray(read.fill_null(0.0))
    return _some(~np.isfinite(numbers) | ((numbers == 0) & np.signbit(numbers)))


def _finish_decimal(read: pa.Array, data_type: pa.DataType) -> tuple[pa.Array, Rows | None]:
    precision, scale = data_type.precision, data_type.scale
    read_type = _wide_decimal(scale)
    of_texts: Rows | None = None
    if pa.types.is_string(read.type):
        digits = f"[0-9]{{1,{_DIGITS_MAX - scale}}}"
        read, of_texts = _finish_text(
            read, f"^-?{digits}(?:[.][0-9]{{1,{scale}}})?$" if scale else f"^-?{digits}$", read_type
        )
    # Arrow's reader looks at a number's own digits alone, not at those that the scale adds.
    limit = Decimal((0, (9,) * precision, -scale))
    beyond = _some(np.asarray(pc.greater(pc.abs(read), pa.scalar(limit, read_type)).fill_null(fill_value=False)))
    kept = read if beyond is None else pc.if_else(pa.array(beyond), None, read)
    return kept.cast(data_type), _either(of_texts, beyond)


def _wide_decimal(scale: int) -> pa.Decimal256Type:
    """For numbers of at most 38 digits of their own, which have at most 76 with those that the scale adds."""
    return pa.decimal256(_DIGITS_MAX, scale)


def _has_decimals(data_type: pa.DataType) -> bool:
    return _has_decimals(data_type.value_type) if pa.types.is_list(data_type) else pa.types.is_decimal(data_type)


def _finish_text(read: pa.Array, usual: str, data_type: pa.DataType) -> tuple[pa.Array, Rows | None]:
    fits = pc.match_substring_regex(read, usual)
    odd = _some(~np.asarray(fits.fill_null(fill_value=True)))
    kept = read if odd is None else pc.if_else(fits, read, None)
    return kept.cast(data_type), odd


def _finish_instant(read: pa.Array, data_type: pa.DataType) -> tuple[pa.Array, Rows | None]:
    if pa.types.is_int64(read.type):
        beyond = _some(np.abs(np.asarray(read.fill_null(0))) > SECONDS_MAX)
        kept = read if beyond is None else pc.if_else(pa.array(beyond), None, read)
        return pc.multiply(kept, MICROS_PER_SECOND).cast(data_type), beyond
    fits = pc.match_substring_regex(read, _INSTANT)
    odd = _some(~np.asarray(fits.fill_null(fill_value=True)))
    kept = read if odd is None else pc.if_else(fits, read, None)
    zoned = pc.match_substring_regex(kept, _ZONE)
    if pc.any(zoned).as_py() is not True:
        return kept.cast(pa.timestamp("us")).cast(data_type), odd
    if pc.all(zoned).as_py() is not True:
        kept = pc.if_else(zoned, kept, pc.binary_join_element_wise(kept, "Z", ""))
    return kept.cast(data_type), odd


def _some(rows: Rows) -> Rows | None:
    return rows if rows.any() else None


def _either(one: Rows | None, other: Rows | None) -> Rows | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other


_RECORDS_MIN: Final = 8
"""Fewer records are not read by Arrow again after a failure."""

_FAILURES_MIN: Final = 16
_RECORDS_PER_FAILURE: Final = 64
_UNNAMED_COST: Final = 8
"""A failure that names no record counts as so many: the search for the record has more of them."""


_BATCHES_AFTER_FAILURES: Final = 16

_SPACE: Final = " \t\r\n"
_BEGIN, _END = ord("{"), ord("}")
_BEHIND_END: Final = np.frombuffer(b",}]", dtype=np.uint8)
_VALUE_BEHIND_END: Final = r"\}[ \t\r\n]*[^,}\] \t\r\n]"
_OTHER_NUMBERS: Final = "NaN|I(?:nf|NF)"
_HALF_PAIR: Final = r"\\u[dD][89a-fA-F]"
# A number has up to three rows of digits.
_LONG_NUMBER: Final = f"[0-9]{{{NUMBER_DIGITS_MAX // 3}}}"
# More than 38 places behind the point, or an exponent from 30: beyond both, Arrow's tables of 76 powers of ten may end.
_FAR_NUMBER: Final = r"[.][0-9]{39}|[0-9.][eE][+-]?0*(?:[3-9][0-9]|[1-9][0-9]{2})"
_FAR_BYTES: Final = re.compile(_FAR_NUMBER.encode("ascii"))
_ESCAPED_NAME: Final = r'\\.[^"\\]*"[ \t\r\n]*:'
_PLAIN_NAME: Final = re.compile(r'[^"\\:\x00-\x1f\x7f-\U0010ffff]+')
_BAD_ROW: Final = re.compile(r" in row ([0-9]+)$")
_OTHER_KIND: Final = re.compile(r"Column\(/(.*)\) changed from \w+ to \w+ in row 0$", re.DOTALL)
_UNEXPECTED: Final = "unexpected field"

_Numbers = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]


class ArrowJson:
    """A reader of JSON by Arrow, made once for a schema of a record.

    Not for several threads: it remembers what it met in a topic's records.
    """

    def __init__(self, names: Sequence[str], types: Sequence[pa.DataType]) -> None:
        self._names = list(names)
        self._types = list(types)
        self._values = JsonValues(names, types)
        # For each column: the types in which it may be read, the one of the last records first.
        self._reading = [reading_types(each) for each in types]
        self._batches_to_skip = 0
        self._ignores = False
        self._has_decimals = any(map(_has_decimals, types))
        self._can_ignore = all(_PLAIN_NAME.fullmatch(name) for name in names)
        self._exact_key = _key_regex([_exactly(name) for name in names])
        self._alike_key = _key_regex([_alike(name) for name in names])

    def read(self, contents: pa.BinaryArray) -> JsonColumns:
        """``contents`` has no NULL."""
        if self._batches_to_skip:
            self._batches_to_skip -= 1
            return self._values.read_all(contents)
        fast, positions = self._read_fast(contents)
        if len(positions) == len(contents):
            return JsonColumns(fast, None)
        left = np.setdiff1d(np.arange(len(contents)), positions, assume_unique=True)
        slow = self._values.read_all(contents.take(pa.array(left)))
        order = pa.array(np.argsort(np.concatenate([positions, left]), kind="stable"))
        columns = [pa.concat_arrays(both).take(order) for both in zip(fast, slow.columns, strict=True)]
        if slow.reasons is None:
            return JsonColumns(columns, None)
        reasons = pa.concat_arrays([pa.nulls(len(positions), pa.string()), slow.reasons])
        return JsonColumns(columns, reasons.take(order))

    def _read_fast(self, contents: pa.BinaryArray) -> tuple[list[pa.Array], _Numbers]:
        """Columns of some of the records, and which these are, ascending."""
        texts, places = self._choose(contents)
        parts: list[list[pa.Array]] = [[pa.nulls(0, each)] for each in self._types]
        positions: list[_Numbers] = [np.zeros(0, dtype=np.int64)]
        ignored = self._ignores
        for low, table in self._read_ranges(texts):
            if self._ignores and not ignored:
                # The records were chosen by another rule.
                return self._read_fast(contents)
            columns, odd = self._finish(table)
            of_part = places[low : low + table.num_rows]
            if odd is not None:
                columns = [column.filter(pa.array(~odd)) for column in columns]
                of_part = of_part[~odd]
            for part, column in zip(parts, columns, strict=True):
                part.append(column)
            positions.append(of_part)
        return [pa.concat_arrays(part) for part in parts], np.concatenate(positions)

    def _read_ranges(self, texts: pa.StringArray) -> Iterator[tuple[int, pa.Table]]:
        """Where each part begins, and its rows. Records between the parts can't be read."""
        failures_left = _FAILURES_MIN + len(texts) // _RECORDS_PER_FAILURE
        switches_left = {name: len(types) - 1 for name, types in zip(self._names, self._reading, strict=True)}
        pending = [(0, len(texts))]
        while pending:
            if failures_left <= 0:
                self._batches_to_skip = _BATCHES_AFTER_FAILURES
                return
            low, high = pending.pop()
            if low == high:
                continue
            try:
                table = self._parse(texts, low, high)
            except pa.ArrowException as error:
                said = str(error)
            else:
                if table.num_rows == high - low:
                    yield low, table
                    continue
                said = ""
            if said.endswith(_UNEXPECTED) and not self._ignores:
                self._ignores = True
                if not self._can_ignore:
                    return
                # The caller begins anew.
                yield low, self._no_rows()
                return
            if self._switch(said, switches_left):
                pending.append((low, high))
                continue
            found = _BAD_ROW.search(said)
            row = None if found is None else int(found[1])
            failures_left -= 1 if row is not None else _UNNAMED_COST
            if row is not None and row < high - low:
                pending += [(low + row + 1, high), (low, low + row)]
            elif high - low > _RECORDS_MIN:
                middle = (low + high) // 2
                pending += [(middle, high), (low, middle)]

    def _parse(self, texts: pa.StringArray, low: int, high: int) -> pa.Table:
        ends = _offsets(texts)
        first, last = int(ends[low]), int(ends[high])
        schema = pa.schema([pa.field(*each) for each in zip(self._names, [t[0] for t in self._reading], strict=True)])
        return arrow_json.read_json(
            pa.BufferReader(texts.buffers()[2].slice(first, last - first)),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=last - first + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore" if self._ignores else "error"
            ),
        )

    def _no_rows(self) -> pa.Table:
        return pa.table([pa.nulls(0, types[0]) for types in self._reading], names=self._names)

    def _switch(self, said: str, switches_left: dict[str, int]) -> bool:
        """Have a column read in its next type, if that is what failed."""
        found = _OTHER_KIND.search(said)
        # An element of an array is named by the array's column and what is below.
        name = None if found is None else found[1] if found[1] in switches_left else found[1].removesuffix("/[]")
        if name is None or not switches_left.get(name):
            return False
        switches_left[name] -= 1
        types = self._reading[self._names.index(name)]
        types.append(types.pop(0))
        return True

    def _finish(self, table: pa.Table) -> tuple[list[pa.Array], Rows | None]:
        columns: list[pa.Array] = []
        odd: Rows | None = None
        for read, data_type in zip(table.columns, self._types, strict=True):
            chunk = read.combine_chunks()
            column, rows = finish_column(chunk, data_type)
            columns.append(column)
            if rows is not None:
                odd = rows if odd is None else odd | rows
        return columns, odd

    def _choose(self, contents: pa.BinaryArray) -> tuple[pa.StringArray, _Numbers]:
        """The records that Arrow may read, and where they stand in ``contents``."""
        places = np.arange(len(contents))
        if self._ignores and not self._can_ignore:
            return pa.nulls(0, pa.string()), places[:0]
        try:
            texts = contents.cast(pa.string())
        except pa.ArrowInvalid:
            contents, places = _leave_out(contents, places, ~are_utf8(contents))
            texts = contents.cast(pa.string())
        if (outside := _not_in_braces(texts)).any():
            texts = pc.utf8_trim(texts, _SPACE)
            outside = _not_in_braces(texts)
        texts, places = _leave_out(texts, places, outside)
        return _leave_out(texts, places, self._doubted(texts))

    def _doubted(self, texts: pa.StringArray) -> Rows:
        doubted = np.zeros(len(texts), dtype=np.bool_)
        if not len(texts):
            return doubted
        ends = _offsets(texts)
        data = np.frombuffer(texts.buffers()[2], dtype=np.uint8)[ends[0] : ends[-1]]
        raw = data.tobytes()
        followers = data[np.flatnonzero(data[:-1] == _END) + 1]
        # Behind the last brace of each record but one comes the next record.
        if np.count_nonzero(~np.isin(followers, _BEHIND_END)) > len(texts) - 1:
            doubted |= _matches(texts, _VALUE_BEHIND_END)
        if b"NaN" in raw or b"Inf" in raw or b"INF" in raw:
            doubted |= _matches(texts, _OTHER_NUMBERS)
        if b"\\u" in raw:
            doubted |= _matches(texts, _HALF_PAIR)
        if self._has_decimals and _FAR_BYTES.search(raw):
            doubted |= _matches(texts, _FAR_NUMBER)
        lengths = np.diff(ends)
        if lengths.max() > NUMBER_DIGITS_MAX:
            doubted |= (lengths > NAME_LENGTH_MAX) | _matches(texts, _LONG_NUMBER)
            begins = pc.add(pc.count_substring(texts, "{"), pc.count_substring(texts, "["))
            doubted |= np.asarray(pc.greater(begins, DEPTH_MAX))
        if self._ignores:
            if b"\\" in raw:
                doubted |= _matches(texts, _ESCAPED_NAME)
            alike = pc.count_substring_regex(texts, self._alike_key, ignore_case=True)
            doubted |= np.asarray(pc.not_equal(alike, pc.count_substring_regex(texts, self._exact_key)))
        return doubted


def _offsets(array: pa.Array) -> _Numbers:
    return np.frombuffer(array.buffers()[1], dtype=np.int32)[array.offset : array.offset + len(array) + 1]


def _not_in_braces(contents: pa.StringArray) -> Rows:
    if not len(contents) or contents.buffers()[2] is None:
        return np.ones(len(contents), dtype=np.bool_)
    ends = _offsets(contents)
    data = np.frombuffer(contents.buffers()[2], dtype=np.uint8)
    if not len(data):
        return np.ones(len(contents), dtype=np.bool_)
    first, last = data[np.minimum(ends[:-1], len(data) - 1)], data[np.maximum(ends[1:] - 1, 0)]
    in_braces: Rows = (np.diff(ends) >= 2) & (first == _BEGIN) & (last == _END)
    return ~in_braces


def are_utf8(contents: pa.BinaryArray) -> Rows:
    """Whether each is UTF-8; NULL is."""
    return np.array([_is_utf8(each) for each in contents.to_pylist()], dtype=np.bool_)


def _is_utf8(content: bytes | None) -> bool:
    try:
        (content or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _leave_out(array: pa.Array, places: _Numbers, rows: Rows) -> tuple[pa.Array, _Numbers]:
    return (array.filter(pa.array(~rows)), places[~rows]) if rows.any() else (array, places)


def _matches(texts: pa.StringArray, regex: str) -> Rows:
    return np.asarray(pc.match_substring_regex(texts, regex))


def _key_regex(names: Sequence[str]) -> str:
    return f'"(?:{"|".join(names)})"[ \\t\\r\\n]*:'


def _exactly(name: str) -> str:
    return "".join(each if each.isalnum() or each == "_" else f"\\x{{{ord(each):x}}}" for each in name)


def _alike(name: str) -> str:
    """The names that have this name's ``name_key``, where case is ignored."""
    return "".join("(?:[i\\x{130}\\x{131}]\\x{307}*)" if each in "iI" else _exactly(each) for each in name)
