"""The late window: rows below the watermark are published only where no active file holds them already.

A row is identified by its key and its position. By the key alone, a row that was updated would be dropped; by the
position alone, two rows of one moment would be one.
"""

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as t

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.watermark import Watermark, WatermarkType
from gobblin_assets.rows.column_names import require_column
from gobblin_assets.rows.columns import literal, named

_PUBLISHED: Final = "gobblin_published_"

_TYPES: Final[dict[WatermarkType, tuple[type[t.DataType], ...]]] = {
    WatermarkType.LONG: (t.IntegralType, t.DecimalType),
    WatermarkType.TIMESTAMP: (t.TimestampType,),
    WatermarkType.LOCAL_TIMESTAMP: (t.TimestampNTZType,),
    WatermarkType.DATE: (t.DateType,),
    WatermarkType.STRING: (t.StringType,),
}


def without_published(
    frame: DataFrame,
    published: DataFrame,
    *,
    key: Sequence[str],
    watermark_column: str,
    low: Watermark,
    reread_from: Watermark,
    tiebreak_column: str | None = None,
    dataset: str = "",
) -> DataFrame:
    """The rows of ``frame`` at or above ``low``, and those below it that ``published`` does not hold.

    ``frame`` is converted, and its converted columns are compared. ``published`` has the rows of all roles that may
    hold positions in ``[reread_from, low)``. NULL equals NULL. A row whose position is NULL passes. A composite
    position (column, key_column) has its second column in ``tiebreak_column``. Each side is read once.
    RejectedError names a column that the converters removed or retyped.
    """
    label = f"dataset {dataset!r}, whose late rows are told by key and position"
    if not key:
        raise RejectedError(f"{label}: it has no key", field="primary_key", hint="Name the columns of the key.")
    order = (watermark_column,) if tiebreak_column is None else (watermark_column, tiebreak_column)
    compared = tuple(dict.fromkeys((*key, *order)))
    mine = {n: require_column(frame.columns, n, label=label, field="converters") for n in compared}
    theirs = {n: require_column(published.columns, n, label=label, field="converters") for n in compared}
    for position in (low, reread_from):
        _require_types(frame, [mine[n] for n in order], position, label)
    # A superset of the window by the first column alone, so that Parquet's statistics can skip files.
    leading = named(theirs[watermark_column])
    window = published.where((leading >= literal(_parts(reread_from)[0])) & (leading <= literal(_parts(low)[0])))
    held = window.select(*(named(theirs[n]).alias(f"{_PUBLISHED}{number}") for number, n in enumerate(compared)))
    same = [named(mine[n]).eqNullSafe(named(f"{_PUBLISHED}{number}")) for number, n in enumerate(compared)]
    # A NULL condition joins nothing, and an anti-join keeps the rows that join nothing.
    return frame.join(held, reduce(and_, same, _is_below([mine[n] for n in order], low)), "left_anti")


def _parts(position: Watermark) -> tuple[Watermark, ...]:
    return position.value if isinstance(position.value, tuple) else (position,)


def _is_below(columns: Sequence[str], position: Watermark) -> Column:
    first, *rest = zip(columns, _parts(position), strict=True)
    below = named(first[0]) < literal(first[1])
    for name, part in rest:
        below = below | ((named(first[0]) == literal(first[1])) & (named(name) < literal(part)))
    return below


def _require_types(frame: DataFrame, columns: Sequence[str], position: Watermark, label: str) -> None:
    """A type other than the position's would be compared through a cast, which for times uses the session's zone."""
    parts = _parts(position)
    if len(parts) != len(columns):
        raise RejectedError(
            f"{label}: a {position.type} position has {len(parts)} columns, found {', '.join(columns)}",
            field="watermark.key_column",
            hint="Name the second column of a composite position, and only of one.",
        )
    for name, part in zip(columns, parts, strict=True):
        found = frame.schema[name].dataType
        if not isinstance(found, _TYPES.get(part.type, ())):
            raise RejectedError(
                f"{label}: expected {name!r} to hold {part.type} positions, found {found.simpleString()}",
                field="converters",
                hint="Keep the column as it comes from the source; cast a copy of it.",
            )
