"""What any commit step store gives to cleanup: Postgres and the simulated database alike."""

import uuid
from dataclasses import replace
from typing import Final

import pytest

from gobblin_assets.commit.postgres.cleaning import FAILED_GRACE_S, FENCES_KEPT_MAX, LEFT_OPEN, SILENT_GRACE_S
from gobblin_assets.commit.sequence import LeftoverRequest, NewAttempt, NewSequence
from gobblin_assets.errors import FencedError
from gobblin_assets.model.state import AttemptId, DatasetId
from gobblin_assets.state.leases import Lease
from tests.support.commit_log import LogWorld, move

REUSE_S: Final = 3_600.0


def marked(log: LogWorld, lease: Lease, *, limit: int = 10) -> dict[AttemptId, tuple[int, ...]]:
    found = log.commits.mark_for_cleanup({lease.dataset_id: lease.fence}, limit=limit)
    return {attempt.attempt_id: attempt.cleanup_fences for attempt in found}


def leave_behind(log: LogWorld, lease: Lease, *, failed: bool) -> NewAttempt:
    """An attempt that was never staged, in a sequence that was aborted."""
    new = log.begin(lease)
    attempt = log.register_attempt(new)
    if failed:
        log.commits.fail_attempt(attempt.attempt_id, error="no room", cancelled=False)
    log.commits.abort(new.sequence_id, fence=lease.fence, error=None)
    return attempt


def test_attempts_of_what_is_not_over_are_left_alone(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    log.build(lease)
    assert marked(log, lease) == {}, "BUILDING"

    built = log.prepare(lease)
    assert marked(log, lease) == {}, "PREPARED"
    log.block(built)
    assert marked(log, lease) == {}, "BLOCKED"
    log.commits.begin_abandon(built.sequence_id, fence=lease.fence, reason="wrong")
    assert marked(log, lease) == {}, "ABANDONING"

    log.commits.end_abandon(built.sequence_id, fence=lease.fence)
    assert marked(log, lease) == {built.attempt.attempt_id: (lease.fence,)}
    done = log.publish(lease)
    assert marked(log, lease).keys() == {built.attempt.attempt_id, done.attempt.attempt_id}


def begin_reusable(log: LogWorld, lease: Lease, *, partition: str = "") -> NewSequence:
    new = replace(log.plan(lease), slots_keep_s=0.0, reuse_keep_s=REUSE_S, partition=partition)
    log.commits.begin(new)
    return new


def leftovers(log: LogWorld, new: NewSequence, lease: Lease, *, limit: int = 10) -> dict[AttemptId, tuple[int, ...]]:
    request = LeftoverRequest(new.sequence_id, new.dataset_id, new.partition, lease.fence, REUSE_S, limit)
    return {each.attempt_id: each.cleanup_fences for each in log.commits.mark_for_reuse(request)}


def test_what_a_dead_run_left_is_for_the_next_until_its_time_is_over(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    dead = begin_reusable(log, lease)
    attempts = []
    for _try in range(2):
        attempts.append(log.register_attempt(dead).attempt_id)
        log.advance(1)
    assert leftovers(log, dead, lease) == {}, "both may still be at work"
    log.commits.fail_attempt(attempts[0], error="no room", cancelled=False)
    assert leftovers(log, dead, lease) == {attempts[0]: (lease.fence,)}, "a later try takes it"
    first = lease.fence
    lease = log.take_over(lease.dataset_id)
    log.commits.abort(dead.sequence_id, fence=lease.fence, error=None)

    other = begin_reusable(log, lease, partition="another")
    assert leftovers(log, other, lease) == {}
    log.commits.abort(other.sequence_id, fence=lease.fence, error=None)
    new = begin_reusable(log, lease)
    assert marked(log, lease) == {}, "they wait for the next"
    assert leftovers(log, new, lease, limit=1).keys() == {attempts[1]}
    assert leftovers(log, new, lease) == {attempts[1]: (lease.fence,), attempts[0]: (first, lease.fence)}
    assert log.changes_nothing(lambda: leftovers(log, new, lease))
    log.commits.abort(new.sequence_id, fence=lease.fence, error=None)

    log.advance(REUSE_S + 1)
    last = begin_reusable(log, lease)
    assert leftovers(log, last, lease) == {}
    assert marked(log, lease).keys() == set(attempts)


def test_what_a_dead_run_left_is_removed_once_the_partition_is_published(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    dead = begin_reusable(log, lease)
    attempt = log.register_attempt(dead).attempt_id
    log.commits.abort(dead.sequence_id, fence=lease.fence, error=None)
    assert marked(log, lease) == {}
    log.advance(1)

    done = log.publish(lease)

    assert marked(log, lease).keys() == {attempt, done.attempt.attempt_id}


def test_nobody_uses_what_was_given_up_or_under_a_fence_that_was_replaced(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    built = log.prepare(lease)
    log.commits.begin_abandon(built.sequence_id, fence=lease.fence, reason="wrong")
    log.commits.end_abandon(built.sequence_id, fence=lease.fence)
    new = begin_reusable(log, lease)
    assert leftovers(log, new, lease) == {}, "a person may have found it wrong"
    log.take_over(lease.dataset_id)

    with pytest.raises(FencedError):
        leftovers(log, new, lease)


def test_each_dataset_has_a_limit_of_its_own(log: LogWorld) -> None:
    leases = [log.take(log.register(urn)) for urn in ("orders", "clicks")]
    firsts = [leave_behind(log, lease, failed=True) for lease in leases]
    for lease in leases:
        leave_behind(log, lease, failed=True)

    found = log.commits.mark_for_cleanup({lease.dataset_id: lease.fence for lease in leases}, limit=1)

    assert {attempt.attempt_id for attempt in found} == {attempt.attempt_id for attempt in firsts}

    retired = [log.publish(lease) for lease in leases for _publication in range(2)][::2]
    for lease in leases:
        log.publish(lease, replaces=True)
    removable = log.commits.list_removable(*(lease.dataset_id for lease in leases), grace_s=0.0, limit=1)
    assert {segment.dataset_id for segment in removable} == {built.lease.dataset_id for built in retired}
    assert len(removable) == 2


def test_marks_of_each_owner_are_kept_so_that_every_capture_has_a_name(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    attempt = leave_behind(log, lease, failed=True)
    fences = [lease.fence]
    assert marked(log, lease) == {attempt.attempt_id: tuple(fences)}
    assert log.changes_nothing(lambda: marked(log, lease))

    for _ in range(FENCES_KEPT_MAX + 1):
        lease = log.take_over(lease.dataset_id)
        fences.append(lease.fence)
        assert marked(log, lease) == {attempt.attempt_id: tuple(fences[-FENCES_KEPT_MAX:])}


def test_nobody_marks_under_a_fence_that_was_replaced(log: LogWorld) -> None:
    old = log.take(log.register("orders"))
    leave_behind(log, old, failed=True)
    log.take_over(old.dataset_id)

    with pytest.raises(FencedError):
        log.commits.mark_for_cleanup({old.dataset_id: old.fence}, limit=10)
    with pytest.raises(FencedError):
        log.commits.mark_for_cleanup({DatasetId(999): 1}, limit=10)


def test_the_oldest_attempts_are_cleaned_first_and_only_so_many(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    attempts = []
    for _ in range(3):
        attempts.append(leave_behind(log, lease, failed=True).attempt_id)
        log.advance(1)

    assert marked(log, lease, limit=2).keys() == set(attempts[:2])


def test_an_attempt_counts_as_clean_once_its_writer_is_over(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    staged = log.publish(lease).attempt.attempt_id
    failed = leave_behind(log, lease, failed=True).attempt_id
    silent = leave_behind(log, lease, failed=False).attempt_id

    def look_again() -> set[AttemptId]:
        log.commits.mark_cleaned(dict.fromkeys([staged, failed, silent, AttemptId(uuid.uuid4())], lease.fence))
        return set(marked(log, lease))

    assert look_again() == {failed, silent}, "a staged one had written its last byte"
    log.advance(FAILED_GRACE_S - 1)
    assert look_again() == {failed, silent}
    log.advance(2)
    assert look_again() == {silent}, "no task of a failed one is left"
    log.advance(SILENT_GRACE_S - FAILED_GRACE_S - 2)
    assert look_again() == {silent}
    log.advance(3)
    assert look_again() == set()


def test_retired_files_may_be_removed_after_the_grace(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    first = log.publish(lease, replaces=True, moves=[move(None, None)])
    log.publish(lease, replaces=True, moves=[move(None, None)])
    log.prepare(lease, replaces=True, moves=[move(None, None)])

    def removable(grace_s: float = 100.0) -> list[uuid.UUID]:
        found = log.commits.list_removable(lease.dataset_id, grace_s=grace_s, limit=10)
        return [segment.segment_id for segment in found]

    assert removable() == []
    log.advance(99)
    assert removable() == []
    log.advance(2)
    assert removable() == list(first.staged.segment_ids)
    assert list(log.commits.list_removable(lease.dataset_id, grace_s=0.0, limit=0)) == []
    log.commits.mark_removed([*first.staged.segment_ids, uuid.uuid4()])
    assert removable(grace_s=0.0) == []


def states(log: LogWorld) -> dict[str, tuple[str, str | None, bool]]:
    """The log's record of each attempt: its state, its error, and whether an end was reported."""
    rows = log.backing.list_rows("attempt", "attempt_id", "state", "error", "ended_at")
    return {str(row[0]): (row[1], row[2], row[3] is not None) for row in rows}


def test_who_aborts_a_sequence_ends_its_attempts_and_their_writers_may_still_tell(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    new = log.begin(lease)
    silent, late = log.register_attempt(new), log.register_attempt(new, multi_work_unit=1)
    log.commits.abort(new.sequence_id, fence=lease.fence, error="its run died")
    assert states(log) == {str(each.attempt_id): ("CANCELLED", "its run died", False) for each in (silent, late)}

    log.commits.fail_attempt(late.attempt_id, error="no room", cancelled=False)

    assert states(log)[str(late.attempt_id)] == ("FAILED", "no room", True)
    assert log.changes_nothing(lambda: log.commits.fail_attempt(late.attempt_id, error="again", cancelled=True))
    log.advance(FAILED_GRACE_S + 1)
    log.commits.mark_cleaned(dict.fromkeys([silent.attempt_id, late.attempt_id], lease.fence))
    assert set(marked(log, lease)) == {silent.attempt_id}, "a silent writer may be a paused one"


def test_cleanup_ends_an_attempt_whose_sequence_went_on_without_it(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    built = log.build(lease)
    lost = log.register_attempt(built.new, multi_work_unit=7)
    assert marked(log, lease) == {}
    assert states(log)[str(lost.attempt_id)] == ("RUNNING", None, False), "its sequence may still wait for it"

    log.commits.seal(built.order)
    log.commits.finish(built.sequence_id, fence=lease.fence)
    marked(log, lease)

    assert states(log)[str(lost.attempt_id)] == ("CANCELLED", LEFT_OPEN, False)
    assert states(log)[str(built.attempt.attempt_id)][0] == "STAGED"
