"""A check that positions are places of the logs that the topics have now: the record before each is looked at again.

A detected loss is kept with the position, until a person says where to go on. A position is taken as it is if nothing
is known of it, or if retention or compaction removed its record.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from gobblin_assets.model.watermark import LOST, PositionLostError, find_reason, long_watermark
from gobblin_assets.run.job_kind import Restart, StartAt
from gobblin_assets.sources.kafka.cluster import (
    Cluster,
    MarkAnswers,
    PartitionOffsets,
    RecordMark,
    TopicOffsets,
    TopicPartition,
)
from gobblin_assets.sources.kafka.keys import Position
from gobblin_assets.sources.source_port import SourceRequest

LOOK_BACK: Final = 8
"""Offsets before a position among which its record is sought: markers of transactions have offsets as well."""

_Positions = Mapping[int, Position]
_Asked = TypeVar("_Asked")


def has_lost(position: Position | None) -> bool:
    return position is not None and find_reason(long_watermark(position.offset, position.history)) is not None


def require_histories(request: SourceRequest, positions: _Positions, offsets: TopicOffsets) -> None:
    """PositionLostError for a position whose history is lost, unless the request says where to go on.

    A position that is out of range is judged by the dataset's rule.
    """
    for number, position in sorted(positions.items()):
        reason = find_reason(long_watermark(position.offset, position.history))
        found = offsets.partitions.get(number)
        if reason is None or found is None or not found.earliest <= position.offset <= found.end:
            continue
        if request.restart in (Restart.START_OVER, Restart.MOVE_TO_LATEST):
            continue
        if isinstance(request.restart, StartAt) and number in request.restart.offsets:
            continue
        raise _refuse_lost(str(request.urn), position, reason)


def _refuse_lost(urn: str, position: Position, reason: str) -> PositionLostError:
    name = position.key.partition
    return PositionLostError(
        f"{name}: the offset {position.offset} is no place of the log that the topic has now: {reason}",
        key=str(position.key),
        at=long_watermark(position.offset, position.history),
        reason=reason,
        field=f"datasets[{urn}].topic",
        hint="Nothing was read, and what was published stays. The brokers lost the end of the partition's log, and "
        f"what came since has its offsets. Say once where to go on: `gobblin-assets run JOB_FILE --dataset '{urn}'` "
        f"with --start-at {name.partition}=OFFSET, --start-over (all that the topic has now) or --move-to-latest (what "
        "comes from now on).",
        topic=name.topic,
        partition=name.partition,
    )


@dataclass(slots=True)
class Histories:
    """The brokers' answers on records before positions. Asked for all topics of a run at once; answers are kept."""

    cluster: Cluster
    _checked: dict[tuple[TopicPartition, RecordMark], str | None] = field(default_factory=dict)
    _silent: set[TopicPartition] = field(default_factory=set)
    _found: dict[tuple[TopicPartition, int], RecordMark | None] = field(default_factory=dict)

    def check(self, topics: Iterable[tuple[str, _Positions, TopicOffsets]]) -> None:
        """Ask for all of these topics what ``judge`` needs."""
        wanted = [
            (TopicPartition(topic, number), mark)
            for topic, positions, offsets in topics
            for number, mark in _list_marks(positions, offsets)
        ]
        for layer in _in_layers([each for each in wanted if each not in self._checked]):
            answers = self.cluster.check_marks(layer)
            self._note(layer, answers)

    def _note(self, asked: Mapping[TopicPartition, RecordMark], answers: MarkAnswers) -> None:
        self._silent |= answers.silent
        for name, mark in asked.items():
            self._checked[name, mark] = answers.lost.get(name)

    def judge(self, topic: str, positions: _Positions, offsets: TopicOffsets) -> tuple[_Positions, TopicOffsets]:
        """The positions, with what is wrong with them, and the offsets without partitions that did not answer."""
        self.check([(topic, positions, offsets)])
        judged = dict(positions)
        for number, mark in _list_marks(positions, offsets):
            reason = self._checked[TopicPartition(topic, number), mark]
            if reason is not None:
                position = positions[number]
                judged[number] = replace(position, history={**(position.history or {}), LOST: reason})
        silent = [each.partition for each in self._silent if each.topic == topic]
        if not silent:
            return judged, offsets
        said = dict.fromkeys(silent, "its leader does not say which record is before the next offset")
        known = {number: each for number, each in offsets.partitions.items() if number not in said}
        return judged, TopicOffsets(offsets.topic_id, known, {**offsets.failures, **said})

    def find(
        self, wanted: Mapping[TopicPartition, int], offsets: Mapping[str, TopicOffsets]
    ) -> Mapping[TopicPartition, Mapping[str, object]]:
        """The histories of places that positions move to; of a place without a record close by, nothing is known."""
        missing = [each for each in wanted.items() if each not in self._found]
        for layer in _in_layers(missing):
            ranges = {
                name: (max(at - LOOK_BACK, found.earliest), at)
                for name, at in layer.items()
                if (found := _offsets_of(offsets, name)) is not None
            }
            marks = self.cluster.find_marks(ranges) if ranges else {}
            for name, at in layer.items():
                self._found[name, at] = marks.get(name)
        return {name: mark.write() for name, at in wanted.items() if (mark := self._found[name, at]) is not None}


def _offsets_of(offsets: Mapping[str, TopicOffsets], name: TopicPartition) -> PartitionOffsets | None:
    found = offsets.get(name.topic)
    return None if found is None else found.partitions.get(name.partition)


def _list_marks(positions: _Positions, offsets: TopicOffsets) -> Iterator[tuple[int, RecordMark]]:
    """Of the positions that the log has. What is out of range is judged by the dataset's rule."""
    for number, position in positions.items():
        found, mark = offsets.partitions.get(number), position.mark
        if found is None or mark is None or has_lost(position):
            continue
        if found.earliest <= mark.offset and position.offset <= found.end:
            yield number, mark


def _in_layers(wanted: Sequence[tuple[TopicPartition, _Asked]]) -> Iterator[dict[TopicPartition, _Asked]]:
    """Each layer asks once of a partition, as one consumer can: several datasets may read one topic."""
    left = list(dict.fromkeys(wanted))
    while left:
        layer: dict[TopicPartition, _Asked] = {}
        later = []
        for name, each in left:
            if name in layer:
                later.append((name, each))
            else:
                layer[name] = each
        yield layer
        left = later
