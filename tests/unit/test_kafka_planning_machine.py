"""A dataset that follows logs which grow, lose both ends, fail to answer, get new partitions and are made anew.

Records have an identity, so that lost, repeated and omitted records can be told apart whatever their offsets are.
"""

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.run.job_kind import Restart
from gobblin_assets.sources.kafka.cluster import TopicOffsets
from gobblin_assets.sources.kafka.planning import ChosenRange, TopicDecision
from tests.support.topic_plans import TOPIC, Follower, offsets_of

PARTITIONS_MAX = 4
_RECORDS = itertools.count()


@dataclass
class Log:
    """A partition: ``records[offset]`` is a record's identity; records below ``earliest`` are deleted.

    ``below`` is set when the log became shorter than its published part. The log then stays so until a run has seen it:
    once the log has grown again, its offsets would not show what happened.
    """

    records: list[int] = field(default_factory=list)
    earliest: int = 0
    below: int | None = None

    def append(self, count: int) -> None:
        room = count if self.below is None else max(0, self.below - 1 - len(self.records))
        self.records += [next(_RECORDS) for _ in range(min(count, room))]


class FollowedTopic(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[int, Log] = {}
        self.topic_id = 0
        self.followed_id: int | None = None
        self.follower = Follower()
        self.read: set[int] = set()
        self.lost: set[int] = set()
        self.at_first: set[int] = set()
        self.had_position: set[int] = set()
        self.published: dict[str, list[tuple[int, int]]] = {}

    @initialize(
        partitions=st.integers(1, PARTITIONS_MAX - 1),
        bootstrap=st.sampled_from(["earliest", "latest"]),
        offsets_max=st.sampled_from([None, 3]),
    )
    def begin(self, partitions: int, bootstrap: str, offsets_max: int | None) -> None:
        self.logs = {number: Log() for number in range(partitions)}
        self.follower.kafka = {
            "bootstrap_with": bootstrap,
            "reset_on_out_of_range": "nearest",
            "records_per_partition_max": offsets_max,
        }

    @rule(data=st.data(), count=st.integers(1, 8))
    def append(self, data: st.DataObject, count: int) -> None:
        self.logs[data.draw(st.sampled_from(sorted(self.logs)))].append(count)

    @rule(data=st.data(), count=st.integers(1, 6))
    def delete_old(self, data: st.DataObject, count: int) -> None:
        log = self.logs[data.draw(st.sampled_from(sorted(self.logs)))]
        # Records that are written and deleted again below a position ahead of the log leave no trace.
        assume(log.below is None)
        log.earliest = min(len(log.records), log.earliest + count)

    @rule(data=st.data(), count=st.integers(1, 6))
    def cut_end(self, data: st.DataObject, count: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.logs)))
        log = self.logs[number]
        del log.records[max(log.earliest, len(log.records) - count) :]
        watermark = self.find_watermark(number)
        if watermark is not None and len(log.records) < watermark:
            log.below = watermark

    @precondition(lambda self: 0 < len(self.logs) < PARTITIONS_MAX)
    @rule()
    def add_partition(self) -> None:
        self.logs[len(self.logs)] = Log()

    @rule(partitions=st.integers(1, PARTITIONS_MAX))
    def make_anew(self, partitions: int) -> None:
        self.topic_id += 1
        self.logs = {number: Log() for number in range(partitions)}

    @rule(failed=st.sets(st.integers(0, PARTITIONS_MAX - 1), max_size=2), unread=st.sets(st.integers(0, 3), max_size=2))
    def run(self, failed: set[int], unread: set[int]) -> None:
        restart = Restart.START_OVER if self.followed_id not in (None, self.topic_id) else None
        offsets = self.ask(failed & self.logs.keys())
        if restart is not None:
            self.expect_stop(offsets)
        try:
            decision = self.follower.decide(offsets, restart)
        except RetryableError:
            assert offsets.failures
            assert restart is not None or not offsets.partitions
            return
        self.publish(decision, frozenset(unread))

    @rule()
    def run_in_vain(self) -> None:
        if self.followed_id in (None, self.topic_id):
            self.follower.decide(self.ask(set()))

    @invariant()
    def watermarks_end_what_was_published(self) -> None:
        for key, intervals in self.published.items():
            assert self.follower.watermarks[key] == intervals[-1][1]

    def ask(self, failed: set[int]) -> TopicOffsets:
        known = {n: (log.earliest, len(log.records)) for n, log in self.logs.items() if n not in failed}
        return offsets_of(known, *failed, topic_id=str(self.topic_id))

    def expect_stop(self, offsets: TopicOffsets) -> None:
        with pytest.raises(RejectedError, match="deleted and made again"):
            self.follower.decide(offsets)

    def publish(self, decision: TopicDecision, unread: frozenset[int]) -> None:
        if self.followed_id != self.topic_id:
            self.at_first, self.had_position = set(self.logs), set()
        for number, chosen in decision.ranges.items():
            if number not in self.at_first | self.had_position:
                assert chosen.offsets.low == self.logs[number].earliest, "what was added is read from its beginning"
            if number not in unread:
                self.check(self.logs[number], chosen)
        self.follower.publish(decision, without=unread)
        self.had_position |= set(decision.ranges) - unread
        self.followed_id = self.topic_id

    def check(self, log: Log, chosen: ChosenRange) -> None:
        low, high = chosen.offsets.low, chosen.offsets.high
        intervals = self.published.setdefault(str(chosen.key), [])
        if intervals:
            assert low - intervals[-1][1] == chosen.offsets.lost, "what is skipped is what is counted, and never less"
        intervals.append((low, high))
        records = log.records[low:high]
        assert len(records) == high - low
        assert self.read.isdisjoint(records), "no record is read twice"
        self.read.update(records)
        left_out = set(log.records[:low]) - self.read - self.lost
        if not intervals[:-1]:
            # Records that were deleted before a partition was first seen never existed for this dataset.
            left_out -= set(log.records[: log.earliest])
        assert len(left_out) <= chosen.offsets.lost
        self.lost |= set(log.records[:low]) - self.read
        log.below = None

    def find_watermark(self, number: int) -> int | None:
        """The newest watermark of the topic that is followed; None for a topic that was made anew since."""
        if self.followed_id != self.topic_id:
            return None
        generations = [name for name in self.published if name.partition("#")[0] == f"{TOPIC}:{number}"]
        newest = max(generations, key=lambda name: int(name.partition("#")[2] or 0), default=None)
        at = None if newest is None else self.follower.watermarks[newest]
        return at if isinstance(at, int) else None


FollowedTopic.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
test_nothing_is_read_twice_or_lost_uncounted_whatever_happens_to_the_logs = FollowedTopic.TestCase
