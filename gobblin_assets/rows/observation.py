"""Observation of how far a write really read: the highest position and the number of rows, observed while it runs.

Each task of the write is counted once, however often it is tried. A shuffle between the observation and the write makes
another stage, and a repeated stage is counted twice. Then the count is too high: the attempt's files hold fewer rows,
and another attempt replaces it. Results are scalars, because Connect returns anything else broken, after the write has
happened: instants as microseconds, dates as days, composites field by field.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import Final
from uuid import uuid4

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.watermark import Watermark, WatermarkType, from_micros
from gobblin_assets.rows.hidden_columns import SHARE_COLUMN
from gobblin_assets.spark.errors import spark_families

_EPOCH: Final = dt.date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Observed:
    """``high`` is the highest position seen; None: no row had a position. ``row_count`` may count rows twice.

    ``by_share``: the rows of each of the shares that were asked for.
    """

    row_count: int
    high: Watermark | None
    by_share: Mapping[str, int] = field(default_factory=dict)


class ObservedPositions:
    """The results of one action over the frame that ``observe_positions`` gave."""

    def __init__(self, observation: Observation, kinds: Sequence[WatermarkType], shares: Sequence[str]) -> None:
        self._observation = observation
        self._kinds = kinds
        self._shares = shares

    def get(self) -> Observed | None:
        """Call this only after the action has returned: before that, a classic session waits without end.

        None if Connect sent nothing: its server waits a tenth of a second for the results and then answers
        without them (seen on a busy machine), and of nested observations it may send only the outer one.
        """
        with spark_families("read the observed positions"):
            values = self._observation.get
        if not values:
            return None
        highs = [values[f"high_{part}"] for part in range(len(self._kinds))]
        by_share = {share: int(values[f"share_{at}"]) for at, share in enumerate(self._shares)}
        return Observed(int(values["rows"]), _as_watermark(self._kinds, highs), by_share)


def observe_positions(
    frame: DataFrame, columns: Sequence[str], *, shares: Sequence[str] = ()
) -> tuple[DataFrame, ObservedPositions]:
    """The same frame, observed: the highest position of ``columns``, and the number of rows.

    ``columns``: none (only rows are counted), one, or two that are compared in turn (time, then key). A row with a
    NULL in them has no position. ``shares``: values of ``SHARE_COLUMN`` whose rows are counted apart. RejectedError
    names a column that can't be a position.
    """
    types = {column.name: column.dataType for column in frame.schema.fields} if columns else {}
    kinds = [_kind_of(name, types.get(name)) for name in columns]
    metrics = [f.count(f.lit(1)).alias("rows")]
    if columns:
        parts = [f.col(_quoted(name)) for name in columns]
        present = reduce(and_, [part.isNotNull() for part in parts])
        named = [part.alias(f"part_{at}") for at, part in enumerate(parts)]
        highest = f.max(f.when(present, f.struct(*named)))
        metrics += [
            _as_scalar(highest.getField(f"part_{at}"), kind).alias(f"high_{at}") for at, kind in enumerate(kinds)
        ]
    metrics += [
        f.count(f.when(f.col(SHARE_COLUMN) == f.lit(share), f.lit(1))).alias(f"share_{at}")
        for at, share in enumerate(shares)
    ]
    observation = Observation(f"positions-{uuid4()}")
    return frame.observe(observation, *metrics), ObservedPositions(observation, kinds, shares)


def _kind_of(name: str, data_type: t.DataType | None) -> WatermarkType:
    match data_type:
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            return WatermarkType.LONG
        case t.DecimalType() if data_type.scale == 0:
            return WatermarkType.LONG  # a value beyond 64 bits fails the plan, or else the write
        case t.TimestampType():
            return WatermarkType.TIMESTAMP
        case t.TimestampNTZType():
            return WatermarkType.LOCAL_TIMESTAMP
        case t.DateType():
            return WatermarkType.DATE
        case t.StringType():
            return WatermarkType.STRING
        case _:
            found = data_type.simpleString() if data_type is not None else "no such column"
            raise RejectedError(
                f"expected a whole number, time, date or text, found {found}",
                field=f"watermark.column.{name}",
                hint="Choose another column, or cast this one in the query.",
            )


def _as_scalar(value: Column, kind: WatermarkType) -> Column:
    match kind:
        case WatermarkType.TIMESTAMP | WatermarkType.LOCAL_TIMESTAMP:
            return f.unix_micros(value.cast("timestamp"))  # the session is in UTC, so a wall clock keeps its value
        case WatermarkType.DATE:
            return f.unix_date(value)
        case WatermarkType.LONG:
            return value.cast("bigint")
        case _:
            return value


def _as_watermark(kinds: Sequence[WatermarkType], values: Sequence[int | str | None]) -> Watermark | None:
    if not kinds or any(value is None for value in values):
        return None
    parts = [_as_position(kind, value) for kind, value in zip(kinds, values, strict=True)]
    return parts[0] if len(parts) == 1 else Watermark(WatermarkType.COMPOSITE, (parts[0], parts[1]))


def _as_position(kind: WatermarkType, value: int | str | None) -> Watermark:
    match kind, value:
        case ((WatermarkType.TIMESTAMP | WatermarkType.LOCAL_TIMESTAMP), int()):
            return Watermark(kind, from_micros(value, local=kind is WatermarkType.LOCAL_TIMESTAMP))
        case WatermarkType.DATE, int():
            return Watermark(kind, _EPOCH + dt.timedelta(days=value))
        case _, (int() | str()):
            return Watermark(kind, value)
        case _:
            raise AssertionError(f"a {kind} was observed as {value!r}")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
