"""What any commit step store promises of publications at given names: Postgres and the simulated database alike."""

from dataclasses import replace

import pytest

from gobblin_assets.commit.postgres.cleaning import FENCES_KEPT_MAX
from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.errors import ConflictError, FencedError
from gobblin_assets.model.state import AttemptId
from gobblin_assets.state.leases import Lease
from tests.support.commit_log import Built, LogWorld, make_segments, staged_of

KEEP_S = 1_000.0


def build(log: LogWorld, lease: Lease, *, keep_s: float = KEEP_S) -> Built:
    """A sequence at given names with a staged attempt."""
    new = replace(log.plan(lease), slots_keep_s=keep_s)
    log.commits.begin(new)
    attempt = log.register_attempt(new)
    staged = staged_of(attempt, make_segments(attempt))
    log.commits.stage(staged)
    return Built(lease, new, attempt, staged, log.order(new, [staged]))


def prepare(log: LogWorld, lease: Lease, *, keep_s: float = KEEP_S) -> Built:
    built = build(log, lease, keep_s=keep_s)
    log.commits.seal(built.order)
    return built


def publish(log: LogWorld, lease: Lease, *, keep_s: float = KEEP_S) -> Built:
    built = prepare(log, lease, keep_s=keep_s)
    log.commits.finish(built.sequence_id, fence=lease.fence)
    return built


def fences_of(log: LogWorld, built: Built) -> tuple[int, ...]:
    (found,) = log.commits.list_attempts(built.sequence_id)
    return found.cleanup_fences


def mark(log: LogWorld, lease: Lease) -> dict[AttemptId, AttemptRecord]:
    found = log.commits.mark_for_cleanup({lease.dataset_id: lease.fence}, limit=10)
    return {attempt.attempt_id: attempt for attempt in found}


# Claims ---------------------------------------------------------------------------------------------------------


def test_a_claim_records_the_fence_and_returns_the_attempts_with_it(log: LogWorld) -> None:
    built = prepare(log, log.take(log.register("orders")))
    fence = log.take_over(built.lease.dataset_id).fence
    assert fences_of(log, built) == ()

    (claimed,) = log.commits.claim(built.sequence_id, fence=fence)

    assert (claimed.attempt_id, claimed.staging_path) == (built.attempt.attempt_id, built.attempt.staging_path)
    assert claimed.cleanup_fences == fences_of(log, built) == (fence,)
    assert claimed.is_at_given_names
    assert log.changes_nothing(lambda: log.commits.claim(built.sequence_id, fence=fence))


def test_each_claim_keeps_the_fences_of_those_before(log: LogWorld) -> None:
    built = prepare(log, log.take(log.register("orders")))
    fences = []
    for _ in range(FENCES_KEPT_MAX + 2):
        fences.append(log.take_over(built.lease.dataset_id).fence)
        log.commits.claim(built.sequence_id, fence=fences[-1])

    assert fences_of(log, built) == tuple(fences)


def test_a_claim_leaves_attempts_of_other_sequences_alone(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    earlier = publish(log, lease)
    built = prepare(log, lease)
    fence = log.take_over(lease.dataset_id).fence

    log.commits.claim(built.sequence_id, fence=fence)

    assert (fences_of(log, earlier), fences_of(log, built)) == ((), (fence,))


def test_nobody_claims_under_a_fence_that_was_replaced(log: LogWorld) -> None:
    built = prepare(log, log.take(log.register("orders")))
    stale = log.take_over(built.lease.dataset_id).fence
    log.take_over(built.lease.dataset_id)

    for fence in (built.fence, stale):
        with pytest.raises(FencedError):
            log.commits.claim(built.sequence_id, fence=fence)
    assert fences_of(log, built) == ()


def test_only_what_may_still_be_executed_is_claimed(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    built = build(log, lease)

    def refused() -> bool:
        with pytest.raises(ConflictError):
            log.commits.claim(built.sequence_id, fence=lease.fence)
        return fences_of(log, built) == ()

    assert refused(), "BUILDING"
    log.commits.seal(built.order)
    log.block(built)
    assert refused(), "BLOCKED"
    log.commits.begin_abandon(built.sequence_id, fence=lease.fence, reason="wrong")
    with pytest.raises(ConflictError):
        log.commits.claim(built.sequence_id, fence=lease.fence)


def test_an_abandonment_knows_the_fences_of_the_claims_before_it(log: LogWorld) -> None:
    built = prepare(log, log.take(log.register("orders")))
    fences = [log.take_over(built.lease.dataset_id).fence]
    log.commits.claim(built.sequence_id, fence=fences[0])
    fences.append(log.take_over(built.lease.dataset_id).fence)

    log.commits.begin_abandon(built.sequence_id, fence=fences[1], reason="wrong")

    assert fences_of(log, built) == tuple(fences)


# Cleaning -------------------------------------------------------------------------------------------------------


def test_slots_are_kept_for_their_time_after_the_publication(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    built = prepare(log, lease)
    log.advance(KEEP_S + 1)
    lease = log.take(built.lease.dataset_id)
    assert mark(log, lease) == {}, "it is not published yet"

    log.commits.finish(built.sequence_id, fence=lease.fence)
    assert mark(log, lease) == {}
    log.advance(KEEP_S - 1)
    assert mark(log, lease) == {}
    log.advance(2)

    (found,) = mark(log, lease).values()
    assert (found.attempt_id, found.is_at_given_names) == (built.attempt.attempt_id, True)
    assert found.cleanup_fences == (lease.fence,)


def test_each_publication_keeps_its_slots_for_its_own_time(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    long, short, none = (publish(log, lease, keep_s=keep_s) for keep_s in (KEEP_S, 10.0, 0.0))
    new_names = log.publish(lease)

    assert mark(log, lease).keys() == {none.attempt.attempt_id, new_names.attempt.attempt_id}
    log.advance(11)
    assert mark(log, lease).keys() >= {short.attempt.attempt_id}
    assert long.attempt.attempt_id not in mark(log, lease)


def test_what_was_given_up_has_nothing_to_keep(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    unsealed, abandoned = build(log, lease), prepare(log, lease)
    log.commits.abort(unsealed.sequence_id, fence=lease.fence, error="its run died")
    log.commits.begin_abandon(abandoned.sequence_id, fence=lease.fence, reason="wrong")
    assert mark(log, lease).keys() == {unsealed.attempt.attempt_id}

    log.commits.end_abandon(abandoned.sequence_id, fence=lease.fence)

    assert mark(log, lease).keys() == {unsealed.attempt.attempt_id, abandoned.attempt.attempt_id}


def test_fences_at_given_names_are_never_trimmed(log: LogWorld) -> None:
    """The directory stands under the fence of whoever moved it last, which may be old."""
    lease = log.take(log.register("orders"))
    built = build(log, lease)
    log.commits.abort(built.sequence_id, fence=lease.fence, error=None)
    fences = []
    for _ in range(FENCES_KEPT_MAX + 3):
        lease = log.take_over(lease.dataset_id)
        fences.append(lease.fence)
        assert mark(log, lease)[built.attempt.attempt_id].cleanup_fences == tuple(fences)


def test_nobody_calls_clean_what_a_newer_owner_has_marked(log: LogWorld) -> None:
    """The newer owner may have moved the directory to a name that the older one did not look at."""
    old = log.take(log.register("orders"))
    attempt_id = publish(log, old, keep_s=0.0).attempt.attempt_id
    assert mark(log, old).keys() == {attempt_id}
    new = log.take_over(old.dataset_id)
    assert mark(log, new).keys() == {attempt_id}

    assert log.changes_nothing(lambda: log.commits.mark_cleaned({attempt_id: old.fence}))
    assert mark(log, new).keys() == {attempt_id}

    log.commits.mark_cleaned({attempt_id: new.fence})
    assert mark(log, new) == {}
