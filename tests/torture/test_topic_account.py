"""The account of what must be published of topics that lost their logs, where a person said how to go on."""

from collections import Counter
from collections.abc import Mapping

import pytest

from tests.support.producing import Facts
from tests.torture.topic_account import TopicAccount

ENDS = {"orders:0": 4, "orders:1": 3}
OLD: Mapping[str, int] = {"orders:0": 3, "orders:1": 2}


def facts(*ranges: tuple[int, int, int, int]) -> Facts:
    """Of each partition, from an offset to another one, numbers from ``first`` on."""
    return Counter((number, at, first + at) for number, low, high, first in ranges for at in range(low, high))


BEFORE = facts((0, 0, 4, 100), (1, 0, 3, 200))
NOW = facts((0, 0, 6, 300), (1, 0, 5, 200))
NOW_ENDS = {"orders:0": 6, "orders:1": 5}


@pytest.fixture
def account() -> TopicAccount:
    """The first partition has lost its log, and has six other records by now; the second one has grown."""
    made = TopicAccount()
    made.lose([0], BEFORE, ENDS)
    return made


def test_what_was_published_of_a_lost_log_stays_and_the_new_one_is_published_from_where_a_person_said(
    account: TopicAccount,
) -> None:
    account.decide({"orders:0": 3, "orders:1": 2}, {**OLD, "orders:0#1": 1})

    wanted, wrong = account.expect({"orders:0": 3, "orders:0#1": 6, "orders:1": 5}, NOW, NOW_ENDS)

    assert wrong == []
    assert wanted == facts((0, 0, 3, 100), (0, 1, 6, 300), (1, 0, 5, 200))
    assert account.list_gaps() == {("orders:0#1", 0, 1)}


def test_what_a_person_skips_is_not_wanted(account: TopicAccount) -> None:
    account.decide({"orders:0": 3, "orders:1": 2}, {"orders:0": 3, "orders:0#1": 6, "orders:1": 4})

    wanted, wrong = account.expect({"orders:0": 3, "orders:0#1": 6, "orders:1": 5}, NOW, NOW_ENDS)

    assert wrong == []
    assert wanted == facts((0, 0, 3, 100), (1, 0, 2, 200), (1, 4, 5, 200))
    assert account.list_gaps() == {("orders:0#1", 0, 6), ("orders:1", 2, 4)}


@pytest.mark.parametrize(
    ("marks", "said"),
    [
        ({"orders:0": 6, "orders:1": 5}, "orders:0 is published up to 6, and its log had 4 offsets"),
        ({"orders:0": 4, "orders:1": 5}, "orders:0 is at 4, and the topic's log, of which it should be, ends at 6"),
        ({"orders:0": 3, "orders:0#1": 6, "orders:1": 5}, "orders:0#1 has begun, and nobody said so"),
    ],
)
def test_a_position_that_goes_on_in_another_history_is_wrong(
    account: TopicAccount, marks: Mapping[str, int], said: str
) -> None:
    assert said in account.expect(marks, NOW, NOW_ENDS)[1]


def test_rows_that_went_with_their_place_are_missing_nowhere_and_count_as_there(account: TopicAccount) -> None:
    wanted, gone, doubted = facts((1, 0, 5, 200)), facts((1, 0, 2, 200)), facts((1, 2, 3, 200))
    account.give_up(gone, doubted)

    assert account.compare(wanted, facts((1, 2, 5, 200))) == (Counter(), Counter())
    assert account.compare(wanted, facts((1, 3, 5, 200))) == (Counter(), Counter())
    assert account.compare(wanted, facts((1, 4, 5, 200))) == (facts((1, 3, 4, 200)), Counter())
    assert account.compare(wanted, facts((1, 1, 5, 200))) == (Counter(), facts((1, 1, 2, 200)))
