"""What any commit step store must do after the seal: finish, count failures, block, resume, give up."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from gobblin_assets.commit.repair import UNLOGGED_FACT
from gobblin_assets.errors import ConflictError, FencedError
from gobblin_assets.model.sequence_state import EDGES, SequenceEvent, SequenceState
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.model.watermark import long_watermark
from tests.support.commit_log import JOB, Built, LogWorld, attempt_of, make_segments, move, staged_of


def published(log: LogWorld) -> list[str]:
    """The sequences whose files a reader of "orders" sees, newest first."""
    found = log.published.find(JOB, DatasetUrn("orders"), role=Role.DATA)
    return [] if found is None else [str(segment.sequence_id) for segment in found.segments]


def state_of(log: LogWorld, built: Built) -> SequenceState:
    return log.commits.get(built.sequence_id).state


# T3 -------------------------------------------------------------------------------------------------------------


def test_finishing_publishes_and_moves_version_and_watermark_at_once(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    built = log.prepare(lease)
    assert published(log) == []

    assert log.commits.finish(built.sequence_id, fence=lease.fence) == 1

    state = log.state_of(lease.dataset_id)
    assert (state.version, state.find_watermark("id", "")) == (1, long_watermark(10))
    assert published(log) == [str(built.sequence_id)]
    assert log.backing.list_rows("ledger", "sequence_id") == [(built.sequence_id,)]
    assert not log.commits.is_open_and_held(built.sequence_id, fence=lease.fence)


def test_a_repeated_finish_tells_the_version_that_the_first_one_made(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    first = log.publish(lease)
    log.publish(lease)

    assert log.changes_nothing(lambda: log.commits.finish(first.sequence_id, fence=lease.fence))
    assert log.commits.finish(first.sequence_id, fence=lease.fence) == 1


def test_the_next_owner_finishes_what_the_last_one_sealed(log: LogWorld) -> None:
    built = log.prepare(log.take(log.register("orders")))
    fence = log.take_over(built.lease.dataset_id).fence

    assert log.commits.finish(built.sequence_id, fence=fence) == 1


def test_nobody_finishes_under_a_fence_that_was_replaced(log: LogWorld) -> None:
    built = log.prepare(log.take(log.register("orders")))
    fence = log.take_over(built.lease.dataset_id).fence

    with pytest.raises(FencedError):
        log.commits.finish(built.sequence_id, fence=built.fence)
    assert state_of(log, built) is SequenceState.PREPARED
    log.commits.finish(built.sequence_id, fence=fence)
    with pytest.raises(FencedError):
        log.commits.finish(built.sequence_id, fence=built.fence)


def test_a_sequence_of_an_older_version_is_not_finished(log: LogWorld) -> None:
    """The protocol never leads here, since a lane has one open sequence. The comparison is a second safeguard."""
    lease = log.take(log.register("orders"))
    built = log.prepare(lease)
    log.backing.set_version(lease.dataset_id, 7)

    with pytest.raises(ConflictError):
        log.commits.finish(built.sequence_id, fence=lease.fence)
    assert (state_of(log, built), published(log)) == (SequenceState.PREPARED, [])


def test_a_watermark_that_is_not_where_the_plan_left_from_stops_the_finish(log: LogWorld) -> None:
    """The protocol never leads here, since the seal compares them as well. The comparison is a second safeguard."""
    lease = log.take(log.register("orders"))
    log.publish(lease, moves=[move(None, 10), move(None, 5, key="other")])
    built = log.prepare(lease, moves=[move(5, 20, key="other"), move(10, 20)])
    log.backing.set_watermark(lease.dataset_id, 9)

    with pytest.raises(ConflictError):
        log.commits.finish(built.sequence_id, fence=lease.fence)

    state = log.state_of(lease.dataset_id)
    assert state.version == 1
    assert [str(key.watermark) for _, key in sorted(state.keys.items())] == ["9", "5"], "the good move is undone too"
    assert len(log.backing.list_rows("ledger", "sequence_id")) == 2
    assert state_of(log, built) is SequenceState.PREPARED


def test_active_intervals_of_a_key_never_overlap(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    log.publish(lease, moves=[move(None, 10, low=0)])
    for low, high in ((9, 20), (5, 8), (-5, 1)):
        built = log.prepare(lease, moves=[move(10, high, low=low)])
        with pytest.raises(ConflictError):
            log.commits.finish(built.sequence_id, fence=lease.fence)
        give_up(log, built)

    # The intervals touch on both sides; another key or partition has its own positions.
    log.publish(lease, moves=[move(10, 20, low=10), move(None, 15, key="other")])
    log.publish(lease, moves=[move(None, 20, low=0, partition="2013-01")], partition="2013-01")
    log.publish(lease, moves=[move(20, 0, low=-10)])
    assert log.state_of(lease.dataset_id).version == 4


def test_an_interval_without_positions_is_not_written_down(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    log.publish(lease, moves=[move(None, 10)])
    log.publish(lease, moves=[move(10, 10)])

    assert len(log.backing.list_rows("ledger", "sequence_id")) == 1
    assert log.state_of(lease.dataset_id).version == 2


def test_a_key_has_one_active_generation(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    log.publish(lease, moves=[move(None, None)])
    second = log.prepare(lease, moves=[move(None, None)])

    with pytest.raises(ConflictError):
        log.commits.finish(second.sequence_id, fence=lease.fence)
    assert len(published(log)) == 1


def test_a_sequence_that_replaces_retires_what_stood_in_its_partition(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    old = log.publish(lease, partition="2013-01")
    neighbour = log.publish(lease, partition="2013-02")
    again = [move(10, 12, low=0, partition="2013-01")]

    new = log.publish(lease, partition="2013-01", replaces=True, moves=again)

    assert published(log) == [str(new.sequence_id), str(neighbour.sequence_id)]
    retired = dict(log.backing.list_rows("ledger", "sequence_id", "retired_by"))
    assert retired == {old.sequence_id: new.sequence_id, neighbour.sequence_id: None, new.sequence_id: None}
    assert log.state_of(lease.dataset_id).find_watermark("id", "2013-01") == long_watermark(12)


def test_a_snapshot_replaces_its_generation(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    log.publish(lease, replaces=True, moves=[move(None, None)])

    new = log.publish(lease, replaces=True, moves=[move(None, None)])

    assert published(log) == [str(new.sequence_id)]
    assert log.state_of(lease.dataset_id).published == {""}


# Failures -------------------------------------------------------------------------------------------------------


def test_a_failed_try_is_counted_with_its_reason(log: LogWorld) -> None:
    built = log.prepare(log.take(log.register("orders")))

    found = log.commits.record_failure(
        built.sequence_id, fence=built.fence, error="no room", tries_max=3, retry_in_s=5.0, block=False
    )

    assert (found.state, found.failed_tries, found.last_error) == (SequenceState.PREPARED, 1, "no room")
    assert log.commits.finish(built.sequence_id, fence=built.fence) == 1
    assert log.commits.get(built.sequence_id).last_error is None


def test_a_sequence_that_keeps_failing_is_blocked(log: LogWorld) -> None:
    built = log.prepare(log.take(log.register("orders")))
    states = []
    for _ in range(3):
        log.fail(built, tries_max=3)
        states.append(state_of(log, built))

    assert states == [SequenceState.PREPARED, SequenceState.PREPARED, SequenceState.BLOCKED]
    assert log.changes_nothing(lambda: log.fail(built, tries_max=3))


def test_a_contradiction_blocks_at_once(log: LogWorld) -> None:
    built = log.prepare(log.take(log.register("orders")))

    log.block(built)

    found = log.commits.get(built.sequence_id)
    assert (found.state, found.failed_tries) == (SequenceState.BLOCKED, 1)
    assert log.changes_nothing(lambda: log.block(built))
    with pytest.raises(ConflictError, match="BLOCKED"):
        log.commits.finish(built.sequence_id, fence=built.fence)


def test_a_resumed_sequence_starts_counting_anew(log: LogWorld) -> None:
    built = log.prepare(log.take(log.register("orders")))
    log.block(built)

    log.commits.resume(built.sequence_id, fence=built.fence)

    found = log.commits.get(built.sequence_id)
    assert (found.state, found.failed_tries) == (SequenceState.PREPARED, 0)
    assert log.changes_nothing(lambda: log.commits.resume(built.sequence_id, fence=built.fence))
    log.commits.finish(built.sequence_id, fence=built.fence)


# Giving up ------------------------------------------------------------------------------------------------------


def give_up(log: LogWorld, built: Built) -> None:
    log.commits.begin_abandon(built.sequence_id, fence=built.fence, reason="wrong")
    log.commits.end_abandon(built.sequence_id, fence=built.fence)


def test_names_that_the_log_does_not_know_any_more_are_kept_with_the_dataset(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    for names in (["b", "a"], ["c"]):
        built = log.prepare(lease)
        log.commits.begin_abandon(built.sequence_id, fence=built.fence, reason="wrong")
        log.commits.end_abandon(built.sequence_id, fence=built.fence, unlogged=names)

    partition = log.commits.get(built.sequence_id).partition
    assert log.state_of(lease.dataset_id).source_facts == {UNLOGGED_FACT: {partition: ["a", "b", "c"]}}


@pytest.mark.parametrize("blocked", [False, True])
def test_an_abandonment_marks_its_capture_before_anything_moves(log: LogWorld, blocked: bool) -> None:
    built = log.prepare(log.take(log.register("orders")))
    if blocked:
        log.block(built)

    log.commits.begin_abandon(built.sequence_id, fence=built.fence, reason="wrong data")

    found = log.commits.get(built.sequence_id)
    assert (found.state, found.last_error) == (SequenceState.ABANDONING, "wrong data")
    assert log.commits.list_attempts(built.sequence_id)[0].cleanup_fences == (built.fence,)
    # Its segments say which renames must be taken back.
    assert len(list(log.commits.read_segments(built.sequence_id))) == 1
    assert log.commits.is_open_and_held(built.sequence_id, fence=built.fence)


def test_the_next_owner_goes_on_abandoning_under_a_capture_of_its_own(log: LogWorld) -> None:
    built = log.prepare(log.take(log.register("orders")))
    log.commits.begin_abandon(built.sequence_id, fence=built.fence, reason="wrong")
    fence = log.take_over(built.lease.dataset_id).fence

    def abandon() -> None:
        log.commits.begin_abandon(built.sequence_id, fence=fence, reason="other words")

    abandon()
    assert log.commits.list_attempts(built.sequence_id)[0].cleanup_fences == (built.fence, fence)
    assert log.commits.get(built.sequence_id).last_error == "wrong"
    assert log.changes_nothing(abandon)

    log.commits.end_abandon(built.sequence_id, fence=fence)
    assert state_of(log, built) is SequenceState.ABORTED


def test_what_was_given_up_is_never_published_and_read_again(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    built = log.prepare(lease)

    give_up(log, built)

    assert log.changes_nothing(lambda: log.commits.end_abandon(built.sequence_id, fence=lease.fence))
    assert list(log.commits.read_segments(built.sequence_id)) == []
    assert log.state_of(lease.dataset_id).version == 0
    again = log.publish(lease)
    assert published(log) == [str(again.sequence_id)]


# All states, all transitions ------------------------------------------------------------------------------------


def bring_to(state: SequenceState, log: LogWorld, built: Built) -> None:
    """Lead the sequence from BUILDING to the state, by the shortest way."""
    sequence_id, fence = built.sequence_id, built.fence
    if state is SequenceState.ABORTED:
        log.commits.abort(sequence_id, fence=fence, error=None)
    elif state is not SequenceState.BUILDING:
        log.commits.seal(built.order)
    if state is SequenceState.BLOCKED:
        log.block(built)
    elif state is SequenceState.ABANDONING:
        log.commits.begin_abandon(sequence_id, fence=fence, reason="wrong")
    elif state is SequenceState.DONE:
        log.commits.finish(sequence_id, fence=fence)
    assert state_of(log, built) is state


CALLS: dict[SequenceEvent, Callable[[LogWorld, Built, int], object]] = {
    SequenceEvent.SEAL: lambda log, built, fence: log.commits.seal(replace(built.order, fence=fence)),
    SequenceEvent.FINISH: lambda log, built, fence: log.commits.finish(built.sequence_id, fence=fence),
    SequenceEvent.ABORT: lambda log, built, fence: log.commits.abort(built.sequence_id, fence=fence, error=None),
    SequenceEvent.BLOCK: lambda log, built, fence: log.commits.record_failure(
        built.sequence_id, fence=fence, error="", tries_max=1, retry_in_s=0.0, block=False
    ),
    SequenceEvent.RESUME: lambda log, built, fence: log.commits.resume(built.sequence_id, fence=fence),
    SequenceEvent.ABANDON: lambda log, built, fence: log.commits.begin_abandon(
        built.sequence_id, fence=fence, reason=""
    ),
    SequenceEvent.GIVE_UP: lambda log, built, fence: log.commits.end_abandon(built.sequence_id, fence=fence),
}


def outcomes_of(state: SequenceState, event: SequenceEvent) -> set[SequenceState]:
    """The states in which a transition may leave a sequence that is in ``state``; empty: it must be refused."""
    if (state, event) in EDGES:
        return {EDGES[state, event]}
    repeated = any(target is state and edge is event for (_source, edge), target in EDGES.items())
    return {state} if repeated else set()


@pytest.mark.parametrize("state", SequenceState)
def test_only_the_edges_of_the_machine_exist(log: LogWorld, state: SequenceState) -> None:
    for event, call in CALLS.items():
        built = log.build(log.take(log.register(f"{state} {event}")))
        bring_to(state, log, built)
        before = log.backing.digest()
        allowed = outcomes_of(state, event)
        if allowed:
            call(log, built, built.fence)
            assert state_of(log, built) in allowed, f"{event} of {state}"
            continue
        with pytest.raises(ConflictError):
            call(log, built, built.fence)
        assert log.backing.digest() == before, f"{event} of {state}"


@pytest.mark.parametrize("state", SequenceState)
def test_no_transition_happens_under_a_fence_that_was_replaced(log: LogWorld, state: SequenceState) -> None:
    for event, call in CALLS.items():
        built = log.build(log.take(log.register(f"{state} {event}")))
        bring_to(state, log, built)
        log.take_over(built.lease.dataset_id)
        before = log.backing.digest()
        with pytest.raises(FencedError):
            call(log, built, built.fence)
        assert log.backing.digest() == before


def test_no_work_is_added_outside_of_building(log: LogWorld) -> None:
    for state in SequenceState:
        built = log.build(log.take(log.register(str(state))))
        late = log.register_attempt(built.new, multi_work_unit=1)
        bring_to(state, log, built)
        if state is SequenceState.BUILDING:
            continue
        for call in (
            lambda built=built: log.commits.register_attempt(attempt_of(built.new)),
            lambda late=late: log.commits.stage(staged_of(late, make_segments(late))),
        ):
            with pytest.raises(FencedError):
                call()
