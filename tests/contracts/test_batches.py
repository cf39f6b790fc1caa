"""What any commit step store must do with sequences of several datasets at once: all of it, or nothing."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from gobblin_assets.errors import ConflictError, FencedError, GobblinError, RejectedError
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import DatasetId, DatasetOutcome, SequenceId
from gobblin_assets.state.datasets import RunDatasetRecord
from gobblin_assets.state.leases import Lease
from tests.support.commit_log import Built, LogWorld, attempt_of, make_segments, move, staged_of

URNS = ("orders", "clicks", "views")


def refuses_all(log: LogWorld, call: Callable[[], object], error: type[GobblinError]) -> None:
    before = log.backing.digest()
    with pytest.raises(error):
        call()
    assert log.backing.digest() == before


def take_all(log: LogWorld) -> list[Lease]:
    return [log.take(log.register(urn)) for urn in URNS]


def build_all(log: LogWorld) -> list[Built]:
    """Begin, register and stage all sequences, each step by one call."""
    leases = take_all(log)
    news = [log.plan(lease) for lease in leases]
    log.commits.begin(*news)
    attempts = [attempt_of(new) for new in news]
    log.commits.register_attempt(*attempts)
    staged = [staged_of(each, make_segments(each)) for each in attempts]
    log.commits.stage(*staged)
    return [
        Built(lease, new, attempt, each, log.order(new, [each]))
        for lease, new, attempt, each in zip(leases, news, attempts, staged, strict=True)
    ]


def fences(all_built: list[Built]) -> dict[SequenceId, int]:
    return {built.sequence_id: built.fence for built in all_built}


def test_sequences_of_several_datasets_go_all_the_way_together(log: LogWorld) -> None:
    all_built = build_all(log)
    log.commits.seal(*(built.order for built in all_built))
    ids = [built.sequence_id for built in all_built]
    assert [sealed.order.sequence_id for sealed in log.commits.load_sealed(*ids)] == ids

    assert log.commits.finish_all(fences(all_built)) == dict.fromkeys(ids, 1)

    found = log.commits.load_publications(*reversed(ids))
    assert [publication.sequence_id for publication in found] == ids[::-1]
    assert {publication.urn for publication in found} == set(URNS)
    assert [publication.watermarks for publication in found] == [{"id": (None, "10")}] * 3
    for built in all_built:
        assert str(log.state_of(built.lease.dataset_id).find_watermark("id", "")) == "10"
    log.commits.mark_announced(*ids)
    assert log.commits.list_unannounced(job=found[0].job, limit=10) == []


def test_a_repeat_of_what_was_done_in_part_or_whole_is_content(log: LogWorld) -> None:
    all_built = build_all(log)
    first, *others = all_built
    log.commits.seal(first.order)
    log.commits.seal(*(built.order for built in all_built))
    log.commits.finish(first.sequence_id, fence=first.fence)

    assert log.commits.finish_all(fences(all_built)) == {built.sequence_id: 1 for built in all_built}

    assert log.changes_nothing(lambda: log.commits.finish_all(fences(all_built)))
    assert [log.commits.get(built.sequence_id).state for built in others] == [SequenceState.DONE] * 2


def test_staging_again_leaves_what_is_staged_and_stages_the_rest(log: LogWorld) -> None:
    leases = take_all(log)
    news = [log.begin(lease) for lease in leases]
    attempts = [log.register_attempt(new) for new in news]
    staged = [staged_of(each, make_segments(each)) for each in attempts]
    log.commits.stage(staged[1])

    log.commits.stage(*staged)

    found = [segment.segment_id for new in news for segment in log.commits.read_segments(new.sequence_id)]
    assert found == []
    for new, each in zip(news, staged, strict=True):
        log.commits.seal(log.order(new, [each]))
    found = [segment.segment_id for new in news for segment in log.commits.read_segments(new.sequence_id)]
    assert found == [segment_id for each in staged for segment_id in each.segment_ids]


def seal_all(log: LogWorld, all_built: list[Built]) -> None:
    log.commits.seal(*(built.order for built in all_built))


def finish_all(log: LogWorld, all_built: list[Built]) -> None:
    log.commits.finish_all(fences(all_built))


@pytest.mark.parametrize("act", [seal_all, finish_all])
def test_one_that_was_taken_over_keeps_all_from_it(log: LogWorld, act: Callable[[LogWorld, list[Built]], None]) -> None:
    all_built = build_all(log)
    if act is finish_all:
        seal_all(log, all_built)
    log.take_over(all_built[1].lease.dataset_id)

    refuses_all(log, lambda: act(log, all_built), FencedError)


def test_one_that_was_taken_over_keeps_all_from_being_begun_registered_or_staged(log: LogWorld) -> None:
    leases = take_all(log)
    news = [log.plan(lease) for lease in leases]
    begun = [log.begin(lease) for lease in leases]
    attempts = [attempt_of(new) for new in begun]
    registered = [log.register_attempt(new) for new in begun]
    log.commits.abort(begun[1].sequence_id, fence=leases[1].fence, error=None)
    log.take_over(leases[1].dataset_id)

    refuses_all(log, lambda: log.commits.begin(*news), FencedError)
    refuses_all(log, lambda: log.commits.register_attempt(*attempts), FencedError)
    staged = [staged_of(each, make_segments(each)) for each in registered]
    refuses_all(log, lambda: log.commits.stage(*staged), FencedError)


def test_one_planned_on_an_older_version_keeps_all_from_being_sealed(log: LogWorld) -> None:
    all_built = build_all(log)
    orders = [built.order for built in all_built]
    orders[2] = replace(orders[2], base_version=7)
    refuses_all(log, lambda: log.commits.seal(*orders), ConflictError)


def test_one_whose_watermark_is_elsewhere_keeps_all_from_being_sealed_and_finished(log: LogWorld) -> None:
    all_built = build_all(log)
    orders = [built.order for built in all_built]
    orders[0] = replace(orders[0], moves=(move(3, 9),))
    refuses_all(log, lambda: log.commits.seal(*orders), ConflictError)

    seal_all(log, all_built)
    log.backing.set_watermark(all_built[0].lease.dataset_id, 3)
    refuses_all(log, lambda: log.commits.finish_all(fences(all_built)), ConflictError)


def test_an_unknown_one_keeps_all_from_being_loaded(log: LogWorld) -> None:
    all_built = build_all(log)
    seal_all(log, all_built)
    known = [built.sequence_id for built in all_built]
    unknown = SequenceId(all_built[0].attempt.attempt_id)
    with pytest.raises(RejectedError):
        log.commits.load_sealed(*known, unknown)
    with pytest.raises((ConflictError, RejectedError)):
        log.commits.load_publications(known[0])


def test_what_is_replaced_is_that_of_each_sequence_s_own_partition(log: LogWorld) -> None:
    leases = take_all(log)
    old = [log.publish(lease, partition=part) for lease, part in zip(leases, ("a", "b", "c"), strict=True)]
    new = [
        log.prepare(lease, partition=part, replaces=True, moves=[move(old, 12, low=0, partition=part)])
        for lease, part, old in zip(leases, ("a", "b", "x"), (10, 10, None), strict=True)
    ]
    log.commits.finish_all(fences(new))

    retired = dict(log.backing.list_rows("ledger", "sequence_id", "retired_by"))
    assert [retired[built.sequence_id] for built in old] == [new[0].sequence_id, new[1].sequence_id, None]


def test_attempts_of_several_datasets_are_marked_with_the_fence_of_each(log: LogWorld) -> None:
    all_built = build_all(log)
    for built in all_built:
        log.commits.abort(built.sequence_id, fence=built.fence, error=None)
    leases = [log.take_over(built.lease.dataset_id) for built in all_built]
    leases[2] = log.take_over(leases[2].dataset_id)

    owners = {lease.dataset_id: lease.fence for lease in leases}
    marked = log.commits.mark_for_cleanup(owners, limit=10)

    assert {each.lane_id: each.cleanup_fences for each in marked} == {
        dataset_id: (fence,) for dataset_id, fence in owners.items()
    }
    older: dict[DatasetId, int] = {**owners, leases[0].dataset_id: leases[0].fence - 1}
    refuses_all(log, lambda: log.commits.mark_for_cleanup(older, limit=10), FencedError)


def test_unfinished_and_removable_are_those_of_the_datasets_that_are_named(log: LogWorld) -> None:
    leases = take_all(log)
    for lease in leases:
        log.publish(lease, partition="a")
        log.publish(lease, partition="a", replaces=True, moves=[move(10, 12, low=0, partition="a")])
    built = [log.prepare(lease) for lease in leases]
    some = [leases[0].dataset_id, leases[2].dataset_id]

    assert [each.sequence_id for each in log.commits.find_unfinished(*some)] == [
        built[0].sequence_id,
        built[2].sequence_id,
    ]
    assert {each.dataset_id for each in log.commits.list_removable(*some, grace_s=0.0, limit=10)} == set(some)
    assert list(log.commits.find_unfinished()) == []


def test_outcomes_of_a_run_are_recorded_together(log: LogWorld) -> None:
    run_id, datasets = log.start_run(), [log.register(urn) for urn in URNS]
    log.runs.record_dataset(run_id, *(RunDatasetRecord(each, "", DatasetOutcome.FAILED) for each in datasets))
    log.runs.record_dataset(run_id, RunDatasetRecord(datasets[0], "", DatasetOutcome.COMMITTED))
    found = dict(log.backing.list_rows("run_dataset", "dataset_id", "outcome"))
    assert found == {datasets[0]: "COMMITTED", datasets[1]: "FAILED", datasets[2]: "FAILED"}


def test_failures_are_recorded_together(log: LogWorld) -> None:
    leases = take_all(log)
    attempts = [log.register_attempt(log.begin(lease)) for lease in leases]
    log.commits.fail_attempt(*(each.attempt_id for each in attempts), error="no room", cancelled=False)
    staged = [staged_of(each, make_segments(each)) for each in attempts]
    for each in staged:
        with pytest.raises(GobblinError):
            log.commits.stage(each)


def test_a_mode_is_kept_with_each(log: LogWorld) -> None:
    leases = take_all(log)
    news = [
        replace(log.plan(lease), mode=mode)
        for lease, mode in zip(leases, (Mode.APPEND, Mode.REFRESH, Mode.APPEND), strict=True)
    ]
    log.commits.begin(*news)
    assert [log.commits.get(new.sequence_id).mode for new in news] == [new.mode for new in news]
