"""Which topics the sensor wants a run for, tick by tick: new, busy, too little, and again after a futile run."""

from collections.abc import Collection
from dataclasses import dataclass, field

import pytest

from gobblin_assets.dagster.log_sensors import (
    Due,
    Memory,
    decide_due,
    describe_left_out,
    find_news,
    read_memory,
    write_memory,
)
from gobblin_assets.dagster.sensor_ticks import TRY_WAIT_S_FIRST, TRY_WAIT_S_MAX
from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.sources.connection import LogNews
from gobblin_assets.spec.source_spec import NewDataSpec

A, B = DatasetUrn("a"), DatasetUrn("b")
NOTHING = LogNews({}, begins=False, mark="")


def some(count: int = 5, mark: str = "m1") -> LogNews:
    return LogNews({"0": (0, count)}, begins=False, mark=mark)


@dataclass
class Ticks:
    """A sensor's ticks; each gets the cursor of the one before, as Dagster keeps it."""

    rules: NewDataSpec = field(default_factory=NewDataSpec)
    cursor: str | None = None
    now_s: float = 1_000_000.0

    def tick(
        self, findings: dict[DatasetUrn, LogNews | None], *, busy: Collection[DatasetUrn] = (), after: float = 1
    ) -> Due:
        self.now_s += after
        due = decide_due(findings, busy, read_memory(self.cursor), self.rules, now_s=self.now_s)
        self.cursor = write_memory(due.memory)
        return due


def wanted(due: Due) -> list[str]:
    return list(due.wanted)


class TestWhatIsNew:
    def test_only_topics_with_something_new_are_asked_for(self) -> None:
        due = Ticks().tick({A: NOTHING, B: some()})
        assert wanted(due) == [B]

    def test_a_topic_whose_positions_are_still_to_be_set_is_asked_for_without_a_record(self) -> None:
        assert wanted(Ticks().tick({A: LogNews({}, begins=True, mark="m")})) == [A]

    def test_what_planning_would_refuse_is_asked_for_since_a_failed_run_shows_it(self) -> None:
        refused = find_news(RejectedError("there is no such topic", field="topic"))
        assert wanted(Ticks().tick({A: refused})) == [A]

    def test_a_topic_that_the_brokers_did_not_answer_for_is_left_to_the_next_tick(self) -> None:
        unknown = find_news(RetryableError("no leader"))
        due = Ticks().tick({A: unknown, B: some()})
        assert wanted(due) == [B]
        assert describe_left_out(due, [A]) == "1 not answered for by the brokers: a."

    def test_nothing_new_asks_for_nothing_and_remembers_nothing(self) -> None:
        ticks = Ticks()
        assert not ticks.tick({A: NOTHING}).wanted
        assert read_memory(ticks.cursor) == Memory()


class TestBusy:
    def test_what_is_at_work_is_left_out_and_the_others_are_asked_for(self) -> None:
        due = Ticks().tick({A: some(), B: some()}, busy=[A])
        assert wanted(due) == [B]
        assert describe_left_out(due, []) == "1 at work or queued already: a."

    def test_the_wait_for_the_next_try_begins_when_the_run_has_ended(self) -> None:
        ticks = Ticks()
        ticks.tick({A: some()})
        ticks.tick({A: some()}, busy=[A], after=10 * TRY_WAIT_S_FIRST)
        assert not ticks.tick({A: some()}, after=TRY_WAIT_S_FIRST - 1).wanted
        assert wanted(ticks.tick({A: some()}, after=2)) == [A]


class TestTries:
    def test_each_waits_longer_than_the_one_before_up_to_a_bound_and_none_shares_a_run_key(self) -> None:
        ticks, keys, waits = Ticks(), [], []
        keys.append(ticks.tick({A: some()}).run_key)
        for _try in range(12):
            asked_at = ticks.now_s
            due = ticks.tick({A: some()})
            while not due.wanted:
                assert due.held == [A]
                due = ticks.tick({A: some()}, after=TRY_WAIT_S_FIRST / 2)
            keys.append(due.run_key)
            waits.append(ticks.now_s - asked_at)
        assert waits == sorted(waits)
        assert TRY_WAIT_S_FIRST <= waits[0] <= 2 * TRY_WAIT_S_FIRST
        assert TRY_WAIT_S_MAX <= waits[-1] <= TRY_WAIT_S_MAX + TRY_WAIT_S_FIRST
        assert len(set(keys)) == len(keys)

    def test_a_run_that_got_further_is_followed_by_the_next_at_once(self) -> None:
        ticks = Ticks()
        first = ticks.tick({A: some()})
        second = ticks.tick({A: some(mark="m2")})
        assert wanted(second) == [A]
        assert first.run_key != second.run_key

    def test_a_topic_that_fails_holds_nothing_else_up(self) -> None:
        ticks = Ticks()
        ticks.tick({A: some(), B: some()})
        due = ticks.tick({A: some(), B: some(mark="m2")})
        assert (wanted(due), due.held) == ([B], [A])

    def test_a_topic_that_was_mended_and_read_by_hand_begins_anew(self) -> None:
        ticks = Ticks()
        for _try in range(5):
            ticks.tick({A: some()}, after=TRY_WAIT_S_MAX)
        ticks.tick({A: NOTHING})
        assert ticks.tick({A: some()}).wanted[A].tries == 1

    def test_the_same_tick_evaluated_again_asks_under_the_same_key(self) -> None:
        ticks = Ticks()
        ticks.tick({A: some()})
        cursor = ticks.cursor
        first = ticks.tick({A: some(), B: some()}, after=TRY_WAIT_S_MAX)
        ticks.cursor = cursor
        assert ticks.tick({A: some(), B: some()}, after=5).run_key == first.run_key

    def test_brokers_that_don_t_answer_for_a_while_make_nothing_forgotten(self) -> None:
        ticks = Ticks()
        ticks.tick({A: some()})
        ticks.tick({A: None})
        assert ticks.tick({A: some()}).held == [A]


class TestTooLittle:
    def test_fewer_records_than_the_job_says_wait_for_more(self) -> None:
        ticks = Ticks(NewDataSpec(records_min=10))
        assert ticks.tick({A: some(9)}).small == [A]
        assert not ticks.tick({A: some(9)}, after=1e6).wanted
        assert wanted(ticks.tick({A: some(10)})) == [A]

    def test_or_until_the_longest_wait_is_over(self) -> None:
        ticks = Ticks(NewDataSpec(records_min=10, wait_s_max=60))
        assert not ticks.tick({A: some(1)}).wanted
        assert not ticks.tick({A: some(2)}, after=59).wanted
        assert wanted(ticks.tick({A: some(2)}, after=1)) == [A]
        assert ticks.tick({A: some(1, "m2")}).small == [A], "the wait does not begin anew"

    def test_a_first_run_waits_for_nothing(self) -> None:
        ticks = Ticks(NewDataSpec(records_min=10))
        assert wanted(ticks.tick({A: LogNews({}, begins=True, mark="m")})) == [A]


@pytest.mark.parametrize("typed", ["", "not ours", "[]", '{"asked": {"a": 5}}'])
def test_a_cursor_that_somebody_typed_is_no_reason_to_stop(typed: str) -> None:
    assert wanted(Ticks(cursor=typed).tick({A: some()})) == [A]
