"""Columns by name: found as Spark finds them, or refused with the names that there are."""

import datetime as dt
import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.column_names import find_alike, name_key
from gobblin_assets.model.watermark import Watermark, WatermarkType, to_micros

COLUMNS_SHOWN_MAX: Final = 40
MESSAGE_LENGTH_MAX: Final = 400

_RAISED: Final = re.compile(r"\[gobblin:(?P<kind>[a-z_]+):(?P<name>[^\]]*)\]")


def named(name: str) -> Column:
    """The column of exactly that name, whatever characters it holds."""
    return f.col("`" + name.replace("`", "``") + "`")


def find_column(names: Iterable[str], wanted: str) -> str | None:
    """The name among ``names`` that ``wanted`` means: itself, else the only one that Spark takes for the same name."""
    known = list(names)
    if wanted in known:
        return wanted
    alike = [name for name in known if name_key(name) == name_key(wanted)]
    return alike[0] if len(alike) == 1 else None


def require_column(frame_columns: Sequence[str], wanted: str, *, label: str, field: str) -> str:
    """``find_column``, or a RejectedError that begins with ``label`` and lists what there is."""
    found = find_column(frame_columns, wanted)
    if found is None:
        close = difflib.get_close_matches(wanted, frame_columns, n=1)
        guess = f"Did you mean {close[0]!r}? " if close else ""
        raise RejectedError(
            f"{label}: there is no column {wanted!r}", field=field, hint=f"{guess}Available: {show(frame_columns)}."
        )
    return found


def require_distinct_columns(names: Sequence[str], *, label: str, field: str) -> None:
    """Refuse names that Spark can't tell apart: it ignores case, and Parquet files can't hold both."""
    alike = find_alike(names)
    if alike is not None:
        raise RejectedError(
            f"{label}: two columns would be called {alike[1]!r} (the other is {alike[0]!r})",
            field=field,
            hint=f"Rename or drop one of them. The columns would be: {show(names)}.",
        )


def require_distinct_fields(schema: t.StructType, *, label: str, field: str) -> None:
    """``require_distinct_columns`` for the columns and for the fields of every struct below them.

    Spark writes a struct with fields that it can't tell apart, and then can't read the file.
    """
    require_distinct_columns(schema.names, label=label, field=field)
    for column in schema.fields:
        _require_distinct_below(column.dataType, f"{label}, column {column.name!r}", field)


def _require_distinct_below(data_type: t.DataType, label: str, field: str) -> None:
    match data_type:
        case t.StructType():
            require_distinct_fields(data_type, label=label, field=field)
        case t.ArrayType():
            _require_distinct_below(data_type.elementType, label, field)
        case t.MapType():
            _require_distinct_below(data_type.keyType, label, field)
            _require_distinct_below(data_type.valueType, label, field)
        case _:
            pass


def analysed_schema(frame: DataFrame) -> t.StructType:
    """The schema after Spark has analysed all of the frame, without running it; AnalysisException if it can't.

    On Connect, a filter takes over the schema of what it filters, without a look at its condition.
    """
    return frame.select("*").schema


def refuse_expression(error: AnalysisException, *, label: str, field: str, available: Sequence[str]) -> RejectedError:
    """Spark's message about an expression, without the plan that Spark prints behind it."""
    lines = [line.strip() for line in (error.getMessage() or str(error)).splitlines() if line.strip()]
    said = (lines[0] if lines else type(error).__name__)[:MESSAGE_LENGTH_MAX]
    return RejectedError(f"{label}: {said}", field=field, hint=f"Available columns: {show(available)}.")


def show(names: Sequence[str]) -> str:
    """A list of names that stays readable."""
    shown = ", ".join(names[:COLUMNS_SHOWN_MAX])
    return shown if len(names) <= COLUMNS_SHOWN_MAX else f"{shown}, and {len(names) - COLUMNS_SHOWN_MAX} more"


def literal(watermark: Watermark) -> Column:
    """A position that is not composite, as a constant of its own type, whatever the session's zone is."""
    match watermark.type, watermark.value:
        case WatermarkType.LONG, int() as number:
            return f.lit(number).cast(t.LongType())
        case WatermarkType.TIMESTAMP, dt.datetime() as moment:
            return f.timestamp_micros(f.lit(to_micros(moment)).cast(t.LongType()))
        case WatermarkType.LOCAL_TIMESTAMP, dt.datetime() as moment:
            return f.lit(moment.isoformat(sep=" ")).cast(t.TimestampNTZType())
        case WatermarkType.DATE, dt.date() as day:
            return f.lit(day.isoformat()).cast(t.DateType())
        case WatermarkType.STRING, str() as text:
            return f.lit(text)
        case _:
            raise RejectedError(
                f"a {watermark.type} position is no single value", field="watermark.type", hint="Compare its parts."
            )


def raising(kind: str, name: str, data_type: t.DataType) -> Column:
    """An expression that fails the task when it is evaluated; ``find_raised`` recognizes the failure."""
    return f.raise_error(f.lit(f"[gobblin:{kind}:{name}]")).cast(data_type)


def find_raised(error: BaseException) -> tuple[str, str] | None:
    """(kind, name) if ``raising`` made a Spark action fail, on either kind of session."""
    found = _RAISED.search(str(error))
    return None if found is None else (found["kind"], found["name"])
