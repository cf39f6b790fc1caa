"""Folding and forgetting, by any commit step store: questions to the log have the same answers before and after."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from gobblin_assets.commit.folding import TIDY_S, FoldBounds
from gobblin_assets.commit.segment import decode_segment, encode_empty
from gobblin_assets.commit.sequence import KnownSequence
from gobblin_assets.commit.store import StoredSegment
from gobblin_assets.errors import FencedError, RejectedError
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import DatasetId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.state.leases import Lease
from tests.support.commit_log import JOB, Built, LogWorld, move

ORDERS = DatasetUrn("orders")
HISTORY_S = 1_000.0
ALL = FoldBounds(keep=0, count_min=1, age_s=0.0, history_s=HISTORY_S, keep_marked=0)
OLD = {"type": "struct", "fields": [{"name": "id", "type": "integer", "nullable": True, "metadata": {}}]}
NEW = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


def start(log: LogWorld) -> Lease:
    return log.take(log.register(ORDERS))


def publish(log: LogWorld, lease: Lease, **options: Any) -> Built:
    """Make a publication that is announced and cleaned."""
    built = log.publish(lease, **options)
    log.commits.mark_announced(built.sequence_id)
    clean(log, lease)
    return built


def clean(log: LogWorld, lease: Lease) -> None:
    attempts = log.commits.mark_for_cleanup({lease.dataset_id: lease.fence}, limit=99)
    log.commits.mark_cleaned({attempt.attempt_id: lease.fence for attempt in attempts})


def fold(log: LogWorld, lease: Lease, *, bounds: FoldBounds = ALL, limit: int = 99) -> int:
    return log.commits.fold(lease.dataset_id, fence=lease.fence, bounds=bounds, limit=limit)


def forget(log: LogWorld, lease: Lease, *, bounds: FoldBounds = ALL, limit: int = 99) -> int:
    return log.commits.forget(lease.dataset_id, fence=lease.fence, bounds=bounds, limit=limit)


def files_of(log: LogWorld, **asked: Any) -> Counter[tuple[Any, ...]]:
    """A reader's result: each file with its schema and partition."""
    found: Counter[tuple[Any, ...]] = Counter()
    for role in Role:
        view = log.published.find(JOB, ORDERS, role=role, **asked)
        assert view is not None
        for segment in view.segments:
            files = list(segment.files())
            assert segment.file_count == len(files)
            assert segment.row_count == sum(file.row_count for file in files)
            for file in files:
                found[role, segment.partition, segment.root_uri, str(segment.file_schema), file] += 1
    return found


def answers(log: LogWorld, dataset_id: DatasetId) -> tuple[Any, ...]:
    """The answers to all questions to the log, except the number of sequences."""
    views = [log.published.find(JOB, ORDERS, role=role) for role in Role]
    return (
        files_of(log),
        [(view.version, view.file_schemas) for view in views if view is not None],
        log.state_of(dataset_id),
        log.datasets.load_intervals(dataset_id, None),
        [log.datasets.load_intervals(dataset_id, partition) for partition in ("", "day 1", "day 2")],
        log.commits.find_unfinished(dataset_id),
    )


def test_publications_of_a_partition_become_one_and_nobody_sees_a_difference(log: LogWorld) -> None:
    lease = start(log)
    built = [publish(log, lease) for _publication in range(5)]
    before = answers(log, lease.dataset_id)

    assert fold(log, lease) == 5

    assert answers(log, lease.dataset_id) == before
    view = log.published.find(JOB, ORDERS, role=Role.DATA)
    assert view is not None
    (segment,) = view.segments
    assert (segment.sequence_id, segment.version, segment.file_count) == (built[-1].sequence_id, 5, 5)
    assert log.backing.list_rows("ledger", "sequence_id") == [(built[-1].sequence_id,)]
    assert log.backing.list_rows("work_unit", "sequence_id") == []
    assert log.commits.list_attempts(built[-1].sequence_id) == []


def test_publications_without_rows_are_folded_and_the_columns_that_they_say_stay(log: LogWorld) -> None:
    lease = start(log)
    for schema in (OLD, NEW, NEW):
        empty = encode_empty(role=Role.DATA, partition="", file_schema=schema)
        publish(log, lease, segments=(empty,))
    before = answers(log, lease.dataset_id)
    assert before[1][0] == (3, (NEW,))

    assert fold(log, lease) == 3

    assert answers(log, lease.dataset_id) == before
    publish(log, lease, schema=OLD)
    before = answers(log, lease.dataset_id)
    assert before[1][0] == (4, (OLD,))
    assert fold(log, lease) == 1
    assert answers(log, lease.dataset_id) == before
    assert len(log.backing.list_rows("segment", "segment_id")) == 3


def test_ids_that_storage_may_name_stay_known(log: LogWorld) -> None:
    lease = start(log)
    built = [publish(log, lease) for _publication in range(3)]
    ids = [each.sequence_id for each in built]
    fold(log, lease)

    known = log.commits.find_known([*ids, SequenceId(built[0].attempt.attempt_id)])

    assert known == dict.fromkeys(ids, KnownSequence(SequenceState.DONE, is_sealed=True))
    with pytest.raises(RejectedError, match="folded"):
        log.commits.get(ids[0])
    assert log.commits.load_publications(ids[-1])[0].row_count == 9


def test_what_was_folded_is_folded_again_with_what_came_after(log: LogWorld) -> None:
    lease = start(log)
    for expected in (3, 2, 1):
        for _publication in range(expected):
            publish(log, lease)
        before = answers(log, lease.dataset_id)
        assert fold(log, lease) == expected
        assert answers(log, lease.dataset_id) == before
    assert fold(log, lease) == 0
    assert log.changes_nothing(lambda: fold(log, lease))
    view = log.published.find(JOB, ORDERS, role=Role.DATA)
    assert view is not None
    assert [segment.file_count for segment in view.segments] == [6]


def test_a_fold_takes_so_many_at_once_and_the_oldest_first(log: LogWorld) -> None:
    lease = start(log)
    built = [publish(log, lease) for _publication in range(5)]
    before = answers(log, lease.dataset_id)

    assert fold(log, lease, limit=2) == 2
    assert answers(log, lease.dataset_id) == before
    with pytest.raises(RejectedError):
        log.commits.get(built[0].sequence_id)
    assert [fold(log, lease, limit=2) for _time in range(3)] == [2, 1, 0]
    assert answers(log, lease.dataset_id) == before


def test_the_newest_and_the_young_stay_as_they_are(log: LogWorld) -> None:
    lease = start(log)
    built = [publish(log, lease) for _publication in range(4)]

    assert fold(log, lease, bounds=FoldBounds(keep=2, age_s=50.0)) == 0
    log.advance(51.0)
    assert fold(log, lease, bounds=FoldBounds(keep=2, age_s=50.0)) == 2

    assert [log.commits.find_known([each.sequence_id]).keys() for each in built] == [
        {each.sequence_id} for each in built
    ]
    for each in built[2:]:
        assert log.commits.load_publications(each.sequence_id)[0].row_count == 3


def test_partitions_and_roles_and_schemas_stay_apart(log: LogWorld) -> None:
    lease = start(log)
    publish(log, lease, partition="day 1", schema=OLD)
    publish(log, lease, partition="day 2", schema=OLD)
    publish(log, lease, partition="day 1", schema=NEW)
    publish(log, lease, partition="day 1", role=Role.QUARANTINE)
    publish(log, lease, partition="day 2", schema=NEW)
    publish(log, lease, partition="day 2", schema=OLD)
    before = answers(log, lease.dataset_id)

    assert fold(log, lease) == 6

    assert answers(log, lease.dataset_id) == before
    view = log.published.find(JOB, ORDERS, role=Role.DATA)
    assert view is not None
    assert view.file_schemas == (OLD, NEW)
    assert [(segment.version, segment.partition) for segment in view.segments] == [
        (6, "day 2"),
        (5, "day 2"),
        (3, "day 1"),
        (1, "day 1"),
    ]


def test_gaps_between_intervals_stay(log: LogWorld) -> None:
    lease = start(log)
    publish(log, lease, moves=[move(None, 10, low=0)])
    publish(log, lease, moves=[move(10, 20)])
    publish(log, lease, moves=[move(20, 40, low=30)])
    publish(log, lease, moves=[move(40, 50)])

    fold(log, lease)

    found = log.datasets.load_intervals(lease.dataset_id, None)["id"]
    assert found == [_interval(0, 20), _interval(30, 50)]
    assert len(log.backing.list_rows("ledger", "ledger_id")) == 2


def test_a_partition_that_is_published_once_sheds_what_only_the_run_needed(log: LogWorld) -> None:
    lease = start(log)
    built = publish(log, lease, partition="day 1")
    before = answers(log, lease.dataset_id)

    assert fold(log, lease) == 1

    assert answers(log, lease.dataset_id) == before
    assert log.commits.list_attempts(built.sequence_id) == []
    assert log.commits.get(built.sequence_id).state is SequenceState.DONE


def test_a_refresh_after_a_fold_retires_all_of_it(log: LogWorld) -> None:
    lease = start(log)
    for _publication in range(3):
        publish(log, lease)
    fold(log, lease)

    publish(log, lease, replaces=True, moves=[move(30, 40, low=0)])

    assert sum(files_of(log).values()) == 1
    assert log.datasets.load_intervals(lease.dataset_id, None)["id"] == [_interval(0, 40)]
    (removable,) = log.commits.list_removable(lease.dataset_id, grace_s=0.0, limit=9)
    assert len(_paths_of(removable)) == 3


def test_a_retired_generation_is_not_joined_with_one_that_is_read(log: LogWorld) -> None:
    lease = start(log)
    for _publication in range(2):
        publish(log, lease)
    publish(log, lease, replaces=True, moves=[move(20, 30, low=0)])
    publish(log, lease)
    before = answers(log, lease.dataset_id)
    removable = log.commits.list_removable(lease.dataset_id, grace_s=0.0, limit=9)

    assert fold(log, lease) == 2

    assert answers(log, lease.dataset_id) == before
    assert log.commits.list_removable(lease.dataset_id, grace_s=0.0, limit=9) == removable


def test_what_is_not_announced_or_not_clean_waits(log: LogWorld) -> None:
    lease = start(log)
    built = log.publish(lease)
    clean(log, lease)
    assert fold(log, lease) == 0, "Dagster was not told"
    log.commits.mark_announced(built.sequence_id)
    assert fold(log, lease) == 1

    other = log.publish(lease)
    log.commits.mark_announced(other.sequence_id)
    assert fold(log, lease) == 0, "its attempt may have left something"
    clean(log, lease)
    assert fold(log, lease) == 1


def test_nothing_is_folded_while_a_sequence_is_open(log: LogWorld) -> None:
    lease = start(log)
    publish(log, lease)
    built = log.prepare(lease)
    assert fold(log, lease) == 0

    log.commits.finish(built.sequence_id, fence=lease.fence)
    assert fold(log, lease) == 1


def test_nobody_folds_or_forgets_under_a_fence_that_was_replaced(log: LogWorld) -> None:
    old = start(log)
    publish(log, old)
    log.take_over(old.dataset_id)

    for call in (
        lambda: fold(log, old),
        lambda: forget(log, old),
        lambda: log.commits.mark_folded(old.dataset_id, fence=old.fence, bounds=ALL),
    ):
        with pytest.raises(FencedError):
            call()


def test_who_slept_while_a_sequence_was_folded_learns_that_it_was_taken_over(log: LogWorld) -> None:
    old = start(log)
    built = publish(log, old)
    new = log.take_over(old.dataset_id)
    publish(log, new)
    fold(log, new)

    with pytest.raises(FencedError):
        log.commits.finish(built.sequence_id, fence=old.fence)


def test_a_dataset_is_due_after_so_many_publications_or_a_day(log: LogWorld) -> None:
    lease = start(log)
    bounds = FoldBounds(keep=1, count_min=2, age_s=0.0)

    def due() -> list[DatasetId]:
        return list(log.commits.find_foldable(lease.dataset_id, DatasetId(999), bounds=bounds))

    for _publication in range(2):
        publish(log, lease)
    assert due() == []
    publish(log, lease)
    assert due() == [lease.dataset_id]
    log.commits.mark_folded(lease.dataset_id, fence=lease.fence, bounds=bounds)
    assert due() == []
    publish(log, lease)
    assert due() == []
    log.advance(TIDY_S + 1.0)
    assert due() == [lease.dataset_id]


def test_retired_publications_are_forgotten_once_their_files_are_removed_and_history_is_over(log: LogWorld) -> None:
    lease = start(log)
    built = [publish(log, lease) for _publication in range(2)]
    fold(log, lease)
    publish(log, lease, replaces=True, moves=[move(20, 30, low=0)])
    log.advance(2 * HISTORY_S)
    lease = log.take_over(lease.dataset_id)
    assert forget(log, lease) == 0, "its files are there"

    removable = log.commits.list_removable(lease.dataset_id, grace_s=0.0, limit=9)
    log.commits.mark_removed([segment.segment_id for segment in removable])
    assert forget(log, lease) == 0, "they were removed just now"
    log.advance(2 * HISTORY_S)
    lease = log.take_over(lease.dataset_id)
    before = answers(log, lease.dataset_id)
    assert forget(log, lease, bounds=replace(ALL, keep_marked=3)) == 0, "storage has markers of them"

    assert forget(log, lease) == 1

    assert answers(log, lease.dataset_id) == before
    assert log.commits.find_known([each.sequence_id for each in built]) == {}
    assert forget(log, lease) == 0


def test_the_newest_publication_of_a_partition_stays_though_it_is_empty_and_old(log: LogWorld) -> None:
    """Else whoever asks for what is missing would read the window again."""
    lease = start(log)
    early, late, other = (
        publish(log, lease, partition=month, segments=(), moves=()).sequence_id
        for month in ("2026-01", "2026-01", "2026-02")
    )
    log.advance(2 * HISTORY_S)
    lease = log.take_over(lease.dataset_id)

    assert forget(log, lease) == 1

    assert log.commits.find_known([early, late, other]).keys() == {late, other}


def test_the_last_files_of_a_role_stay_as_long_as_they_alone_tell_its_columns(log: LogWorld) -> None:
    lease = start(log)
    publish(log, lease, schema=OLD)
    publish(log, lease, replaces=True, segments=(), moves=[move(10, 20, low=0)])
    removable = log.commits.list_removable(lease.dataset_id, grace_s=0.0, limit=9)
    log.commits.mark_removed([segment.segment_id for segment in removable])
    log.advance(2 * HISTORY_S)
    lease = log.take_over(lease.dataset_id)

    assert forget(log, lease) == 0

    view = log.published.find(JOB, ORDERS, role=Role.DATA)
    assert view is not None
    assert (view.segments, view.file_schemas) == ((), (OLD,))


def test_an_aborted_sequence_is_forgotten_and_known_if_storage_may_have_its_files(log: LogWorld) -> None:
    lease = start(log)
    aborted = log.begin(lease)
    log.commits.abort(aborted.sequence_id, fence=lease.fence, error="no room")
    abandoned = log.prepare(lease)
    log.commits.begin_abandon(abandoned.sequence_id, fence=lease.fence, reason="wrong")
    log.commits.end_abandon(abandoned.sequence_id, fence=lease.fence)
    clean(log, lease)
    log.advance(HISTORY_S - 1.0)
    lease = log.take_over(lease.dataset_id)
    log.advance(2.0)

    assert forget(log, lease, limit=1) == 1
    assert forget(log, lease, limit=9) == 1

    known = log.commits.find_known([aborted.sequence_id, abandoned.sequence_id])
    assert known == {abandoned.sequence_id: KnownSequence(SequenceState.ABORTED, is_sealed=True)}


def _interval(low: int, high: int) -> Interval:
    return Interval(long_watermark(low), long_watermark(high))


def _paths_of(segment: StoredSegment) -> list[Any]:
    return [file for step in decode_segment(segment.payload, segment.digest) for file in step.published()]
