"""The mark of a lane as a record of a compacted topic. Pure."""

import json
from dataclasses import dataclass
from typing import Final

from gobblin_assets.destinations.lane_marks import RECENT_MAX, LaneMark, LoadBatch, MarkPlace
from gobblin_assets.errors import CorruptionError


@dataclass(frozen=True, slots=True)
class TopicMark:
    """``loaded_rows``: all that the lane has loaded."""

    mark: LaneMark
    loaded_rows: int

    def is_newer(self, other: "TopicMark") -> bool:
        """Whether it came after the other, which is a mark of the same lane."""
        mine, others = self.mark, other.mark
        return (mine.version, len(mine.given_up)) > (others.version, len(others.given_up))

    def with_loaded(self, batch: LoadBatch) -> "TopicMark":
        recent = (batch.sequence_id, *self.mark.recent)[:RECENT_MAX]
        return TopicMark(LaneMark(batch.version, recent), self.loaded_rows + batch.row_count)

    def with_given_up(self, batch: LoadBatch) -> "TopicMark":
        mark = self.mark
        return TopicMark(LaneMark(mark.version, mark.recent, (*mark.given_up, batch.sequence_id)), self.loaded_rows)


PARTITION: Final = 0
"""Of the topic of marks: all of them are there, also if somebody adds partitions."""

NO_MARK: Final = TopicMark(LaneMark(0), 0)
"""Of a lane of which nothing was ever loaded or given up."""


def encode_key(place: MarkPlace) -> bytes:
    return json.dumps([place.destination, place.job, place.dataset, place.lane], separators=(",", ":")).encode()


def is_of_dataset(key: bytes, place: MarkPlace) -> bool:
    """Whether the record is the mark of a lane of the dataset, whichever lane ``place`` is of."""
    try:
        found = json.loads(key)
    except ValueError:
        return False
    return isinstance(found, list) and found[:-1] == [place.destination, place.job, place.dataset]


def encode_mark(mark: TopicMark) -> bytes:
    stored = {
        "version": mark.mark.version,
        "recent": mark.mark.recent,
        "given_up": mark.mark.given_up,
        "loaded_rows": mark.loaded_rows,
    }
    return json.dumps(stored, separators=(",", ":")).encode()


def decode_mark(value: bytes, topic: str) -> TopicMark:
    """CorruptionError for what this code did not write."""
    try:
        stored = json.loads(value)
        mark = LaneMark(int(stored["version"]), tuple(stored["recent"]), tuple(stored["given_up"]))
        return TopicMark(mark, int(stored["loaded_rows"]))
    except (ValueError, TypeError, KeyError):
        raise CorruptionError(f"the topic of marks {topic} has a record of a lane that is no mark") from None
