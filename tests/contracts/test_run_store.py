"""What any store of the runs' history must do: Postgres and the simulated database alike."""

import uuid
from dataclasses import replace

import pytest

from gobblin_assets.errors import ConflictError
from gobblin_assets.model.state import DatasetOutcome, RunId, SequenceId, WorkingState
from gobblin_assets.model.urn import JobName
from gobblin_assets.state.datasets import NewRun, RunDatasetRecord
from gobblin_assets.state.leases import Holder
from tests.support.commit_log import JOB, TTL_S, LogWorld

DAY_S = 86_400.0


def lapsed(log: LogWorld, *, limit: int = 10) -> dict[str, bool]:
    """Dagster's runs that look dead, oldest first, each with whether it held a lease until its end."""
    found = {run.dagster_run_id: run.lease_ran_out for run in log.runs.list_lapsed(JOB, limit=limit)}
    of_all = {run.dagster_run_id: run.lease_ran_out for run in log.runs.list_lapsed(None, limit=100)}
    assert found.items() <= of_all.items()
    return found


def test_a_run_is_begun_once(log: LogWorld) -> None:
    run = NewRun(RunId(uuid.uuid4()), JOB, "host:1", "d-1")
    log.runs.begin(run)

    assert log.changes_nothing(lambda: log.runs.begin(replace(run, owner="host:2")))
    assert log.backing.list_rows("run", "run_id", "owner", "state") == [(run.run_id, "host:1", "RUNNING")]


def test_an_outcome_is_replaced_by_a_later_one(log: LogWorld) -> None:
    run_id, orders = log.start_run(), log.register("orders")
    log.runs.record_dataset(run_id, RunDatasetRecord(orders, "", DatasetOutcome.FAILED, error="no room"))
    log.runs.record_dataset(run_id, RunDatasetRecord(orders, "2013-01", DatasetOutcome.SKIPPED))

    log.runs.record_dataset(run_id, RunDatasetRecord(orders, "", DatasetOutcome.COMMITTED, figures={"rows": 3}))

    rows = log.backing.list_rows("run_dataset", "partition", "outcome", "error")
    assert rows == [("", "COMMITTED", None), ("2013-01", "SKIPPED", None)]


def test_an_outcome_names_the_sequence_that_it_came_by(log: LogWorld) -> None:
    orders = log.register("orders")
    built = log.publish(log.take(orders))

    log.runs.record_dataset(built.new.run_id, RunDatasetRecord(orders, "", DatasetOutcome.COMMITTED, built.sequence_id))

    assert log.backing.list_rows("run_dataset", "sequence_id") == [(built.sequence_id,)]


def test_a_run_ends_with_its_state_and_its_error(log: LogWorld) -> None:
    run_id = log.start_run()
    log.runs.end(run_id, WorkingState.FAILED, error="no room", figures={"rows": 3})
    assert log.backing.list_rows("run", "state", "error") == [("FAILED", "no room")]

    log.runs.end(run_id, WorkingState.FAILED, error="no room", figures={"rows": 3})
    assert log.backing.list_rows("run", "state", "error") == [("FAILED", "no room")]


def test_the_end_of_a_run_that_never_began_is_nothing(log: LogWorld) -> None:
    unknown = RunId(uuid.uuid4())

    assert log.changes_nothing(lambda: log.runs.end(unknown, WorkingState.FAILED, error=None, figures={}))


def test_a_run_without_dagster_never_lapses(log: LogWorld) -> None:
    log.start_run()
    ended = log.start_run(dagster_run_id="ended")
    log.runs.end(ended, WorkingState.COMMITTED, error=None, figures={})
    log.start_run(dagster_run_id="elsewhere", job=JobName("warehouse"))

    assert lapsed(log) == {}


def test_a_run_lapses_when_no_lease_of_it_lives(log: LogWorld) -> None:
    a, b = log.register("a"), log.register("b")
    run_id = log.start_run(dagster_run_id="d-1")
    assert lapsed(log) == {"d-1": False}, "it may be waiting for a busy dataset"

    held = log.leases.take([a, b], Holder("host:1", run_id, "d-1"), ttl_s=TTL_S)
    assert lapsed(log) == {}

    log.leases.release(held[:1])
    assert lapsed(log) == {}, "one lease still lives"

    log.advance(TTL_S + 1)
    assert lapsed(log) == {"d-1": True}

    log.take(a)
    log.take(b)
    assert lapsed(log) == {"d-1": True}, "others took over all that it held, and nobody has told Dagster"
    log.runs.end(run_id, WorkingState.FAILED, error="told", figures={})
    assert lapsed(log) == {}


def test_runs_of_dagster_work_from_their_beginning_to_their_end(log: LogWorld) -> None:
    log.start_run()
    log.start_run(dagster_run_id="elsewhere", job=JobName("warehouse"))
    log.start_run(dagster_run_id="unasked")
    run_id = log.start_run(dagster_run_id="asked")
    assert set(log.runs.list_working(JOB, ["asked", "elsewhere", "unknown"])) == {"asked"}
    assert set(log.runs.list_working(None, ["asked", "elsewhere", "unknown"])) == {"asked", "elsewhere"}
    log.runs.end(run_id, WorkingState.COMMITTED, error=None, figures={})
    assert set(log.runs.list_working(JOB, ["asked"])) == set()


def test_lapsed_runs_come_oldest_first_and_only_so_many(log: LogWorld) -> None:
    for name in ("first", "second", "third"):
        log.start_run(dagster_run_id=name)
        log.advance(1)

    assert list(lapsed(log, limit=2)) == ["first", "second"]


def test_what_lapsed_more_than_a_month_ago_is_left_alone(log: LogWorld) -> None:
    log.start_run(dagster_run_id="d-1")
    log.advance(29 * DAY_S)
    assert lapsed(log) == {"d-1": False}

    log.advance(2 * DAY_S)
    assert lapsed(log) == {}


def test_an_outcome_of_what_the_log_does_not_have_is_a_conflict(log: LogWorld) -> None:
    """This happens after a failover to an older standby."""
    run_id, orders = log.start_run(), log.register("orders")
    unknown_run, unknown_sequence = RunId(uuid.uuid4()), SequenceId(uuid.uuid4())

    with pytest.raises(ConflictError):
        log.runs.record_dataset(unknown_run, RunDatasetRecord(orders, "", DatasetOutcome.FAILED))
    with pytest.raises(ConflictError):
        log.runs.record_dataset(run_id, RunDatasetRecord(orders, "", DatasetOutcome.COMMITTED, unknown_sequence))

    assert log.backing.list_rows("run_dataset", "sequence_id") == []
