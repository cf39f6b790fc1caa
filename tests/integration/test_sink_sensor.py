"""The sensor of a sink, tick by tick: the workers that it starts, how often, and the checks that it tells."""

import datetime as dt
import json
import signal
import uuid
from collections.abc import Sequence

import dagster as dg
import pytest
from sqlalchemy import text

from gobblin_assets.dagster.dead_runs import report_dead_runs
from gobblin_assets.dagster.factory import build_gobblin_definitions
from gobblin_assets.dagster.run_config import SINK_TAG
from gobblin_assets.errors import RejectedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.jobs.sink.alike_workers import digest_configuration
from gobblin_assets.jobs.sink.running import read_sink_datasets
from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import JobName
from gobblin_assets.spec.job_parsing import parse_job
from gobblin_assets.state.datasets import NewRun
from gobblin_assets.state.leases import Holder
from gobblin_assets.state.sinks import SinkWorkerRow
from tests.support.sink_lake import JOB, URN, SinkWorld, start_sink_worker
from tests.support.sink_sensor import DATA, SinkInDagster, month, sink

__all__ = ["sink"]

pytestmark = pytest.mark.turns(of=8)

NAME = JobName(JOB)


def launch(sink: SinkInDagster, request: dg.RunRequest, status: dg.DagsterRunStatus) -> dg.DagsterRun:
    """As Dagster's daemon does."""
    job = sink.define().resolve_job_def(request.job_name or "")
    return sink.instance.create_run_for_job(
        job, status=status, tags=dict(request.tags), run_config=dict(request.run_config or {})
    )


def join(world: SinkWorld, *, dagster_run_id: str | None = None) -> RunId:
    """A worker that is alive, and holds no lane."""
    run_id = RunId(uuid.uuid4())
    world.stores.runs.begin(NewRun(run_id, NAME, "host:1", dagster_run_id))
    world.stores.sink_workers.beat(NAME, SinkWorkerRow(run_id, "host:1", "the same"), ttl_s=60.0)
    return run_id


def ask(sink: SinkInDagster) -> Sequence[dg.RunRequest]:
    return sink.tick().run_requests or []


class TestWorkers:
    def test_a_sink_that_asks_for_none_gets_none(self, sink: SinkInDagster) -> None:
        sink.open()
        assert not ask(sink)

    def test_a_job_without_a_sink_has_no_sensor(self, sink: SinkInDagster) -> None:
        job = {name: value for name, value in sink.job.items() if name != "sink"}
        assert f"{JOB}_sink_sensor" not in {each.name for each in build_gobblin_definitions(job).sensors or ()}

    @pytest.mark.core
    def test_missing_workers_are_asked_for_and_all_kinds_count(self, sink: SinkInDagster) -> None:
        sink.options = {"sink": {"workers": 4, "worker_s": 120}}
        world = sink.open()
        join(world)
        first, second, third = ask(sink)
        assert len({each.run_key for each in (first, second, third)}) == 3
        assert first.run_config == {"ops": {JOB: {"config": {"sink_s": 120.0}}}}
        assert first.tags[SINK_TAG] == JOB
        assert first.asset_selection == [DATA]
        assert first.asset_check_keys == [], "a run would plan them, and never evaluate them"

        waiting = launch(sink, first, dg.DagsterRunStatus.NOT_STARTED)
        started = launch(sink, second, dg.DagsterRunStatus.STARTED)
        join(world, dagster_run_id=started.run_id)
        assert len(ask(sink)) == 1, "a run that is also a live worker counts once"

        elsewhere = join(world, dagster_run_id="a run of another instance")
        assert not ask(sink)
        world.stores.sink_workers.leave(elsewhere)
        sink.instance.report_run_canceled(waiting)
        assert len(ask(sink)) == 2

    def test_a_run_whose_time_is_over_is_followed_at_once(self, sink: SinkInDagster) -> None:
        sink.options = {"sink": {"workers": 1}}
        world = sink.open()
        (request,) = ask(sink)
        run = launch(sink, request, dg.DagsterRunStatus.STARTED)
        join(world, dagster_run_id=run.run_id)
        assert not ask(sink)
        sink.instance.report_dagster_event(
            dg.DagsterEvent(dg.DagsterEventType.RUN_SUCCESS.value, run.job_name), run.run_id
        )
        (following,) = ask(sink)
        assert following.run_key != request.run_key

    def test_a_run_that_has_not_said_for_long_that_it_lives_is_replaced_before_dagster_knows(
        self, sink: SinkInDagster
    ) -> None:
        sink.options = {"sink": {"workers": 1}}
        world = sink.open()
        (request,) = ask(sink)
        run = launch(sink, request, dg.DagsterRunStatus.STARTED)
        assert not ask(sink), "it may not have come to its first beat"
        join(world, dagster_run_id=run.run_id)
        assert not ask(sink)
        world.expire()
        assert len(ask(sink)) == 1
        assert sink.status_of(run) is dg.DagsterRunStatus.STARTED

    def test_runs_that_die_are_followed_later_each_time_and_those_of_one_tick_count_once(
        self, sink: SinkInDagster
    ) -> None:
        sink.options = {"sink": {"workers": 3}}
        sink.open()
        for request in ask(sink):
            sink.instance.report_run_failed(launch(sink, request, dg.DagsterRunStatus.STARTED))
        assert not ask(sink), "three died just now"
        sink.move_runs(seconds=31)
        assert len(ask(sink)) == 3
        for request in ask(sink):
            sink.instance.report_run_failed(launch(sink, request, dg.DagsterRunStatus.STARTED))
        sink.move_runs(seconds=31)
        assert not ask(sink), "the second time is twice as long"
        sink.move_runs(seconds=30)
        assert len(ask(sink)) == 3

    def test_datasets_of_several_kinds_of_partitions_have_no_runs(self, sink: SinkInDagster) -> None:
        job = {**sink.job, "sink": {"workers": 1}, "datasets": [*sink.job["datasets"], {"topic": "more"}]}
        with pytest.raises(RejectedError, match=r"sink\.workers: a worker has all datasets"):
            build_gobblin_definitions(job)
        build_gobblin_definitions({**job, "sink": {}})

    def test_workers_agree_whatever_dagster_is_asked_for(self, sink: SinkInDagster) -> None:
        jobs = [parse_job({**sink.job, "sink": said}) for said in ({}, {"workers": 2, "worker_s": 5, "lag_max": 3})]
        assert len({digest_configuration(job, read_sink_datasets(job)) for job in jobs}) == 1


class TestDeadWorkers:
    def look(self, sink: SinkInDagster, world: SinkWorld, seen: dict[str, float], seconds: float) -> dict[str, float]:
        moment = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)
        lapsed = world.stores.runs.list_lapsed(NAME, limit=50)
        return report_dead_runs(sink.instance, world.stores, lapsed, seen, moment, idle_s_max=300)

    def test_one_without_lanes_lives_as_long_as_it_says_so(self, sink: SinkInDagster) -> None:
        sink.options = {"sink": {"workers": 1}}
        world = sink.open()
        (request,) = ask(sink)
        run = launch(sink, request, dg.DagsterRunStatus.STARTED)
        join(world, dagster_run_id=run.run_id)
        cursor = self.look(sink, world, {}, 0)
        cursor = self.look(sink, world, cursor, 10_000)
        assert sink.status_of(run) is dg.DagsterRunStatus.STARTED

        world.expire()
        cursor = self.look(sink, world, cursor, 10_001)
        cursor = self.look(sink, world, cursor, 10_300)
        assert sink.status_of(run) is dg.DagsterRunStatus.STARTED, "it may only have slept"
        self.look(sink, world, cursor, 10_302)
        assert sink.status_of(run) is dg.DagsterRunStatus.FAILURE


class TestChecks:
    def test_lanes_on_their_way_to_another_worker_are_left_out(self, sink: SinkInDagster) -> None:
        world = sink.open(epoch_count=12, behind_s=0.0)
        sink.publish_some(world, 2)
        join(world)
        cursor = sink.tick().cursor
        assert not sink.checked("sink_lanes")
        assert cursor is not None
        minute_ago = json.dumps({URN: json.loads(cursor)[URN] - 61})
        sink.tick(cursor=minute_ago)
        (free,) = sink.checked("sink_lanes")
        assert "workers have not taken them" in (free.description or "")

    def test_lanes_that_nobody_holds_fail_and_pass_again(self, sink: SinkInDagster) -> None:
        world = sink.open(epoch_count=12, behind_s=0.0)
        sink.publish_some(world, 2)
        sink.tick()
        (free,) = sink.checked("sink_lanes")
        assert not free.passed
        assert free.severity is dg.AssetCheckSeverity.WARN
        assert free.metadata["lanes_free"].value == 2
        assert "no worker is alive" in (free.description or "")
        (lag,) = sink.checked("sink_lag")
        assert lag.passed

        sink.tick()
        assert len(sink.checked("sink_lanes")) == 1, "the result stays"

    def test_a_run_that_plans_a_check_does_not_hide_it(self, sink: SinkInDagster) -> None:
        world = sink.open()
        world.work()
        sink.tick()
        sink.instance.create_run_for_job(sink.define().resolve_job_def(f"{JOB}_monthly"))
        sink.tick()
        sink.tick()
        assert len(sink.checked("sink_lanes")) == 2, "told before the run was made, and once after"

    def test_a_blocked_lane_is_an_error_that_says_the_ways_out(self, sink: SinkInDagster) -> None:
        world = sink.open(behind_s=0.0)
        world.work()
        with world.engine.begin() as connection:
            sequence = connection.execute(
                text("""
                    UPDATE gobblin.commit_sequence
                       SET state = 'BLOCKED', result_version = NULL, last_error = 'the disk is full'
                     WHERE sequence_id = (SELECT max(sequence_id::text)::uuid FROM gobblin.commit_sequence
                                           WHERE state = 'DONE')
                 RETURNING sequence_id
                """)
            ).scalar_one()
        sink.tick()
        (blocked,) = sink.checked("sink_lanes")
        assert not blocked.passed
        assert blocked.severity is dg.AssetCheckSeverity.ERROR
        for said in ("the disk is full", f"commit resume {sequence}", f"commit abandon {sequence}"):
            assert said in (blocked.description or "")

    @pytest.mark.parametrize(("lag_max", "passed"), [(None, True), (5, False), (100_000, True)])
    def test_the_lag_is_that_of_all_workers(self, sink: SinkInDagster, lag_max: int | None, passed: bool) -> None:
        sink.options = {"sink": {"lag_max": lag_max}}
        world = sink.open()
        dataset_id = world.register()
        for lag in (4, 6):
            me = SinkWorkerRow(RunId(uuid.uuid4()), f"host:{lag}", "the same", lags={dataset_id: lag})
            world.stores.sink_workers.beat(NAME, me, ttl_s=60.0)
        sink.tick()
        (found,) = sink.checked("sink_lag")
        assert found.passed is passed
        assert found.metadata["lag"].value == 10

    def test_they_are_evaluated_alone_when_somebody_asks(self, sink: SinkInDagster) -> None:
        sink.open().work()
        result = (
            sink.define()
            .resolve_job_def(f"{JOB}_monthly")
            .get_subset(asset_check_selection={dg.AssetCheckKey(DATA, "sink_lanes")})
        )
        assert result.execute_in_process(instance=sink.instance).success
        (found,) = sink.checked("sink_lanes")
        assert not found.passed


@pytest.mark.core
def test_a_tick_tells_what_is_due(sink: SinkInDagster) -> None:
    sink.open().work()
    said = sink.tick()
    assert said.skip_message == "0 workers are alive; 1 partition was reported."
    assert [partition for partition, _metadata in sink.reported()] == [month()]


class TestRecovery:
    """By the job's recovery sensor, which looks at lanes."""

    def look(self, sink: SinkInDagster) -> Sequence[dg.RunRequest]:
        return sink.tick(f"{JOB}_recovery_sensor").run_requests or []

    @pytest.mark.core
    def test_a_sealed_publication_of_a_lane_that_nobody_holds_is_completed_while_another_lane_is_live(
        self, sink: SinkInDagster
    ) -> None:
        world = sink.open(lanes=2, vnode_count=2)
        worker = start_sink_worker(world.lake, failpoint=f"{Failpoint.SEALED_BEFORE_EXECUTE}=kill@4")
        assert worker.wait() == -signal.SIGKILL
        assert not self.look(sink), "its leases have not run out yet"
        world.expire()
        run_id = join(world)
        lanes = [lane.lane_id for lane in world.stores.lanes.load(world.register())[world.register()].lanes]
        open_lanes = {each.lane_id for each in world.stores.commits.list_open(NAME, limit=10)}
        assert open_lanes
        others = [lane for lane in lanes if lane not in open_lanes]
        world.stores.leases.take_lanes(others, Holder("host:1", run_id), ttl_s=60.0)

        assert len(self.look(sink)) == 1
        recovery = sink.define().resolve_job_def(f"{JOB}_recovery")
        assert recovery.execute_in_process(instance=sink.instance).success
        assert not world.stores.commits.list_open(NAME, limit=10)
        assert not self.look(sink)

    def test_what_a_dead_holder_left_unmarked_is_marked_by_a_worker_and_can_be_folded(
        self, sink: SinkInDagster
    ) -> None:
        world = sink.open(epoch_count=12)
        sink.publish_some(world, 3)
        with world.engine.begin() as connection:
            connection.execute(text("UPDATE gobblin.commit_sequence SET announced_at = NULL WHERE state = 'DONE'"))
        unmarked = "SELECT count(*) FROM gobblin.commit_sequence WHERE state = 'DONE' AND announced_at IS NULL"
        assert int(str(world.scalar(unmarked))) > 0
        world.work(lambda: world.scalar(unmarked) == 0)
        world.work()
        world.check_exactly_once()
