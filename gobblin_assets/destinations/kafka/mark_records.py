"""The mark of a lane as a record of a compacted topic. Pure."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from gobblin_assets.destinations.kafka.topic_batches import LoadedTopic, TopicBatch
from gobblin_assets.destinations.lane_marks import RECENT_MAX, LaneMark, MarkPlace
from gobblin_assets.errors import CorruptionError


@dataclass(frozen=True, slots=True)
class TopicMark:
    """The mark of a lane in a topic.

    ``loaded_rows``: all that the lane has loaded. ``topic``: the name of that of its last load, and its id.

    Both are empty where they are not known: in marks of an earlier release, and the id also of older brokers.
    """

    mark: LaneMark
    loaded_rows: int
    topic: str = ""
    topic_id: str = ""

    def is_newer(self, other: "TopicMark") -> bool:
        """Whether it came after the other, which is a mark of the same lane."""
        mine, others = self.mark, other.mark
        return (mine.version, len(mine.given_up)) > (others.version, len(others.given_up))

    def with_loaded(self, batch: TopicBatch, topic_id: str) -> "TopicMark":
        recent = (batch.sequence_id, *self.mark.recent)[:RECENT_MAX]
        loaded_rows = self.loaded_rows + batch.row_count
        return TopicMark(LaneMark(batch.version, recent), loaded_rows, batch.topic.name, topic_id)

    def with_given_up(self, batch: TopicBatch) -> "TopicMark":
        mark = self.mark
        return replace(self, mark=LaneMark(mark.version, mark.recent, (*mark.given_up, batch.sequence_id)))


PARTITION: Final = 0
"""Of the topic of marks: all of them are there, also if somebody adds partitions."""

NO_MARK: Final = TopicMark(LaneMark(0), 0)
"""Of a lane of which nothing was ever loaded or given up."""


def encode_key(place: MarkPlace) -> bytes:
    return json.dumps([place.destination, place.job, place.dataset, place.lane], separators=(",", ":")).encode()


def find_lane(key: bytes, place: MarkPlace) -> MarkPlace | None:
    """The lane whose mark the record is; None: of no lane of the dataset, whichever lane ``place`` is of."""
    try:
        found = json.loads(key)
    except ValueError:
        return None
    is_of_dataset = isinstance(found, list) and found[:-1] == [place.destination, place.job, place.dataset]
    return replace(place, lane=found[-1]) if is_of_dataset else None


def say_gone_marks(place: MarkPlace) -> str:
    return f"the topic of marks {place.marks} is gone, which says what was loaded of {place.dataset}"


def find_gone(topic: LoadedTopic, topic_id: str | None, dataset: str, marks: Iterable[TopicMark]) -> str | None:
    """Why the topic of the id is not the one into which rows were loaded by the dataset's marks; None: it is.

    ``topic_id`` None: it is not there; empty: not known. A mark that names no topic may well be of this one.
    """
    ours = [mark for mark in marks if mark.loaded_rows and mark.topic in (topic.name, "")]
    is_same = topic_id is not None and all(topic_id in (mark.topic_id, "") or not mark.topic_id for mark in ours)
    if not ours or is_same:
        return None
    what = "is gone, the topic" if topic_id is None else "is another topic than the one"
    loaded = sum(mark.loaded_rows for mark in ours)
    return f"{topic} {what} into which {loaded:,} rows of {dataset} were loaded"


def encode_mark(mark: TopicMark) -> bytes:
    stored = {
        "version": mark.mark.version,
        "recent": mark.mark.recent,
        "given_up": mark.mark.given_up,
        "loaded_rows": mark.loaded_rows,
        "topic": mark.topic,
        "topic_id": mark.topic_id,
    }
    return json.dumps(stored, separators=(",", ":")).encode()


def decode_mark(value: bytes, topic: str) -> TopicMark:
    """CorruptionError for what this code did not write."""
    try:
        stored = json.loads(value)
        mark = LaneMark(int(stored["version"]), tuple(stored["recent"]), tuple(stored["given_up"]))
        return TopicMark(
            mark, int(stored["loaded_rows"]), str(stored.get("topic", "")), str(stored.get("topic_id", ""))
        )
    except (ValueError, TypeError, KeyError):
        raise CorruptionError(f"the topic of marks {topic} has a record of a lane that is no mark") from None
