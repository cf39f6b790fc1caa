"""What any commit step store must show: Postgres and the simulated database alike."""

import uuid
from dataclasses import replace

import pytest

from gobblin_assets.errors import ConflictError, FencedError
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from tests.support.commit_log import JOB, TTL_S, Built, LogWorld, make_segments, move, staged_of

OTHER_JOB = JobName("warehouse")


def recoverable(log: LogWorld, *, jobs: list[JobName] | None = None, limit: int = 10) -> list[SequenceId]:
    return [found.sequence_id for found in log.commits.list_recoverable(jobs=jobs, limit=limit)]


def release(log: LogWorld, built: Built) -> None:
    log.leases.release([built.lease])


def prepare_each(log: LogWorld, *urns: str) -> list[Built]:
    """A sealed sequence of each dataset, a second apart, with their leases given back."""
    made = []
    for urn in urns:
        made.append(log.prepare(log.take(log.register(urn))))
        release(log, made[-1])
        log.advance(1)
    return made


def test_no_op_moves_leave_ledger_and_watermarks_as_they_are(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    log.publish(lease, partition="day 1", moves=[move(None, 10, low=0, partition="day 1")])
    log.publish(lease, partition="day 1", moves=[move(10, 20, partition="day 1"), move(None, None, key="all")])
    log.publish(lease, partition="day 2", moves=[move(None, 5, low=0)])
    before = log.state_of(lease.dataset_id)
    intervals = log.datasets.load_intervals(lease.dataset_id, "day 1")

    no_ops = log.commits.list_no_op_moves(lease.dataset_id, "day 1")
    assert [(each.key, each.partition, each.new, len(each.intervals)) for each in no_ops] == [
        ("all", "", None, 0),
        ("id", "day 1", None, 1),
    ]
    log.publish(lease, partition="day 1", replaces=True, moves=no_ops)

    after = log.state_of(lease.dataset_id)
    assert {place: key.watermark for place, key in after.keys.items()} == {
        place: key.watermark for place, key in before.keys.items()
    }
    assert after.published == before.published
    assert log.datasets.load_intervals(lease.dataset_id, "day 1") == intervals
    assert log.commits.list_no_op_moves(lease.dataset_id, "day 1") == no_ops
    assert log.commits.list_no_op_moves(lease.dataset_id, "day 3") == []


def test_partitions_are_listed_with_how_long_they_rest(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    log.publish(lease, partition="day 1")
    log.publish(lease, partition="day 2")
    log.advance(50.0)
    log.publish(lease, partition="day 2", replaces=True)

    found = log.published.list_partitions(JOB, DatasetUrn("orders"))

    assert [(each.partition, each.file_count, each.file_bytes) for each in found] == [
        ("day 1", 1, 100),
        ("day 2", 1, 100),
    ]
    assert found[0].quiet_s >= 50.0 > found[1].quiet_s
    assert log.published.list_partitions(JOB, DatasetUrn("nobody")) == []


def test_whoever_takes_a_dataset_finds_all_that_is_unfinished_oldest_first(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    done, aborted = log.publish(lease), log.build(lease)
    log.commits.abort(aborted.sequence_id, fence=lease.fence, error=None)
    built = []
    for _ in range(3):
        built.append(log.build(lease))
        log.advance(1)
    elsewhere = log.build(log.take(log.register("items")))

    for end in (
        lambda: log.commits.seal(built[1].order),
        lambda: log.block(built[1]),
        lambda: log.commits.begin_abandon(built[1].sequence_id, fence=lease.fence, reason="wrong"),
    ):
        end()
        found = [record.sequence_id for record in log.commits.find_unfinished(lease.dataset_id)]
        assert found == [each.sequence_id for each in built]
    assert done.sequence_id not in found
    assert elsewhere.sequence_id not in found


def test_recovery_sees_what_is_sealed_and_free_and_due(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    built = log.build(lease)
    release(log, built)
    assert recoverable(log) == [], "not sealed"

    built = log.prepare(log.take(lease.dataset_id))
    assert recoverable(log) == [], "held"
    log.advance(TTL_S + 1)
    assert recoverable(log) == [built.sequence_id], "its lease ran out"

    release(log, built)
    log.fail(built, retry_in_s=30.0)
    assert recoverable(log) == [], "not due"
    log.advance(31)
    assert recoverable(log) == [built.sequence_id]

    log.block(built)
    log.advance(3_600)
    assert recoverable(log) == [], "a person decides"

    log.commits.begin_abandon(built.sequence_id, fence=built.fence, reason="wrong")
    assert recoverable(log) == [built.sequence_id], "an abandonment goes on"
    log.commits.end_abandon(built.sequence_id, fence=built.fence)
    assert recoverable(log) == []


def test_what_never_failed_is_recovered_first_then_what_waited_longest(log: LogWorld) -> None:
    a, b, c, d = prepare_each(log, "a", "b", "c", "d")
    log.fail(a, retry_in_s=20.0)
    log.fail(b, retry_in_s=10.0)
    log.advance(30)

    expected = [built.sequence_id for built in (c, d, b, a)]
    assert recoverable(log) == expected
    assert recoverable(log, limit=3) == expected[:3]


def test_what_a_recovery_died_of_is_tried_after_the_others(log: LogWorld) -> None:
    a, b, c = prepare_each(log, "a", "b", "c")
    log.fail(c, retry_in_s=10.0)
    log.advance(11)
    log.take(a.lease.dataset_id)
    log.advance(TTL_S + 1)

    assert recoverable(log) == [built.sequence_id for built in (b, c, a)]


def test_what_is_put_off_is_not_due_and_not_counted(log: LogWorld) -> None:
    (built,) = prepare_each(log, "a")
    log.commits.defer(built.sequence_id, fence=built.fence, error="no way there", retry_in_s=30.0)

    assert recoverable(log) == []
    record = log.commits.get(built.sequence_id)
    assert (record.state, record.failed_tries, record.last_error) == (SequenceState.PREPARED, 0, "no way there")
    log.advance(31)
    assert recoverable(log) == [built.sequence_id]


def test_a_failure_that_was_counted_keeps_its_own_time(log: LogWorld) -> None:
    (built,) = prepare_each(log, "a")
    log.fail(built, retry_in_s=300.0)
    log.commits.defer(built.sequence_id, fence=built.fence, error="no way there", retry_in_s=30.0)
    log.advance(31)

    assert recoverable(log) == []
    assert log.commits.get(built.sequence_id).last_error != "no way there"


def test_an_abandonment_that_is_put_off_keeps_its_reason(log: LogWorld) -> None:
    (built,) = prepare_each(log, "a")
    log.commits.begin_abandon(built.sequence_id, fence=built.fence, reason="wrong")
    log.commits.defer(built.sequence_id, fence=built.fence, error="no way there", retry_in_s=30.0)

    assert recoverable(log) == []
    assert log.commits.get(built.sequence_id).last_error == "wrong"


def test_what_is_over_or_blocked_can_not_be_put_off(log: LogWorld) -> None:
    blocked, done = prepare_each(log, "a", "b")
    log.block(blocked)
    log.commits.finish(done.sequence_id, fence=done.fence)
    before = [log.commits.get(built.sequence_id) for built in (blocked, done)]
    log.advance(3_600)
    for built in (blocked, done):
        log.commits.defer(built.sequence_id, fence=built.fence, error="no way there", retry_in_s=30.0)

    assert [log.commits.get(built.sequence_id) for built in (blocked, done)] == before


def test_only_the_newest_owner_puts_off(log: LogWorld) -> None:
    (built,) = prepare_each(log, "a")
    log.take(built.lease.dataset_id)

    with pytest.raises(FencedError):
        log.commits.defer(built.sequence_id, fence=built.fence, error="no way there", retry_in_s=30.0)


def test_resuming_makes_a_sequence_due_at_once(log: LogWorld) -> None:
    (built,) = prepare_each(log, "a")
    log.fail(built, retry_in_s=3_600.0, block=True)
    log.commits.resume(built.sequence_id, fence=built.fence)

    assert recoverable(log) == [built.sequence_id]


def test_recovery_can_be_limited_to_jobs(log: LogWorld) -> None:
    (mine,) = prepare_each(log, "a")
    theirs = log.prepare(log.take(log.register("a", OTHER_JOB)))
    release(log, theirs)

    assert recoverable(log) == [mine.sequence_id, theirs.sequence_id]
    assert recoverable(log, jobs=[OTHER_JOB]) == [theirs.sequence_id]
    assert recoverable(log, jobs=[JOB, OTHER_JOB]) == [mine.sequence_id, theirs.sequence_id]
    assert recoverable(log, jobs=[]) == []
    assert log.commits.count_recoverable(jobs=None) == {JOB: 1, OTHER_JOB: 1}
    assert log.commits.count_recoverable(jobs=[OTHER_JOB]) == {OTHER_JOB: 1}
    assert log.commits.count_recoverable(jobs=[]) == {}


def test_open_sequences_are_listed_whoever_holds_them(log: LogWorld) -> None:
    blocked, prepared, abandoning = prepare_each(log, "a", "b", "c")
    log.block(blocked)
    log.commits.begin_abandon(abandoning.sequence_id, fence=abandoning.fence, reason="wrong")
    log.take(prepared.lease.dataset_id)
    lease = log.take(log.register("d"))
    log.publish(lease)
    log.build(lease)

    expected = [built.sequence_id for built in (blocked, prepared, abandoning)]
    assert [found.sequence_id for found in log.commits.list_open(None, limit=10)] == expected
    assert [found.sequence_id for found in log.commits.list_open(JOB, limit=2)] == expected[:2]
    assert list(log.commits.list_open(OTHER_JOB, limit=10)) == []


def test_a_publication_tells_all_that_its_events_need(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    log.publish(lease, partition="2013-01", moves=[move(None, 10)])
    new = log.begin(lease, partition="2013-01")
    attempt = log.register_attempt(new)
    parts = (
        *make_segments(attempt, partition="2013-01", row_count=5),
        *make_segments(attempt, partition="2013-01", role=Role.QUARANTINE, row_count=2),
    )
    staged = staged_of(attempt, parts)
    log.commits.stage(staged)
    order = replace(log.order(new, [staged], moves=[move(10, 20), move(None, None, key="whole")]), complete=False)
    log.commits.seal(order)
    with pytest.raises(ConflictError, match="PREPARED"):
        log.commits.load_publications(new.sequence_id)[0]
    log.commits.finish(new.sequence_id, fence=lease.fence)

    found = log.commits.load_publications(new.sequence_id)[0]

    assert (found.job, found.urn, found.partition, found.run_id) == (JOB, "orders", "2013-01", new.run_id)
    assert (found.version, found.complete, found.mode, found.replaces) == (2, False, Mode.APPEND, False)
    assert (found.row_count, found.file_count, found.file_bytes) == (7, 2, 200)
    assert found.rows_by_role == {"data": 5, "quarantine": 2}
    assert found.watermarks == {"id": ("10", "20"), "whole": (None, None)}
    assert found.details["columns"] == [["id", "bigint"]]
    assert found.recovered is False


def test_what_was_finished_is_announced_until_it_is_acknowledged(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    first = log.publish(lease)
    log.advance(1)
    second = log.publish(lease)
    log.prepare(lease)
    log.publish(log.take(log.register("orders", OTHER_JOB)))

    def unannounced(limit: int = 10) -> list[SequenceId]:
        return [found.sequence_id for found in log.commits.list_unannounced(job=JOB, limit=limit)]

    assert unannounced() == [first.sequence_id, second.sequence_id]
    assert unannounced(limit=1) == [first.sequence_id]
    log.commits.mark_announced(first.sequence_id)
    assert unannounced() == [second.sequence_id]
    assert log.changes_nothing(lambda: log.commits.mark_announced(first.sequence_id))
    assert log.changes_nothing(lambda: log.commits.mark_announced(SequenceId(uuid.uuid4())))


def test_what_is_not_finished_can_t_be_acknowledged(log: LogWorld) -> None:
    built = log.prepare(log.take(log.register("orders")))

    assert log.changes_nothing(lambda: log.commits.mark_announced(built.sequence_id))
    log.commits.finish(built.sequence_id, fence=built.fence)
    assert len(log.commits.list_unannounced(job=JOB, limit=10)) == 1


def test_segments_are_read_in_one_order_and_each_once(log: LogWorld) -> None:
    new = log.begin(log.take(log.register("orders")))
    winners = []
    for number in range(11):
        attempt = log.register_attempt(new, multi_work_unit=number)
        parts = (*make_segments(attempt), *make_segments(attempt, role=Role.QUARANTINE))
        winners.append(staged_of(attempt, parts))
        log.commits.stage(winners[-1])
    log.commits.seal(log.order(new, winners))

    found = [segment.segment_id for segment in log.commits.read_segments(new.sequence_id)]

    expected = [i for staged in sorted(winners, key=lambda staged: staged.attempt_id) for i in staged.segment_ids]
    assert found == expected


def test_what_a_seal_decided_can_be_read_back_whole(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    building = log.build(lease)
    with pytest.raises(ConflictError, match="BUILDING"):
        log.commits.load_sealed(building.sequence_id)[0]
    log.commits.seal(building.order)

    sealed = log.commits.load_sealed(building.sequence_id)[0]

    details = {**building.order.details, "root_uri": building.new.root_uri}
    assert sealed.order == replace(building.order, details=details)
    (attempt,) = sealed.attempts
    assert (attempt.attempt_id, attempt.staging_path) == (building.attempt.attempt_id, building.attempt.staging_path)
    assert (attempt.segments, attempt.segment_ids) == (building.staged.segments, building.staged.segment_ids)
    unknown = SequenceId(uuid.uuid4())
    (known,) = log.commits.find_known([building.sequence_id, unknown]).items()
    assert (known[0], known[1].state, known[1].is_sealed) == (building.sequence_id, SequenceState.PREPARED, True)


def test_a_reader_sees_the_schemas_of_what_is_active(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    for schema in ("old", "new"):
        new = log.begin(lease)
        attempt = log.register_attempt(new)
        staged = staged_of(attempt, make_segments(attempt, schema={"name": schema}))
        log.commits.stage(staged)
        log.commits.seal(log.order(new, [staged]))
        log.commits.finish(new.sequence_id, fence=lease.fence)

    found = log.published.find(JOB, DatasetUrn("orders"), role=Role.DATA)

    assert found is not None
    assert (found.version, [segment.version for segment in found.segments]) == (2, [2, 1])
    assert found.file_schemas == ({"name": "new"}, {"name": "old"})
    assert [file.row_count for file in found.segments[0].files()] == [3]
    elsewhere = log.published.find(JOB, DatasetUrn("orders"), role=Role.DATA, partitions=["2013-01"])
    assert elsewhere is not None
    assert elsewhere.segments == ()
    assert log.published.find(JOB, DatasetUrn("nobody"), role=Role.DATA) is None
    assert log.published.list_urns(JOB) == ["orders"]
