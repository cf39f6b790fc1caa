"""Sinks of events and folds: each publication is told as it was, before it becomes a part of another one."""

import pytest
from sqlalchemy import Engine

from gobblin_assets.commit.folding import FoldBounds
from gobblin_assets.commit.postgres.fold_members import UNREPORTED_S
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.state.leases import Lease
from gobblin_assets.state.postgres import PostgresEventStore
from tests.support.commit_log import JOB, LogWorld, open_postgres

ALL = FoldBounds(keep=0, count_min=1, age_s=0.0, keep_marked=0)


@pytest.fixture
def log(emptied_engine: Engine) -> LogWorld:
    return open_postgres(emptied_engine)


@pytest.fixture
def events(emptied_engine: Engine) -> PostgresEventStore:
    return PostgresEventStore(emptied_engine)


def publish(log: LogWorld, lease: Lease) -> SequenceId:
    built = log.publish(lease)
    log.commits.mark_announced(built.sequence_id)
    attempts = log.commits.mark_for_cleanup({lease.dataset_id: lease.fence}, limit=99)
    log.commits.mark_cleaned({attempt.attempt_id: lease.fence for attempt in attempts})
    return built.sequence_id


def fold(log: LogWorld, lease: Lease) -> int:
    return log.commits.fold(lease.dataset_id, fence=lease.fence, bounds=ALL, limit=99)


def deliver(events: PostgresEventStore, sink: str, count: int = 99) -> list[SequenceId]:
    """Tell the sink of the next publications."""
    found = events.list_undelivered(JOB, sink, limit=count)
    events.mark_delivered(sink, [(each.dataset_id, each.version) for each in found])
    return [each.sequence_id for each in found]


def test_what_a_sink_was_not_told_is_not_folded(log: LogWorld, events: PostgresEventStore) -> None:
    lease = log.take(log.register(DatasetUrn("orders")))
    events.begin([lease.dataset_id], ["fast", "slow"])
    published = [publish(log, lease) for _publication in range(4)]
    assert deliver(events, "fast") == published
    assert deliver(events, "slow", 2) == published[:2]

    assert fold(log, lease) == 2
    assert deliver(events, "slow") == published[2:]
    assert fold(log, lease) == 2
    assert fold(log, lease) == 0


def test_a_sink_that_takes_nothing_for_long_holds_no_fold_up_and_is_told_of_no_fold(
    log: LogWorld, events: PostgresEventStore
) -> None:
    lease = log.take(log.register(DatasetUrn("orders")))
    events.begin([lease.dataset_id], ["dead"])
    for _publication in range(3):
        publish(log, lease)
    assert fold(log, lease) == 0
    log.advance(UNREPORTED_S + 1)
    newest = publish(log, lease)

    assert fold(log, lease) == 3

    assert deliver(events, "dead") == [newest]


def test_publications_of_which_no_sink_is_told_hold_no_fold_up(log: LogWorld, events: PostgresEventStore) -> None:
    lease = log.take(log.register(DatasetUrn("orders")))
    events.begin([lease.dataset_id], ["sink"])
    first = publish(log, lease)
    assert deliver(events, "sink") == [first]
    log.commits.mark_announced(log.publish(lease, segments=()).sequence_id)
    attempts = log.commits.mark_for_cleanup({lease.dataset_id: lease.fence}, limit=99)
    log.commits.mark_cleaned({attempt.attempt_id: lease.fence for attempt in attempts})

    assert fold(log, lease) == 2
