"""The mark of a lane as a property: a text by its name, of a table or in a table of such texts. Pure."""

import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from gobblin_assets.destinations.lane_marks import RECENT_MAX, LaneMark, LoadBatch, MarkPlace
from gobblin_assets.destinations.load_rows import TableBatch
from gobblin_assets.errors import CorruptionError

_LANES: Final = "gobblin.lane"


def find_lane_mark(properties: Mapping[str, str], place: MarkPlace) -> LaneMark | None:
    """None: nothing of the lane was ever loaded or given up."""
    return _read(properties, _name_property(place))[0]


def count_loaded_rows(properties: Mapping[str, str], place: MarkPlace) -> int:
    """The rows that all lanes of the dataset have loaded."""
    lanes = _name_lanes(place)
    return sum(_read(properties, name)[1] for name in properties if name.startswith(lanes))


def moved_mark(properties: Mapping[str, str], batch: TableBatch) -> dict[str, str]:
    """The property once the batch is loaded."""
    mark, rows = _read(properties, _name_property(batch.mark))
    recent = (batch.sequence_id, *(mark.recent if mark else ()))[:RECENT_MAX]
    return _write(batch, LaneMark(batch.version, recent), batch.row_count + (0 if batch.replaces else rows))


def refusing_mark(properties: Mapping[str, str], batch: LoadBatch) -> dict[str, str]:
    """The property once the batch is given up."""
    mark, rows = _read(properties, _name_property(batch.mark))
    mark = mark or LaneMark(0)
    return _write(batch, LaneMark(mark.version, mark.recent, (*mark.given_up, batch.sequence_id)), rows)


def adopted_marks(properties: Mapping[str, str], marks: Mapping[MarkPlace, LaneMark], row_count: int) -> dict[str, str]:
    """The properties of the lanes of one dataset that have no mark of their own, set to ``marks``.

    ``row_count``: of all rows that the log has; those of which no mark says anything count as loaded by the first.
    """
    known = {place: _read(properties, _name_property(place))[0] for place in marks}
    missing = [place for place, mark in known.items() if mark is None or not mark.has_loaded]
    rows = row_count - count_loaded_rows(properties, missing[0]) if missing else 0
    adopted: dict[str, str] = {}
    for place in missing:
        adopted[_name_property(place)] = _encode(marks[place], max(rows, 0))
        rows = 0
    return adopted


def _read(properties: Mapping[str, str], name: str) -> tuple[LaneMark | None, int]:
    """A mark, and the rows that were loaded up to it."""
    text = properties.get(name)
    if text is None:
        return None, 0
    try:
        kept = json.loads(text)
        return LaneMark(int(kept["version"]), tuple(kept["recent"]), tuple(kept["given_up"])), int(kept["rows"])
    except (ValueError, KeyError, TypeError):
        raise CorruptionError(
            f"the property {name} is no mark of a lane any more",
            hint="Put back the value that it had: earlier files of a table's metadata have it, or a backup.",
        ) from None


def _write(batch: LoadBatch, mark: LaneMark, rows: int) -> dict[str, str]:
    return {_name_property(batch.mark): _encode(mark, rows)}


def _encode(mark: LaneMark, rows: int) -> str:
    kept = {"version": mark.version, "recent": mark.recent, "given_up": mark.given_up, "rows": rows}
    return json.dumps(kept, separators=(",", ":"))


def _name_property(place: MarkPlace) -> str:
    return f"{_name_lanes(place)}{place.lane}"


def _name_lanes(place: MarkPlace) -> str:
    """What the names of all lanes of the dataset begin with. In its parts, a colon is written in another way."""
    return f"{_LANES}.{quote(place.destination, '')}:{quote(place.job, '')}:{quote(place.dataset, '')}:"
