"""The mark of a lane as a property of a table. Pure."""

import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from gobblin_assets.destinations.lane_marks import RECENT_MAX, LaneMark, LoadBatch, MarkPlace

_LANES: Final = "gobblin.lane"


def find_lane_mark(properties: Mapping[str, str], place: MarkPlace) -> LaneMark | None:
    """None: nothing of the lane was ever loaded or given up."""
    text = properties.get(_name_property(place))
    if text is None:
        return None
    kept = json.loads(text)
    return LaneMark(kept["version"], tuple(kept["recent"]), tuple(kept["given_up"]))


def count_loaded_rows(properties: Mapping[str, str], place: MarkPlace) -> int:
    """The rows that all lanes of the dataset have loaded."""
    lanes = _name_lanes(place)
    return sum(json.loads(text)["rows"] for name, text in properties.items() if name.startswith(lanes))


def moved_mark(properties: Mapping[str, str], batch: LoadBatch) -> dict[str, str]:
    """The property once the batch is loaded."""
    mark = find_lane_mark(properties, batch.mark) or LaneMark(0)
    recent = (batch.sequence_id, *mark.recent)[:RECENT_MAX]
    return _write(batch, LaneMark(batch.version, recent), _count_rows(properties, batch) + batch.row_count)


def refusing_mark(properties: Mapping[str, str], batch: LoadBatch) -> dict[str, str]:
    """The property once the batch is given up."""
    mark = find_lane_mark(properties, batch.mark) or LaneMark(0)
    given_up = (*mark.given_up, batch.sequence_id)
    return _write(batch, LaneMark(mark.version, mark.recent, given_up), _count_rows(properties, batch))


def _count_rows(properties: Mapping[str, str], batch: LoadBatch) -> int:
    text = properties.get(_name_property(batch.mark))
    return 0 if text is None else int(json.loads(text)["rows"])


def _write(batch: LoadBatch, mark: LaneMark, rows: int) -> dict[str, str]:
    kept = {"version": mark.version, "recent": mark.recent, "given_up": mark.given_up, "rows": rows}
    return {_name_property(batch.mark): json.dumps(kept, separators=(",", ":"))}


def _name_property(place: MarkPlace) -> str:
    return f"{_name_lanes(place)}{place.lane}"


def _name_lanes(place: MarkPlace) -> str:
    """What the names of all lanes of the dataset begin with. In its parts, a colon is written in another way."""
    return f"{_LANES}.{quote(place.destination, '')}:{quote(place.job, '')}:{quote(place.dataset, '')}:"
