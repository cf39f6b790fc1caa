"""Whether positions are places of the logs that topics have now, over logs in memory that lose their ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from gobblin_assets.model.watermark import LOST, PositionLostError, long_watermark, parse_watermark
from gobblin_assets.run.job_kind import Restart, StartAt
from gobblin_assets.sources.kafka.cluster import MarkAnswers, RecordMark, TopicOffsets, TopicPartition, read_mark
from gobblin_assets.sources.kafka.start_positions import TopicStart, find_start_positions
from tests.support.topic_plans import TOPIC, FixedCluster, Follower, offsets_of

PLACE = TopicPartition(TOPIC, 0)


def record(offset: int, content: str = "old", epoch: int | None = 0) -> RecordMark:
    return RecordMark(offset, epoch, 1_000 + offset, content)


@dataclass
class Log(FixedCluster):
    """One partition from ``earliest`` to the end of its records. ``checks``: how often its history was asked for."""

    offsets: Mapping[str, TopicOffsets] = field(default_factory=dict)
    records: Sequence[RecordMark] = ()
    earliest: int = 0
    is_silent: bool = False
    checks: int = 0

    def hold(self, records: Sequence[RecordMark], end: int, earliest: int = 0) -> None:
        self.records, self.earliest = records, earliest
        self.offsets = {TOPIC: offsets_of({0: (earliest, end)})}

    def find_marks(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> Mapping[TopicPartition, RecordMark]:
        ((low, high),) = ranges.values()
        found = [each for each in self.records if low <= each.offset < high]
        return {PLACE: found[-1]} if found else {}

    def check_marks(self, marks: Mapping[TopicPartition, RecordMark]) -> MarkAnswers:
        self.checks += 1
        if self.is_silent:
            return MarkAnswers({}, frozenset(marks))
        found = {each.offset: each for each in self.records}
        said = {
            name: mark.describe_difference(found[mark.offset]) for name, mark in marks.items() if mark.offset in found
        }
        return MarkAnswers({name: reason for name, reason in said.items() if reason is not None}, frozenset())


@dataclass
class Sink:
    log: Log = field(default_factory=Log)
    follower: Follower = field(default_factory=Follower)

    def start(self, restart: Restart | StartAt | None = None) -> TopicStart:
        return find_start_positions(self.log, self.follower.request(restart), isolation="read_committed")

    def publish(self, start: TopicStart) -> None:
        """As it is stored and read again."""
        self.follower.facts = dict(start.facts)
        for vnode, begin in start.vnodes.items():
            self.follower.watermarks[vnode] = parse_watermark(long_watermark(begin.position, begin.history).to_json())


@pytest.fixture
def sink() -> Sink:
    """It has published 100 records of the log, which has no more."""
    made = Sink()
    made.log.hold([record(number) for number in range(100)], 100)
    made.follower.kafka = {"bootstrap_with": "latest"}
    made.publish(made.start())
    assert made.follower.watermarks == {f"{TOPIC}:0": long_watermark(100)}
    made.follower.kafka = {}
    return made


@pytest.mark.parametrize(
    "last",
    [record(99, "new"), record(99, epoch=1), replace(record(99), time_ms=5)],
    ids=["another record", "another epoch", "another time"],
)
@pytest.mark.parametrize("end", [100, 150])
def test_another_record_before_the_position_is_another_history(sink: Sink, last: RecordMark, end: int) -> None:
    sink.log.hold([last], end)

    with pytest.raises(PositionLostError, match=r"MyTopic:0: the offset 100 is no place of the log") as lost:
        sink.start()

    assert (lost.value.key, lost.value.at) == (f"{TOPIC}:0", long_watermark(100))


@pytest.mark.parametrize(
    ("records", "earliest", "end"),
    [
        ([record(99)], 0, 150),
        ([record(99, epoch=None)], 0, 150),
        ([], 0, 150),
        ([record(100, "new")], 100, 150),
    ],
    ids=["the same record", "brokers that say no epoch", "compacted", "deleted by retention"],
)
def test_what_speaks_for_no_other_history_is_gone_on_with(
    sink: Sink, records: Sequence[RecordMark], earliest: int, end: int
) -> None:
    sink.log.hold(records, end, earliest)

    assert sink.start().positions == {f"{TOPIC}:0": 100}


def test_of_a_position_that_was_published_long_ago_nothing_is_known_until_the_next_one(sink: Sink) -> None:
    sink.follower.watermarks = {f"{TOPIC}:0": 100}
    sink.log.hold([record(99, "new")], 150)
    checks = sink.log.checks

    assert sink.start().vnodes[f"{TOPIC}:0"].history == record(99, "new").write()
    assert sink.log.checks == checks


def test_a_leader_that_does_not_say_leaves_its_partition_out(sink: Sink) -> None:
    sink.log.is_silent = True

    start = sink.start()

    assert start.positions == {}
    assert "its leader does not say which record is before the next offset" in start.degraded[0]


def test_what_was_detected_stands_until_a_person_decides(sink: Sink) -> None:
    vnode = f"{TOPIC}:0"
    sink.follower.watermarks = {vnode: long_watermark(100, {LOST: "it was seen once"})}
    sink.log.hold([], 150)

    with pytest.raises(PositionLostError, match="it was seen once"):
        sink.start()

    assert sink.start(StartAt({0: 100})).positions == {f"{vnode}#1": 100}
    assert sink.start(Restart.MOVE_TO_LATEST).positions == {f"{vnode}#1": 150}
    assert sink.start(Restart.START_OVER).positions == {f"{vnode}#1": 0}
    with pytest.raises(PositionLostError):
        sink.start(StartAt({}))


@pytest.mark.parametrize("rule", ["fail", "nearest"])
def test_a_log_that_is_shorter_is_judged_by_the_rule(sink: Sink, rule: str) -> None:
    """By ``fail`` it is noted, so that it does not go on when the log has grown again."""
    sink.follower.kafka = {"reset_on_out_of_range": rule}
    sink.log.hold([record(49, "new")], 50)

    if rule == "nearest":
        assert sink.start().positions == {f"{TOPIC}:0#1": 50}
    else:
        with pytest.raises(PositionLostError, match="the topic's log has become shorter"):
            sink.start()


def test_a_rule_that_moves_a_lost_position_decides_as_well(sink: Sink) -> None:
    sink.follower.watermarks = {f"{TOPIC}:0": long_watermark(100, {LOST: "it was seen once"})}
    sink.follower.kafka = {"reset_on_out_of_range": "nearest"}
    sink.log.hold([], 150, 120)

    assert sink.start().vnodes[f"{TOPIC}:0"].history is None
    assert sink.start().positions == {f"{TOPIC}:0": 120}


@pytest.mark.parametrize("history", [None, {}, {"offset": "99"}, {"offset": 99, "epoch": 1}])
def test_a_history_in_other_words_says_nothing(history: Mapping[str, object] | None) -> None:
    assert read_mark(history) is None
