"""What any lease store must do: Postgres and the simulated database alike."""

import pytest

from gobblin_assets.errors import FencedError, RejectedError
from gobblin_assets.model.state import DatasetId, RunId, WorkingState
from gobblin_assets.state.leases import RAN_OUT, Holder, Lease
from tests.support.commit_log import TTL_S, LogWorld


def another(log: LogWorld) -> Holder:
    return Holder("another worker", log.start_run())


def test_a_free_dataset_is_taken_by_name(log: LogWorld) -> None:
    orders = log.register("orders")
    assert not log.leases.get_status(orders).is_live
    holder = Holder("host:1", log.start_run(), "dagster-1")

    (lease,) = log.leases.take([orders], holder, ttl_s=TTL_S)

    status = log.leases.get_status(orders)
    assert (status.fence, status.is_live) == (lease.fence, True)
    assert (status.owner, status.run_id, status.dagster_run_id) == ("host:1", holder.run_id, "dagster-1")


def test_a_live_lease_is_refused_to_another_run(log: LogWorld) -> None:
    orders = log.register("orders")
    lease = log.take(orders)
    other = another(log)

    assert log.changes_nothing(lambda: log.leases.take([orders], other, ttl_s=TTL_S))
    assert log.leases.take([orders], other, ttl_s=TTL_S) == []
    assert log.leases.get_status(orders).fence == lease.fence


def test_the_same_owner_in_another_run_is_somebody_else(log: LogWorld) -> None:
    orders = log.register("orders")
    log.leases.take([orders], Holder("host:1", log.start_run()), ttl_s=TTL_S)

    assert log.leases.take([orders], Holder("host:1", log.start_run()), ttl_s=TTL_S) == []


def test_who_takes_over_ends_the_run_of_a_dead_owner_once_no_lease_of_it_lives(log: LogWorld) -> None:
    orders, items = log.register("orders"), log.register("items")
    dead, released = log.start_run(), log.start_run()
    log.leases.release([log.take(items, released)])
    log.take(orders, dead)
    log.advance(TTL_S - 1)
    log.take(items, dead)
    log.advance(2)

    taker = log.start_run()
    log.take(orders, taker)
    assert _states(log) == {dead: "RUNNING", released: "RUNNING", taker: "RUNNING"}, "it still holds another dataset"

    log.advance(TTL_S)
    last = log.start_run()
    log.take(items, last)
    assert _states(log) == {dead: "FAILED", released: "RUNNING", taker: "RUNNING", last: "RUNNING"}
    assert (dead, RAN_OUT) in log.backing.list_rows("run", "run_id", "error")


def test_a_run_that_takes_anew_what_it_let_run_out_goes_on_and_one_that_wakes_up_ends_by_its_own_word(
    log: LogWorld,
) -> None:
    orders, run_id = log.register("orders"), log.start_run()
    log.take(orders, run_id)
    log.advance(TTL_S + 1)
    log.take(orders, run_id)
    assert _states(log) == {run_id: "RUNNING"}

    log.take_over(orders)
    assert _states(log)[run_id] == "FAILED"
    log.runs.end(run_id, WorkingState.COMMITTED, error=None, figures={})
    assert _states(log)[run_id] == "COMMITTED"


def test_the_leases_of_a_run_that_is_known_to_be_dead_end_at_once_and_what_lives_on_of_it_publishes_nothing(
    log: LogWorld,
) -> None:
    orders, items, others = (log.register(name) for name in ("orders", "items", "others"))
    dead, living = log.start_run(), log.start_run()
    held = [log.take(orders, dead), log.take(items, dead)]
    others_lease = log.take(others, living)
    built = log.build(held[0])

    log.leases.end_dead_run(dead, "its process died of signal 9")

    assert _states(log) == {dead: "FAILED", living: "RUNNING"}
    assert (dead, "its process died of signal 9") in log.backing.list_rows("run", "run_id", "error")
    assert log.leases.renew([*held, others_lease], ttl_s=TTL_S) == {others}
    with pytest.raises(FencedError):
        log.commits.seal(built.order)
    assert log.changes_nothing(lambda: log.leases.end_dead_run(dead, "again"))
    taken = log.leases.take([orders, items], Holder("next", living), ttl_s=TTL_S)
    assert [lease.fence > before.fence for lease, before in zip(taken, held, strict=True)] == [True, True]


def test_a_run_that_is_known_to_be_dead_leaves_to_others_what_they_took_over(log: LogWorld) -> None:
    orders, dead = log.register("orders"), log.start_run()
    log.take(orders, dead)
    lease = log.take_over(orders)
    log.leases.end_dead_run(dead, "its process died")
    assert log.leases.renew([lease], ttl_s=TTL_S) == {orders}


def _states(log: LogWorld) -> dict[RunId, str]:
    return dict(log.backing.list_rows("run", "run_id", "state"))


def test_a_repeated_taking_returns_the_lease_that_the_first_one_got(log: LogWorld) -> None:
    orders, items = log.register("orders"), log.register("items")
    holder = another(log)
    first = log.leases.take([orders, items], holder, ttl_s=TTL_S)
    assert len(first) == 2

    assert log.changes_nothing(lambda: log.leases.take([orders, items], holder, ttl_s=TTL_S))
    assert log.leases.take([orders, items], holder, ttl_s=TTL_S) == first


def test_a_lease_that_ran_out_is_taken_over_under_a_higher_fence(log: LogWorld) -> None:
    orders = log.register("orders")
    fences = [log.take(orders).fence, *(log.take_over(orders).fence for _ in range(3))]

    assert fences == sorted(set(fences))
    assert fences[0] > 0


def test_a_run_that_takes_its_own_lapsed_lease_gets_a_new_fence(log: LogWorld) -> None:
    orders = log.register("orders")
    holder = another(log)
    (first,) = log.leases.take([orders], holder, ttl_s=TTL_S)
    log.advance(TTL_S + 1)

    (second,) = log.leases.take([orders], holder, ttl_s=TTL_S)

    assert second.fence > first.fence


def test_a_lease_that_ran_out_is_not_live_but_keeps_its_name(log: LogWorld) -> None:
    orders = log.register("orders")
    log.take(orders)
    log.advance(TTL_S + 1)

    status = log.leases.get_status(orders)
    assert (status.is_live, status.owner) == (False, "worker")


def test_what_is_busy_does_not_keep_the_others_from_being_taken(log: LogWorld) -> None:
    ids = [log.register(urn) for urn in ("a", "b", "c")]
    log.take(ids[1])

    taken = log.leases.take(ids, another(log), ttl_s=TTL_S)

    assert [lease.dataset_id for lease in taken] == [ids[0], ids[2]]


def test_a_released_dataset_is_free_at_once_and_its_fence_never_goes_back(log: LogWorld) -> None:
    orders = log.register("orders")
    lease = log.take(orders)

    log.leases.release([lease])

    status = log.leases.get_status(orders)
    assert (status.is_live, status.owner, status.fence) == (False, None, lease.fence)
    assert log.take(orders).fence > lease.fence


def test_a_repeated_release_changes_nothing(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    log.leases.release([lease])

    assert log.changes_nothing(lambda: log.leases.release([lease]))
    assert log.changes_nothing(lambda: log.leases.release([]))


def test_an_old_holder_can_t_end_the_lease_of_the_new_one(log: LogWorld) -> None:
    orders = log.register("orders")
    old = log.take(orders)
    log.take_over(orders)

    assert log.changes_nothing(lambda: log.leases.release([old]))
    assert log.leases.get_status(orders).is_live


def test_renewing_keeps_a_lease_alive(log: LogWorld) -> None:
    orders = log.register("orders")
    lease = log.take(orders)
    for _ in range(3):
        log.advance(TTL_S * 2 / 3)
        assert log.leases.renew([lease], ttl_s=TTL_S) == {orders}

    assert log.leases.get_status(orders).is_live
    assert log.leases.take([orders], another(log), ttl_s=TTL_S) == []


def test_a_lease_that_ran_out_but_was_not_taken_can_still_be_renewed(log: LogWorld) -> None:
    orders = log.register("orders")
    lease = log.take(orders)
    log.advance(TTL_S + 1)

    assert log.leases.renew([lease], ttl_s=TTL_S) == {orders}
    assert log.leases.get_status(orders).is_live


def test_renewing_returns_only_what_is_still_held(log: LogWorld) -> None:
    kept, lost, given = (log.take(log.register(urn)) for urn in ("kept", "lost", "given"))
    log.advance(TTL_S + 1)
    log.leases.renew([kept, given], ttl_s=TTL_S)
    log.take(lost.dataset_id)
    log.leases.release([given])
    unknown = Lease(DatasetId(999), 1)

    assert log.leases.renew([kept, lost, given, unknown], ttl_s=TTL_S) == {kept.dataset_id}
    assert log.leases.renew([], ttl_s=TTL_S) == frozenset()


def test_an_old_holder_can_t_extend_the_lease_of_the_new_one(log: LogWorld) -> None:
    orders = log.register("orders")
    old = log.take(orders)
    log.take_over(orders)

    assert log.changes_nothing(lambda: log.leases.renew([old], ttl_s=10 * TTL_S))


def test_a_dataset_that_was_never_registered_is_named(log: LogWorld) -> None:
    orders, unknown = log.register("orders"), DatasetId(999)

    with pytest.raises(RejectedError, match="999"):
        log.leases.get_status(unknown)
    with pytest.raises(RejectedError, match="999"):
        log.leases.take([orders, unknown], another(log), ttl_s=TTL_S)
    # They are taken together.
    assert not log.leases.get_status(orders).is_live


def test_those_that_somebody_holds_are_told_from_free_and_unknown_ones(log: LogWorld) -> None:
    held, gone, given = (log.take(log.register(urn)) for urn in ("held", "gone", "given"))
    log.advance(TTL_S + 1)
    log.leases.renew([held, given], ttl_s=TTL_S)
    log.leases.release([given])
    free = log.register("free")
    asked = [held.dataset_id, gone.dataset_id, given.dataset_id, free, DatasetId(999)]

    assert log.leases.list_live(asked) == {held.dataset_id}
    assert log.leases.list_live([]) == frozenset()


def test_the_fence_of_a_free_dataset_can_be_raised_and_never_lowered(log: LogWorld) -> None:
    orders = log.register("orders")
    assert log.leases.raise_fence(orders, floor=40)
    assert log.leases.raise_fence(orders, floor=7)

    assert log.take(orders).fence > 40


def test_the_fence_of_a_held_dataset_is_left_to_its_holder(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))

    assert log.changes_nothing(lambda: log.leases.raise_fence(lease.dataset_id, floor=40))
    assert not log.leases.raise_fence(lease.dataset_id, floor=40)
    log.advance(TTL_S + 1)
    assert log.leases.raise_fence(lease.dataset_id, floor=40)
    assert not log.leases.raise_fence(DatasetId(999), floor=40)
