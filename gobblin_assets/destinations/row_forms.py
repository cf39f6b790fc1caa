"""Rows in a destination's own form: values as JSON, and batches that are written while those before them are taken."""

import base64
import datetime as dt
import json
import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.commit.arrow_arrays import make_array

_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""As Arrow and Python write floats that JSON's numbers lack, and as readers of JSON, such as Spark's, take them."""

_OTHER_FLOATS: Final = {**_NOT_FINITE, "-0": "-0.0"}


def write_json(kind: pa.DataType, value: object) -> str:
    """A value of the type, as Arrow gives it to Python."""
    return json.dumps(_plain(value, kind), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any, kind: pa.DataType) -> object:
    """The value as JSON has it. What JSON's numbers can't hold exactly becomes a text."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {str(_plain(key, kind.key_type)): _plain(each, kind.item_type) for key, each in value}
    if pa.types.is_nested(kind):
        return [_plain(each, kind.value_type) for each in value]
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case dt.datetime() | dt.date():
            return value.isoformat()
        case float() if math.isfinite(value):
            return value
        case float():
            return _NOT_FINITE[str(value)]
        case Decimal():
            return str(value)
        case _:
            return value


def write_floats(values: pa.Array) -> pa.Array:
    """The shortest text of each float, which is read as the same one; what is not finite is a word. NULL stays NULL."""
    kind = pa.large_string()
    texts = values.cast(kind)
    for found, instead in _OTHER_FLOATS.items():
        # Not by a bare text, of which Arrow makes a scalar by importing pandas.
        sought, put = make_array([found, instead], pa.string()).cast(kind)
        is_found = pc.equal(texts, sought)
        if pc.any(is_found).as_py():
            texts = pc.if_else(is_found, put, texts)
    return texts


W = TypeVar("W")


def prefetch_written(rows: Iterable[pa.RecordBatch], write: Callable[[pa.RecordBatch], W]) -> Iterator[W]:
    """Batches as ``write`` makes them, the next one while one is used. Errors of both come where the batch would."""
    batches = iter(rows)

    def write_next() -> tuple[W] | None:
        batch = next(batches, None)
        return None if batch is None else (write(batch),)

    with ThreadPoolExecutor(1, thread_name_prefix="prefetch-written") as pool:
        waiting = pool.submit(write_next)
        while (found := waiting.result()) is not None:
            waiting = pool.submit(write_next)
            yield found[0]
