"""What any commit step store must do until the seal: Postgres and the simulated database alike."""

import uuid
from dataclasses import replace

import pytest

from gobblin_assets.commit.segment import combine_digests
from gobblin_assets.errors import ConflictError, CorruptionError, FencedError, RejectedError
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.partition import WHOLE
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import AttemptId, RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.model.work_unit import WorkUnit, WorkUnitId
from tests.support.commit_log import ROOT_URI, Built, LogWorld, attempt_of, make_segments, move, staged_of


def unit(number: int, low: int, high: int, *, skipped: bool = False) -> WorkUnit:
    interval = Interval(long_watermark(low), long_watermark(high))
    name = DatasetUrn("orders")
    return WorkUnit(WorkUnitId(uuid.uuid4()), name, WHOLE, "id", number, interval, skipped=skipped)


def unit_states(log: LogWorld) -> list[str]:
    return [state for _number, state in log.backing.list_rows("work_unit", "number", "state")]


def state_of(log: LogWorld, built: Built) -> SequenceState:
    return log.commits.get(built.sequence_id).state


# Beginning ------------------------------------------------------------------------------------------------------


def test_a_sequence_begins_under_the_lease_and_knows_where_it_goes(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))

    new = log.begin(lease, partition="2013-01", replaces=True)

    found = log.commits.get(new.sequence_id)
    assert (found.state, found.fence, found.partition) == (SequenceState.BUILDING, lease.fence, "2013-01")
    assert (found.job, found.urn, found.run_id, found.mode) == ("shop", "orders", new.run_id, new.mode)
    assert (found.replaces, found.root_uri, found.failed_tries) == (True, ROOT_URI, 0)
    assert (found.base_version, found.digest, found.last_error) == (None, None, None)


def test_a_sequence_is_begun_once_with_its_work_units(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    new = log.begin(lease, units=[(0, unit(0, 0, 10)), (None, unit(1, 10, 20, skipped=True))])

    assert log.changes_nothing(lambda: log.commits.begin(new))
    assert unit_states(log) == ["PENDING", "SKIPPED"]


def test_nobody_begins_for_a_run_that_the_log_does_not_have(log: LogWorld) -> None:
    """This happens after a failover to an older standby."""
    lease = log.take(log.register("orders"))
    new = replace(log.begin(lease), run_id=RunId(uuid.uuid4()), sequence_id=SequenceId(uuid.uuid4()))

    with pytest.raises(ConflictError):
        log.commits.begin(new)


def test_nobody_begins_under_a_fence_that_was_replaced(log: LogWorld) -> None:
    old = log.take(log.register("orders"))
    begun = log.begin(old)
    log.take_over(old.dataset_id)
    late = replace(begun, sequence_id=SequenceId(uuid.uuid4()))

    with pytest.raises(FencedError):
        log.commits.begin(late)
    with pytest.raises(RejectedError, match=str(late.sequence_id)):
        log.commits.get(late.sequence_id)


def test_a_sequence_that_was_never_begun_is_named(log: LogWorld) -> None:
    log.take(log.register("orders"))
    unknown = SequenceId(uuid.uuid4())

    for call in (
        lambda: log.commits.get(unknown),
        lambda: log.commits.abort(unknown, fence=1, error=None),
        lambda: log.commits.finish(unknown, fence=1),
        lambda: log.commits.resume(unknown, fence=1),
        lambda: log.commits.begin_abandon(unknown, fence=1, reason=""),
        lambda: log.commits.end_abandon(unknown, fence=1),
        lambda: log.commits.load_publications(unknown)[0],
    ):
        with pytest.raises(RejectedError, match=str(unknown)):
            call()
    assert list(log.commits.read_segments(unknown)) == []
    assert not log.commits.is_open_and_held(unknown, fence=1)


# Attempts -------------------------------------------------------------------------------------------------------


def test_an_attempt_stands_in_the_log_before_it_writes(log: LogWorld) -> None:
    new = log.begin(log.take(log.register("orders")))

    attempt = log.register_attempt(new)

    (found,) = log.commits.list_attempts(new.sequence_id)
    assert (found.attempt_id, found.staging_path) == (attempt.attempt_id, attempt.staging_path)
    assert (found.sequence_state, found.cleanup_fences) == (SequenceState.BUILDING, ())
    assert found.interruption == attempt.interruption == {"session_id": "session", "user": "user", "tag": "tag"}
    assert log.changes_nothing(lambda: log.commits.register_attempt(attempt))


def test_no_attempt_starts_in_a_sequence_that_is_over_or_another_s(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    sealed = log.prepare(lease)
    stranger = replace(attempt_of(log.begin(lease)), fence=lease.fence + 1)

    for attempt in (attempt_of(sealed.new), stranger):
        with pytest.raises(FencedError):
            log.commits.register_attempt(attempt)
    assert len(log.commits.list_attempts(sealed.sequence_id)) == 1


def test_attempts_are_listed_in_the_order_of_their_start(log: LogWorld) -> None:
    new = log.begin(log.take(log.register("orders")))
    begun = []
    for number in range(4):
        begun.append(log.register_attempt(new, multi_work_unit=number).attempt_id)
        log.advance(1)

    assert [attempt.attempt_id for attempt in log.commits.list_attempts(new.sequence_id)] == begun


def test_a_failed_attempt_fails_its_work_units_and_is_never_staged(log: LogWorld) -> None:
    new = log.begin(log.take(log.register("orders")), units=[(0, unit(0, 0, 10)), (1, unit(1, 10, 20))])
    failed, cancelled = log.register_attempt(new), log.register_attempt(new, multi_work_unit=1)

    log.commits.fail_attempt(failed.attempt_id, error="no room", cancelled=False)
    log.commits.fail_attempt(cancelled.attempt_id, error="stopped", cancelled=True)

    assert unit_states(log) == ["FAILED", "CANCELLED"]
    assert log.changes_nothing(lambda: log.commits.fail_attempt(failed.attempt_id, error="no room", cancelled=False))
    for attempt in (failed, cancelled):
        with pytest.raises(ConflictError):
            log.commits.stage(staged_of(attempt, make_segments(attempt)))


def test_a_failure_reported_of_a_staged_attempt_changes_nothing(log: LogWorld) -> None:
    built = log.build(log.take(log.register("orders")))

    assert log.changes_nothing(
        lambda: log.commits.fail_attempt(built.attempt.attempt_id, error="ack lost", cancelled=False)
    )
    log.commits.seal(built.order)


def test_a_failure_of_an_unknown_attempt_changes_nothing(log: LogWorld) -> None:
    unknown = AttemptId(uuid.uuid4())

    assert log.changes_nothing(lambda: log.commits.fail_attempt(unknown, error="", cancelled=False))


# T1 -------------------------------------------------------------------------------------------------------------


def test_staging_stores_the_segments_and_the_highs_once(log: LogWorld) -> None:
    first, second = unit(0, 0, 10), unit(1, 10, 20)
    new = log.begin(log.take(log.register("orders")), units=[(0, first), (0, second)])
    attempt = log.register_attempt(new)
    highs = {first.id: long_watermark(10), second.id: None}
    staged = staged_of(attempt, make_segments(attempt), actual_highs=highs)
    log.commits.stage(staged)
    assert unit_states(log) == ["SUCCESSFUL", "SUCCESSFUL"]

    assert log.changes_nothing(lambda: log.commits.stage(staged))
    # Staged is not sealed: none of its steps is executed or published.
    assert list(log.commits.read_segments(new.sequence_id)) == []


def test_nothing_is_staged_after_the_seal_or_the_abort(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    for end in ("seal", "abort"):
        built = log.build(lease)
        late = log.register_attempt(built.new, multi_work_unit=1)
        if end == "seal":
            log.commits.seal(built.order)
        else:
            log.commits.abort(built.sequence_id, fence=lease.fence, error=None)
        with pytest.raises(FencedError):
            log.commits.stage(staged_of(late, make_segments(late)))
        with pytest.raises(FencedError):
            log.commits.stage(built.staged)
        if end == "seal":
            log.commits.finish(built.sequence_id, fence=lease.fence)


def test_staging_names_the_fence_of_its_sequence(log: LogWorld) -> None:
    new = log.begin(log.take(log.register("orders")))
    attempt = log.register_attempt(new)

    with pytest.raises(FencedError):
        log.commits.stage(staged_of(attempt, make_segments(attempt), fence=new.fence + 1))


def test_one_attempt_of_a_multi_work_unit_is_staged(log: LogWorld) -> None:
    built = log.build(log.take(log.register("orders")))
    again = log.register_attempt(built.new, try_number=2)
    other_work = log.register_attempt(built.new, multi_work_unit=1)

    with pytest.raises(ConflictError):
        log.commits.stage(staged_of(again, make_segments(again)))
    log.commits.stage(staged_of(other_work, make_segments(other_work)))


def test_a_second_try_may_be_staged_after_the_first_failed(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    new = log.begin(lease)
    first, second = log.register_attempt(new), log.register_attempt(new, try_number=2)
    log.commits.fail_attempt(first.attempt_id, error="no room", cancelled=False)
    staged = staged_of(second, make_segments(second))
    log.commits.stage(staged)

    log.commits.seal(log.order(new, [staged]))

    assert [s.segment_id for s in log.commits.read_segments(new.sequence_id)] == list(staged.segment_ids)


# T2 -------------------------------------------------------------------------------------------------------------


def test_the_seal_fixes_what_is_published(log: LogWorld) -> None:
    built = log.prepare(log.take(log.register("orders")))

    found = log.commits.get(built.sequence_id)
    assert (found.state, found.base_version, found.digest) == (SequenceState.PREPARED, 0, built.order.digest)
    assert found.details == {"root_uri": ROOT_URI, **built.order.details}
    (segment,) = log.commits.read_segments(built.sequence_id)
    assert (segment.segment_id, segment.root_uri) == (built.staged.segment_ids[0], ROOT_URI)
    assert (bytes(segment.payload), bytes(segment.digest)) == (
        built.staged.segments[0].payload,
        built.staged.segments[0].digest,
    )
    assert log.commits.is_open_and_held(built.sequence_id, fence=built.fence)
    assert not log.commits.is_open_and_held(built.sequence_id, fence=built.fence + 1)


def test_a_repeated_seal_is_content(log: LogWorld) -> None:
    built = log.prepare(log.take(log.register("orders")))

    assert log.changes_nothing(lambda: log.commits.seal(built.order))


def test_a_seal_that_says_something_else_than_the_first_is_refused(log: LogWorld) -> None:
    built = log.prepare(log.take(log.register("orders")))

    with pytest.raises(ConflictError, match="PREPARED"):
        log.commits.seal(replace(built.order, digest=combine_digests([b"other"])))


def test_only_winners_are_sealed(log: LogWorld) -> None:
    built = log.build(log.take(log.register("orders")))
    discarded = log.register_attempt(built.new, multi_work_unit=1)
    log.commits.stage(staged_of(discarded, make_segments(discarded)))

    log.commits.seal(built.order)

    found = [segment.segment_id for segment in log.commits.read_segments(built.sequence_id)]
    assert found == list(built.staged.segment_ids)


def test_an_empty_run_is_sealed_and_finished_too(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    new = log.begin(lease)

    log.commits.seal(log.order(new, [], moves=[]))

    assert list(log.commits.read_segments(new.sequence_id)) == []
    assert log.commits.finish(new.sequence_id, fence=lease.fence) == 1


def test_nobody_seals_under_a_fence_that_was_replaced(log: LogWorld) -> None:
    built = log.build(log.take(log.register("orders")))
    log.take_over(built.lease.dataset_id)

    with pytest.raises(FencedError):
        log.commits.seal(built.order)
    assert state_of(log, built) is SequenceState.BUILDING


def test_the_next_owner_does_not_seal_what_the_last_one_built(log: LogWorld) -> None:
    built = log.build(log.take(log.register("orders")))
    fence = log.take_over(built.lease.dataset_id).fence

    with pytest.raises(CorruptionError):
        log.commits.seal(replace(built.order, fence=fence))
    assert state_of(log, built) is SequenceState.BUILDING


def test_a_seal_planned_on_an_older_version_is_refused(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    early = log.build(lease)
    log.publish(lease)

    with pytest.raises(ConflictError, match="version 1"):
        log.commits.seal(early.order)
    assert list(log.commits.read_segments(early.sequence_id)) == []


def test_a_seal_whose_winner_is_not_staged_is_refused(log: LogWorld) -> None:
    built = log.build(log.take(log.register("orders")))
    running = log.register_attempt(built.new, multi_work_unit=1)
    unknown = AttemptId(uuid.uuid4())

    for stranger in (running.attempt_id, unknown):
        with pytest.raises(ConflictError, match="1 of 2"):
            log.commits.seal(replace(built.order, winners=(*built.order.winners, stranger)))
    assert state_of(log, built) is SequenceState.BUILDING


def test_a_winner_of_another_sequence_is_refused(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    mine, other = log.build(lease), log.build(lease)

    with pytest.raises(ConflictError, match="0 of 1"):
        log.commits.seal(replace(mine.order, winners=other.order.winners))


def test_a_seal_of_other_segments_than_were_written_is_refused(log: LogWorld) -> None:
    built = log.build(log.take(log.register("orders")))
    order = built.order

    for wrong in (
        replace(order, digest=combine_digests([b"other"])),
        replace(order, segment_count=order.segment_count + 1),
        replace(order, row_count=order.row_count - 1),
    ):
        with pytest.raises(CorruptionError):
            log.commits.seal(wrong)
    assert log.changes_nothing(lambda: list(log.commits.read_segments(built.sequence_id)))
    log.commits.seal(order)


def test_two_moves_of_one_key_are_refused(log: LogWorld) -> None:
    built = log.build(log.take(log.register("orders")), moves=[move(None, 10), move(None, 20)])

    with pytest.raises(ConflictError):
        log.commits.seal(built.order)
    assert log.state_of(built.lease.dataset_id).keys == {}


def test_one_sequence_of_a_dataset_is_open_at_a_time(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    first, second = log.prepare(lease), log.build(lease)
    elsewhere = log.build(log.take(log.register("items")))

    with pytest.raises(ConflictError, match="open"):
        log.commits.seal(second.order)
    log.block(first)
    with pytest.raises(ConflictError, match="open"):
        log.commits.seal(second.order)
    log.commits.begin_abandon(first.sequence_id, fence=lease.fence, reason="wrong")
    with pytest.raises(ConflictError, match="open"):
        log.commits.seal(second.order)

    log.commits.seal(elsewhere.order)
    log.commits.end_abandon(first.sequence_id, fence=lease.fence)
    log.commits.seal(second.order)


def test_an_aborted_sequence_is_never_sealed(log: LogWorld) -> None:
    built = log.build(log.take(log.register("orders")))
    log.commits.abort(built.sequence_id, fence=built.fence, error="stopped")

    with pytest.raises(ConflictError, match="ABORTED"):
        log.commits.seal(built.order)
