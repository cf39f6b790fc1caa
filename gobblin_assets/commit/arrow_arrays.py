"""Arrow arrays of Python values, without ``pa.array``, which imports pandas where it is installed.

That import takes half a second of a run that publishes, and nothing of ours asks for pandas.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa

_TYPE_CODES: Final = {pa.int8(): "b", pa.int32(): "i", pa.int64(): "q", pa.uint64(): "Q"}


def make_array(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    """An array of texts, whole numbers, or a dictionary of texts. None is NULL. An array stays as it is.

    OverflowError for a number that the type does not hold, UnicodeEncodeError for a text that is not Unicode.
    """
    if isinstance(values, pa.Array):
        return values
    if not len(values):
        return pa.nulls(0, data_type)
    if pa.types.is_dictionary(data_type):
        texts = [text for text in dict.fromkeys(values) if text is not None]
        if not texts:
            return pa.nulls(len(values), data_type)
        places = {text: number for number, text in enumerate(texts)}
        numbers = make_array(list(map(places.get, values)), data_type.index_type)
        return pa.DictionaryArray.from_arrays(numbers, make_array(texts, data_type.value_type))
    try:
        # Most columns have no None, and looking for it takes as long as this.
        return pa.Array.from_buffers(data_type, len(values), [None, *_encode(values, data_type)], 0)
    except TypeError:
        null_count = values.count(None)
    if null_count == len(values):
        return pa.nulls(len(values), data_type)
    filler: Any = "" if pa.types.is_string(data_type) else 0
    filled = _encode([filler if value is None else value for value in values], data_type)
    return pa.Array.from_buffers(data_type, len(values), [_validity(values), *filled], null_count)


def _encode(values: Sequence[Any], data_type: pa.DataType) -> list[pa.Buffer]:
    """TypeError if there is a None."""
    if pa.types.is_string(data_type):
        return _encode_texts(values)
    code = _TYPE_CODES[data_type]
    is_encoded = isinstance(values, array) and values.typecode == code
    return [pa.py_buffer(values if is_encoded else array(code, values))]


def _encode_texts(texts: Sequence[str]) -> list[pa.Buffer]:
    joined = "".join(texts).encode()
    # Of ASCII, a character is a byte.
    parts: Sequence[str | bytes] = texts if joined.isascii() else [text.encode() for text in texts]
    return [pa.py_buffer(array("i", accumulate(map(len, parts), initial=0))), pa.py_buffer(joined)]


def _validity(values: Sequence[Any]) -> pa.Buffer:
    """A bit for each value, the first one lowest: 0 for None."""
    bits = "".join("0" if value is None else "1" for value in reversed(values))
    return pa.py_buffer(int(bits, 2).to_bytes((len(values) + 7) // 8, "little"))
