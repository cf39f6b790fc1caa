"""Why the Postgres adapters lock rows: two connections, one held between two of its statements.

A takeover locks the lease FOR UPDATE, a guarded transition FOR KEY SHARE, a heartbeat with a plain UPDATE. A transition
that read the fence without its lock would let a takeover commit between that read and its own writes.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine

from gobblin_assets.commit.postgres import PostgresCommitStepStore
from gobblin_assets.commit.store import CommitStepStore
from gobblin_assets.errors import ConflictError, FencedError
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.state.leases import Holder, Lease
from gobblin_assets.state.postgres import PostgresLeaseStore
from tests.support.commit_log import TTL_S, Built, LogWorld, make_segments, open_postgres, staged_of
from tests.support.interleaving import WAIT_S_MAX, Connections, open_connections

# For each guarded transition, the statement before which it is held: the first that writes.
WRITES = {
    "begin": "INSERT INTO gobblin.commit_sequence",
    "continue_building": "UPDATE gobblin.commit_sequence SET fence",
    "seal": "SET sealed = true",
    "abort": "SET state = 'ABORTED'",
    "finish": "SET version = n.version + 1",
    "record_failure": "SET failed_tries",
    "resume": "SET state = 'PREPARED'",
    "begin_abandon": "SET state = 'ABANDONING'",
    "end_abandon": "SET sealed = false",
    "mark_for_cleanup": "SET cleanup_fences",
}
TAKEOVER = "SET fence = l.fence + 1"


@pytest.fixture
def log(emptied_engine: Engine) -> LogWorld:
    return open_postgres(emptied_engine)


@pytest.fixture
def two(emptied_engine: Engine) -> Iterator[Connections]:
    with open_connections(emptied_engine) as connections:
        yield connections


def prepare_for(transition: str, log: LogWorld, lease: Lease) -> Built:
    """A sequence on which the transition can be made, after its lease ran out."""
    built = log.build(lease)
    if transition in ("finish", "record_failure", "resume", "begin_abandon", "end_abandon"):
        log.commits.seal(built.order)
    if transition == "resume":
        log.block(built)
    if transition == "end_abandon":
        log.commits.begin_abandon(built.sequence_id, fence=built.fence, reason="wrong")
    if transition == "mark_for_cleanup":
        log.commits.abort(built.sequence_id, fence=built.fence, error=None)
    log.advance(TTL_S + 1)
    return built


def make(transition: str, store: CommitStepStore, built: Built) -> Any:
    sequence_id, fence = built.sequence_id, built.fence
    match transition:
        case "begin":
            return store.begin(built.new)
        case "seal":
            return store.seal(built.order)
        case "abort":
            return store.abort(sequence_id, fence=fence, error=None)
        case "record_failure":
            return store.record_failure(sequence_id, fence=fence, error="", tries_max=9, retry_in_s=0.0, block=False)
        case "begin_abandon":
            return store.begin_abandon(sequence_id, fence=fence, reason="")
        case "mark_for_cleanup":
            return store.mark_for_cleanup({built.new.dataset_id: fence}, limit=9)
        case _:
            return getattr(store, transition)(sequence_id, fence=fence)


def take_over(engine: Engine, log: LogWorld, built: Built) -> Callable[[], list[Lease]]:
    holder = Holder("the next one", log.start_run())
    return lambda: PostgresLeaseStore(engine).take([built.lease.dataset_id], holder, ttl_s=TTL_S)


@pytest.mark.parametrize("transition", WRITES)
def test_a_takeover_waits_for_a_transition_that_is_under_way(log: LogWorld, two: Connections, transition: str) -> None:
    built = prepare_for(transition, log, log.take(log.register("orders")))

    with two.pause(WRITES[transition], lambda: make(transition, PostgresCommitStepStore(two.held), built)) as running:
        taking = two.start(take_over(two.other, log, built))
        assert two.has_to_wait(taking), "somebody took the dataset over in the middle of a transaction"

    running.result(WAIT_S_MAX)
    (lease,) = taking.result(WAIT_S_MAX)
    assert lease.fence > built.fence
    with pytest.raises(FencedError):
        make(transition, log.commits, built)


@pytest.mark.parametrize("transition", WRITES)
def test_a_transition_waits_for_a_takeover_that_is_under_way_and_is_refused(
    log: LogWorld, two: Connections, transition: str
) -> None:
    built = prepare_for(transition, log, log.take(log.register("orders")))
    before = log.commits.get(built.sequence_id)

    with two.pause(TAKEOVER, take_over(two.held, log, built)) as taking:
        late = two.start(lambda: make(transition, PostgresCommitStepStore(two.other), built))
        assert two.has_to_wait(late), "the fence was read while somebody was replacing it"

    assert len(taking.result(WAIT_S_MAX)) == 1
    with pytest.raises(FencedError):
        late.result(WAIT_S_MAX)
    assert log.commits.get(built.sequence_id) == before


def test_a_heartbeat_and_a_release_never_wait_for_a_transition(log: LogWorld, two: Connections) -> None:
    built = log.prepare(log.take(log.register("orders")))
    leases = PostgresLeaseStore(two.other)

    with two.pause(WRITES["finish"], lambda: make("finish", PostgresCommitStepStore(two.held), built)) as running:
        renewal = two.start(lambda: leases.renew([built.lease], ttl_s=TTL_S))
        assert not two.has_to_wait(renewal)
        assert renewal.result() == {built.lease.dataset_id}
        release = two.start(lambda: leases.release([built.lease]))
        assert not two.has_to_wait(release)
        release.result()

    assert running.result(WAIT_S_MAX) == 1


def test_of_two_takers_at_once_one_gets_the_lease(log: LogWorld, two: Connections) -> None:
    built = log.build(log.take(log.register("orders")))
    log.advance(TTL_S + 1)

    with two.pause(TAKEOVER, take_over(two.held, log, built)) as first:
        second = two.start(take_over(two.other, log, built))
        assert two.has_to_wait(second)

    assert len(first.result(WAIT_S_MAX)) == 1
    assert second.result(WAIT_S_MAX) == []


def test_staging_waits_for_a_seal_and_is_refused(log: LogWorld, two: Connections) -> None:
    built = log.build(log.take(log.register("orders")))
    late = log.register_attempt(built.new, multi_work_unit=1)
    staged = staged_of(late, make_segments(late))

    with two.pause(WRITES["seal"], lambda: make("seal", PostgresCommitStepStore(two.held), built)) as sealing:
        staging = two.start(lambda: PostgresCommitStepStore(two.other).stage(staged))
        assert two.has_to_wait(staging), "T1 read BUILDING while T2 was writing PREPARED"

    sealing.result(WAIT_S_MAX)
    with pytest.raises(FencedError):
        staging.result(WAIT_S_MAX)
    assert len(list(log.commits.read_segments(built.sequence_id))) == 1


@pytest.mark.parametrize("transition", ["seal", "abort"])
def test_a_sequence_ends_only_after_the_staging_that_is_under_way(
    log: LogWorld, two: Connections, transition: str
) -> None:
    built = log.build(log.take(log.register("orders")))
    attempt = log.register_attempt(built.new, multi_work_unit=1)
    staged = staged_of(attempt, make_segments(attempt))

    with two.pause("INSERT INTO gobblin.segment", lambda: PostgresCommitStepStore(two.held).stage(staged)) as staging:
        ending = two.start(lambda: make(transition, PostgresCommitStepStore(two.other), built))
        assert two.has_to_wait(ending), "the sequence ended beside a transaction that had found it BUILDING"

    staging.result(WAIT_S_MAX)
    ending.result(WAIT_S_MAX)
    # The late attempt was stored, and is not sealed.
    assert len(list(log.commits.read_segments(built.sequence_id))) == (1 if transition == "seal" else 0)


def test_two_tries_of_one_multi_work_unit_are_never_both_staged(log: LogWorld, two: Connections) -> None:
    new = log.begin(log.take(log.register("orders")))
    first, second = (log.register_attempt(new, try_number=number) for number in (1, 2))
    stages = [staged_of(attempt, make_segments(attempt)) for attempt in (first, second)]

    with two.pause(
        "INSERT INTO gobblin.segment", lambda: PostgresCommitStepStore(two.held).stage(stages[0])
    ) as winning:
        losing = two.start(lambda: PostgresCommitStepStore(two.other).stage(stages[1]))
        assert two.has_to_wait(losing)

    winning.result(WAIT_S_MAX)
    with pytest.raises(ConflictError):
        losing.result(WAIT_S_MAX)


def test_two_seals_of_one_dataset_never_leave_two_open_sequences(log: LogWorld, two: Connections) -> None:
    lease = log.take(log.register("orders"))
    first, second = log.build(lease), log.build(lease)
    log.publish(lease)
    orders = [replace(built.order, base_version=1, moves=()) for built in (first, second)]

    with two.pause("SELECT lane_id, version", lambda: PostgresCommitStepStore(two.held).seal(orders[0])) as winning:
        # Sequences are locked one by one, so the second call meets the index.
        PostgresCommitStepStore(two.other).seal(orders[1])

    with pytest.raises(ConflictError, match="open"):
        winning.result(WAIT_S_MAX)
    assert log.commits.get(first.sequence_id).state is SequenceState.BUILDING


def test_a_finish_that_is_repeated_while_its_first_commit_is_pending_waits_for_the_truth(
    log: LogWorld, two: Connections
) -> None:
    built = log.prepare(log.take(log.register("orders")))

    with two.pause("SET state = 'DONE'", lambda: make("finish", PostgresCommitStepStore(two.held), built)) as first:
        repeated = two.start(lambda: make("finish", PostgresCommitStepStore(two.other), built))
        assert two.has_to_wait(repeated)

    assert (first.result(WAIT_S_MAX), repeated.result(WAIT_S_MAX)) == (1, 1)
    assert log.state_of(built.lease.dataset_id).version == 1


def test_a_fence_is_not_raised_in_the_middle_of_a_transition(log: LogWorld, two: Connections) -> None:
    built = prepare_for("seal", log, log.take(log.register("orders")))
    dataset_id = built.lease.dataset_id

    with two.pause(WRITES["seal"], lambda: make("seal", PostgresCommitStepStore(two.held), built)) as sealing:
        raising = two.start(lambda: PostgresLeaseStore(two.other).raise_fence(dataset_id, floor=40))
        assert two.has_to_wait(raising)

    sealing.result(WAIT_S_MAX)
    assert raising.result(WAIT_S_MAX)
    assert log.leases.get_status(dataset_id).fence == 40
