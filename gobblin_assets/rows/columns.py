"""Spark's expressions of columns, values and failures; ``column_names`` finds columns by name."""

import datetime as dt
import re
from collections.abc import Sequence
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.watermark import Watermark, WatermarkType, to_micros
from gobblin_assets.rows.column_names import show

MESSAGE_LENGTH_MAX: Final = 400

_RAISED: Final = re.compile(r"\[gobblin:(?P<kind>[a-z_]+):(?P<name>[^\]]*)\]")


def named(name: str) -> Column:
    """The column of exactly that name, whatever characters it holds."""
    return f.col("`" + name.replace("`", "``") + "`")


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
