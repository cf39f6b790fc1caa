"""What any store must do for keys that all partitions of a dataset share: those of a log, read window by window."""

import pytest

from gobblin_assets.commit.sequence import KeyMove, PublishedInterval
from gobblin_assets.errors import ConflictError
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.state.leases import Lease
from tests.support.commit_log import Built, LogWorld


def interval(low: int, high: int) -> Interval:
    return Interval(long_watermark(low), long_watermark(high))


def intervals(*edges: tuple[int, int]) -> tuple[PublishedInterval, ...]:
    return tuple(PublishedInterval(interval(low, high)) for low, high in edges)


def go_on(log: LogWorld, lease: Lease, window: str, old: int | None, *edges: tuple[int, int]) -> Built:
    """Publish the open window: from the watermark to the last of the edges."""
    left = None if old is None else long_watermark(old)
    move = KeyMove("t:0", "", left, long_watermark(edges[-1][1]), intervals(*edges))
    return log.publish(lease, partition=window, moves=[move])


def fill(
    log: LogWorld, lease: Lease, window: str, *edges: tuple[int, int], old: int | None = None, replaces: bool = False
) -> Built:
    """Publish a window that leaves the watermark where it is."""
    left = None if old is None else long_watermark(old)
    move = KeyMove("t:0", "", left, None, intervals(*edges))
    return log.publish(lease, partition=window, moves=[move], replaces=replaces)


def test_windows_move_one_watermark_and_are_published_by_their_own_names(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    go_on(log, lease, "day 1", None, (0, 10))
    go_on(log, lease, "day 2", 10, (10, 15))

    state = log.state_of(lease.dataset_id)
    assert list(state.keys) == [("t:0", "")]
    assert state.find_watermark("t:0", "") == long_watermark(15)
    assert state.published == {"day 1", "day 2"}
    assert state.ahead == {}


def test_a_window_that_is_filled_leaves_the_watermark_and_lies_ahead_of_it(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    go_on(log, lease, "day 1", None, (0, 10))
    fill(log, lease, "day 2", (12, 15), (17, 20), old=10)

    state = log.state_of(lease.dataset_id)
    assert state.find_watermark("t:0", "") == long_watermark(10)
    assert state.ahead == {("t:0", ""): (interval(12, 15), interval(17, 20))}

    go_on(log, lease, "day 3", 10, (10, 12), (15, 17), (20, 21))
    state = log.state_of(lease.dataset_id)
    assert state.find_watermark("t:0", "") == long_watermark(21)
    assert state.ahead == {}


def test_an_interval_that_a_watermark_lies_in_is_ahead_of_it(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    fill(log, lease, "day 1", (5, 10))
    assert log.state_of(lease.dataset_id).ahead == {("t:0", ""): (interval(5, 10),)}
    move = KeyMove("t:0", "", None, long_watermark(7), intervals((7, 7)))
    log.publish(lease, partition="day 2", moves=[move])
    assert log.state_of(lease.dataset_id).ahead == {("t:0", ""): (interval(5, 10),)}


def test_intervals_are_told_by_window_and_neighbours_are_one(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    go_on(log, lease, "day 1", None, (0, 4))
    go_on(log, lease, "day 1", 4, (4, 10))
    go_on(log, lease, "day 2", 10, (10, 15))
    fill(log, lease, "day 1", (20, 22), old=15)
    other = log.take(log.register("customers"))
    go_on(log, other, "day 1", None, (0, 100))

    load = log.datasets.load_intervals
    assert load(lease.dataset_id, "day 1") == {"t:0": [interval(0, 10), interval(20, 22)]}
    assert load(lease.dataset_id, "day 2") == {"t:0": [interval(10, 15)]}
    assert load(lease.dataset_id, "day 3") == {}
    assert load(lease.dataset_id, None) == {"t:0": [interval(0, 15), interval(20, 22)]}


def test_a_window_that_is_read_again_replaces_its_own_intervals_alone(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    old = go_on(log, lease, "day 1", None, (0, 10))
    neighbour = go_on(log, lease, "day 2", 10, (10, 15))
    new = fill(log, lease, "day 1", (0, 10), old=15, replaces=True)

    assert set(log.backing.list_rows("ledger", "sequence_id", "retired_by")) == {
        (old.sequence_id, new.sequence_id),
        (neighbour.sequence_id, None),
        (new.sequence_id, None),
    }
    state = log.state_of(lease.dataset_id)
    assert (state.find_watermark("t:0", ""), state.published) == (long_watermark(15), {"day 1", "day 2"})
    assert log.commits.load_publications(new.sequence_id)[0].watermarks == {}


def test_two_windows_never_hold_one_position(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    go_on(log, lease, "day 1", None, (0, 10))
    twice = KeyMove("t:0", "", long_watermark(10), None, intervals((20, 30), (9, 12)))
    built = log.prepare(lease, partition="day 2", moves=[twice])

    with pytest.raises(ConflictError):
        log.commits.finish(built.sequence_id, fence=lease.fence)
    assert log.datasets.load_intervals(lease.dataset_id, None) == {"t:0": [interval(0, 10)]}


def test_a_window_may_be_filled_from_a_plan_that_is_older_than_the_watermark(log: LogWorld) -> None:
    # Both were planned in one run, and the open window was published first.
    lease = log.take(log.register("orders"))
    go_on(log, lease, "day 2", None, (5, 10))
    fill(log, lease, "day 1", (0, 5), old=None)
    assert log.state_of(lease.dataset_id).find_watermark("t:0", "") == long_watermark(10)


def test_what_was_sealed_of_several_intervals_is_told(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    moves = (
        KeyMove("t:0", "", None, long_watermark(21), intervals((10, 12), (15, 17))),
        KeyMove("t:1", "", None, None, (PublishedInterval(interval(0, 5), long_watermark(0)),)),
        KeyMove("u", "day 1", None, None),
    )
    built = log.prepare(lease, partition="day 1", moves=moves)
    assert log.commits.load_sealed(built.sequence_id)[0].order.moves == moves


def test_a_dataset_that_published_nothing_has_no_partition(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    log.prepare(lease, partition="day 1")
    assert log.state_of(lease.dataset_id).published == frozenset()
