"""The fate of a sequence that its owner left unsealed: Postgres and the simulated database alike."""

from dataclasses import replace

import pytest

from gobblin_assets.errors import ConflictError, FencedError
from gobblin_assets.model.sequence_state import SequenceState
from tests.support.commit_log import Built, LogWorld, attempt_of, make_segments, staged_of


def state_of(log: LogWorld, built: Built) -> SequenceState:
    return log.commits.get(built.sequence_id).state


def test_the_next_owner_aborts_what_was_left_unsealed(log: LogWorld) -> None:
    built = log.build(log.take(log.register("orders")))
    fence = log.take_over(built.lease.dataset_id).fence

    log.commits.abort(built.sequence_id, fence=fence, error="left unsealed")

    found = log.commits.get(built.sequence_id)
    assert (found.state, found.last_error) == (SequenceState.ABORTED, "left unsealed")
    assert log.changes_nothing(lambda: log.commits.abort(built.sequence_id, fence=fence, error="left unsealed"))


def test_nobody_aborts_under_a_fence_that_was_replaced(log: LogWorld) -> None:
    built = log.build(log.take(log.register("orders")))
    log.take_over(built.lease.dataset_id)

    with pytest.raises(FencedError):
        log.commits.abort(built.sequence_id, fence=built.fence, error=None)
    assert state_of(log, built) is SequenceState.BUILDING


def test_what_was_sealed_is_not_aborted(log: LogWorld) -> None:
    built = log.prepare(log.take(log.register("orders")))

    with pytest.raises(ConflictError, match="PREPARED"):
        log.commits.abort(built.sequence_id, fence=built.fence, error=None)
    assert state_of(log, built) is SequenceState.PREPARED


def test_the_next_owner_may_go_on_building_what_is_published_already(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    new = log.begin(lease)
    fence = log.take_over(lease.dataset_id).fence

    def go_on() -> None:
        log.commits.continue_building(new.sequence_id, fence=fence)

    go_on()
    assert log.changes_nothing(go_on)

    attempt = log.register_attempt(replace(new, fence=fence))
    staged = staged_of(attempt, make_segments(attempt))
    log.commits.stage(staged)
    log.commits.seal(log.order(replace(new, fence=fence), [staged]))
    assert log.commits.finish(new.sequence_id, fence=fence) == 1


def test_the_last_owner_can_add_nothing_once_another_goes_on(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    built = log.build(lease)
    late = log.register_attempt(built.new, multi_work_unit=1)
    log.commits.continue_building(built.sequence_id, fence=log.take_over(lease.dataset_id).fence)

    with pytest.raises(FencedError):
        log.commits.register_attempt(attempt_of(built.new))
    with pytest.raises(FencedError):
        log.commits.stage(staged_of(late, make_segments(late)))


def test_nobody_goes_on_building_under_a_fence_that_was_replaced(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    new = log.begin(lease)
    log.take_over(lease.dataset_id)

    with pytest.raises(FencedError):
        log.commits.continue_building(new.sequence_id, fence=lease.fence)


def test_nobody_goes_on_building_what_was_sealed_or_aborted(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    sealed, aborted = log.prepare(lease), log.build(lease)
    log.commits.abort(aborted.sequence_id, fence=lease.fence, error=None)

    for built in (sealed, aborted):
        with pytest.raises(ConflictError):
            log.commits.continue_building(built.sequence_id, fence=lease.fence)
