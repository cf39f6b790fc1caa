"""A Spark DDL for JSON records that come without a schema: inferred once, from a sample, and then kept.

Each type holds exactly the values seen at its place; if none does, it is string, which holds a JSON value's own text.

    true, false          boolean
    whole numbers        bigint; beyond its range decimal(38,0), and beyond that string
    other numbers        double, if each number seen is the shortest text of its nearest double; else string
    texts                string; times too, since no sample shows the form of the next one
    objects              struct of all fields seen, in the order of their first appearance
    arrays               array of what their elements have in common
    whole and other      double, where every whole number seen is exact in it; else string
    null alone           string
    anything else mixed  string

A later value that does not fit makes a dead letter; only in a double column a number becomes the nearest double.
Of names that Spark can't tell apart, only the first one seen becomes a column. A record with a key twice is left out
of the sample, since it will be a dead letter.
"""

import dataclasses
import json
import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.column_names import name_key
from gobblin_assets.rows.columns import named
from gobblin_assets.sources.kafka.json_values import refuse_constant
from gobblin_assets.spark.errors import spark_families

SAMPLE_RECORDS_MAX: Final = 10_000
SAMPLE_BYTES_MAX: Final = 64 << 20
DEPTH_MAX: Final = 50

_LONG: Final = 1 << 63
_DECIMAL: Final = 10**38
_EXACT_IN_DOUBLE: Final = 1 << 53


@dataclass(slots=True)
class _Seen:
    """The values of one place: kinds of scalars, the largest whole number, and the places below it."""

    scalars: set[str] = dataclasses.field(default_factory=set)
    whole_max: int = 0
    fields: dict[str, "_Seen"] | None = None
    elements: "_Seen | None" = None

    def add(self, value: Any, depth: int = 0) -> None:
        match value:
            case None:
                pass
            case bool():
                self.scalars.add("boolean")
            case int():
                self.scalars.add("whole")
                self.whole_max = max(self.whole_max, abs(value) if value >= 0 else abs(value) - 1)
            case Decimal():
                self.scalars.add("double" if _is_exact_in_double(value) else "string")
            case str():
                self.scalars.add("string")
            case dict() if depth < DEPTH_MAX:
                self.fields = {} if self.fields is None else self.fields
                for name, inner in value.items():
                    self.fields.setdefault(name, _Seen()).add(inner, depth + 1)
            case list() if depth < DEPTH_MAX:
                self.elements = _Seen() if self.elements is None else self.elements
                for inner in value:
                    self.elements.add(inner, depth + 1)
            case _:
                self.scalars.add("string")

    def ddl(self) -> str:
        kinds = len(self.scalars) + (self.fields is not None) + (self.elements is not None)
        if kinds == 1 and self.fields:
            return f"struct<{_fields_ddl(self.fields, ': ')}>"
        if kinds == 1 and self.elements is not None:
            return f"array<{self.elements.ddl()}>"
        if self.scalars == {"boolean"} and kinds == 1:
            return "boolean"
        if self.scalars == {"double"} and kinds == 1:
            return "double"
        if self.scalars == {"whole", "double"} and kinds == 2 and self.whole_max <= _EXACT_IN_DOUBLE:
            return "double"
        if self.scalars == {"whole"} and kinds == 1 and self.whole_max < _DECIMAL:
            return "bigint" if self.whole_max < _LONG else "decimal(38,0)"
        return "string"


def infer_json_ddl(texts: Iterable[bytes], *, leave_out: Collection[str] = ()) -> str | None:
    """The columns of JSON objects as DDL text; bytes that are not UTF-8, not JSON or no object are left out.

    ``leave_out`` are fields that become no columns. None: no object had another field.
    """
    seen = _Seen()
    for text in texts:
        try:
            document = json.loads(
                text.decode(), parse_float=Decimal, parse_constant=refuse_constant, object_pairs_hook=_distinct
            )
        except (ValueError, ArithmeticError, RecursionError):
            continue
        if isinstance(document, dict):
            seen.add(document)
    reserved = {name_key(name) for name in leave_out}
    fields = {name: each for name, each in (seen.fields or {}).items() if name_key(name) not in reserved}
    return _fields_ddl(fields, " ") or None


def infer_json_schema(
    frame: DataFrame, *, topic: str, column: str = "value", leave_out: Collection[str] = (), field: str = "kafka.value"
) -> str:
    """``infer_json_ddl`` of a column of Kafka's frame, from ``SAMPLE_RECORDS_MAX`` records at most; one Spark job.

    RejectedError where no record is a JSON object.
    """
    present = frame.select(named(column)).where(named(column).isNotNull() & (f.octet_length(column) > 0))
    with spark_families(f"read a sample of the topic {topic!r}"):
        found = infer_json_ddl(_within_bounds(present.limit(SAMPLE_RECORDS_MAX)), leave_out=leave_out)
    if found is None:
        raise RejectedError(
            f"topic {topic!r}: no {column} among the first {SAMPLE_RECORDS_MAX} is a JSON object, so that no schema "
            "can be inferred",
            field=f"{field}.schema",
            hint="Give a Spark DDL as `schema`, or another `format`.",
        )
    return found


def _is_exact_in_double(number: Decimal) -> bool:
    nearest = float(number)
    return math.isfinite(nearest) and Decimal(repr(nearest)) == number


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key twice")
    return found


def _within_bounds(frame: DataFrame) -> Iterator[bytes]:
    left = SAMPLE_BYTES_MAX
    for row in frame.toLocalIterator():
        text = bytes(row[0])
        left -= len(text)
        yield text
        if left < 0:
            return


def _fields_ddl(fields: dict[str, _Seen], separator: str) -> str:
    distinct: dict[str, str] = {}
    for name, seen in fields.items():
        if name_key(name) not in distinct and name:
            distinct[name_key(name)] = f"`{name.replace('`', '``')}`{separator}{seen.ddl()}"
    return ", ".join(distinct.values())
