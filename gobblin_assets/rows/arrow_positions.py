"""The highest position of rows in Arrow batches, by the rules that ``observation`` has for rows in Spark."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.watermark import Watermark, WatermarkType, from_micros


class HighestPosition:
    """Grows with each batch that is added. ``columns``: none (no position), one, or two compared in turn."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self.value: Watermark | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows with a NULL position have none. RejectedError names a column that can't be a position."""
        if not self._columns:
            return
        lead = batch.column(self._columns[0])
        kinds = [_kind_of(name, batch.column(name).type) for name in self._columns]
        if len(kinds) == 1:
            self._raise_to(_as_watermark(kinds[0], pc.max(lead)))
            return
        key = batch.column(self._columns[1])
        present = pc.is_valid(key)
        highest = pc.max(pc.filter(lead, present))
        if not highest.is_valid:
            return
        first = _as_watermark(kinds[0], highest)
        second = _as_watermark(kinds[1], pc.max(pc.filter(key, pc.and_(present, pc.equal(lead, highest)))))
        if first is not None and second is not None:
            self._raise_to(Watermark(WatermarkType.COMPOSITE, (first, second)))

    def _raise_to(self, found: Watermark | None) -> None:
        if found is not None and (self.value is None or found > self.value):
            self.value = found


def highest_of(positions: Sequence[HighestPosition]) -> Watermark | None:
    return max((each.value for each in positions if each.value is not None), default=None)


def _as_watermark(kind: WatermarkType, found: pa.Scalar) -> Watermark | None:
    if not found.is_valid:
        return None
    match kind:
        case WatermarkType.TIMESTAMP | WatermarkType.LOCAL_TIMESTAMP:
            return Watermark(kind, from_micros(found.value, local=kind is WatermarkType.LOCAL_TIMESTAMP))
        case WatermarkType.LONG:
            return Watermark(kind, int(found.as_py()))
        case _:
            return Watermark(kind, found.as_py())


def _kind_of(name: str, held_as: pa.DataType) -> WatermarkType:
    if pa.types.is_integer(held_as) or (pa.types.is_decimal(held_as) and held_as.scale == 0):
        return WatermarkType.LONG
    if pa.types.is_timestamp(held_as):
        return WatermarkType.LOCAL_TIMESTAMP if held_as.tz is None else WatermarkType.TIMESTAMP
    if pa.types.is_date(held_as):
        return WatermarkType.DATE
    if pa.types.is_string(held_as):
        return WatermarkType.STRING
    raise RejectedError(
        f"expected a whole number, time, date or text, found {held_as}",
        field=f"watermark.column.{name}",
        hint="Choose another column, or cast this one in the query.",
    )
