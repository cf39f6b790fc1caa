"""What any store of a sink's workers must do: Postgres and the simulated database alike."""

import datetime as dt
import uuid
from dataclasses import replace
from typing import Final

from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import JobName
from gobblin_assets.state.sinks import SinkBackOff, SinkWorkerRow
from tests.support.commit_log import TTL_S, LogWorld

SINK, OTHER = JobName("sink"), JobName("other")
A, B, C = (SinkWorkerRow(RunId(uuid.UUID(int=number)), f"host {number}", "the same") for number in (1, 2, 3))
DRAINED: Final = [replace(each, is_drained=True) for each in (A, B)]


def beat(log: LogWorld, worker: SinkWorkerRow, job: JobName = SINK) -> list[SinkWorkerRow]:
    return list(log.sink_workers.beat(job, worker, ttl_s=TTL_S))


def test_workers_are_counted_in_one_order_and_by_job(log: LogWorld) -> None:
    assert beat(log, B) == [B]
    assert beat(log, A) == [A, B]
    assert beat(log, B) == [A, B], "a worker is counted once"
    assert beat(log, C, OTHER) == [C]
    assert (list(log.sink_workers.list_live(SINK)), list(log.sink_workers.list_live(OTHER))) == ([A, B], [C])


def test_a_worker_that_says_nothing_is_not_counted(log: LogWorld) -> None:
    beat(log, A)
    log.advance(TTL_S / 2)
    beat(log, B)
    log.advance(TTL_S / 2 + 1)
    assert list(log.sink_workers.list_live(SINK)) == [B]
    assert beat(log, B) == [B]
    assert beat(log, A) == [A, B], "a worker that wakes up is counted again"


def test_a_worker_says_its_clock_its_lags_and_its_rests_with_each_beat(log: LogWorld) -> None:
    dataset_id = log.register("orders", SINK)
    beat(log, A)
    for lag in (5, 3):
        back_offs = tuple(SinkBackOff(dataset_id, lane_id, f"no {lag}: “{lane_id}”") for lane_id in (None, dataset_id))
        looked_at = dt.datetime(2026, 3, 1, 0, 0, lag, tzinfo=dt.UTC)
        said = replace(A, looked_at=looked_at, lags={dataset_id: lag}, back_offs=back_offs)
        assert beat(log, said) == [said]
        assert list(log.sink_workers.list_live(SINK)) == [said]
    assert beat(log, A) == [A], "what it does not say any more is gone"


def test_a_worker_leaves(log: LogWorld) -> None:
    beat(log, A)
    beat(log, B)
    log.sink_workers.leave(A.run_id)
    log.sink_workers.leave(A.run_id)
    assert list(log.sink_workers.list_live(SINK)) == [B]


def test_who_is_asked_to_end_is_asked_until_it_leaves(log: LogWorld) -> None:
    beat(log, A)
    beat(log, B)
    beat(log, C, OTHER)
    assert log.sink_workers.drain(SINK) == 2
    assert beat(log, A) == DRAINED
    late = replace(C, run_id=RunId(uuid.UUID(int=4)))
    assert beat(log, late) == [*DRAINED, late], "who joins later was not asked"
    assert list(log.sink_workers.list_live(OTHER)) == [C]


def test_nobody_lives_whom_time_has_passed_by(log: LogWorld) -> None:
    beat(log, A)
    log.advance(TTL_S + 1)
    assert (list(log.sink_workers.list_live(SINK)), log.sink_workers.drain(SINK)) == ([], 0)
