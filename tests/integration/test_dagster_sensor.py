"""The recovery sensor, tick by tick: its requests, how often it makes them, and the runs that it reports as dead."""

import datetime as dt
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.events import DagsterEvent, DagsterEventType, EngineEventData
from sqlalchemy import Engine, text

from gobblin_assets import failpoints
from gobblin_assets.dagster.dead_runs import PROCESS_TAG, describe_this_process, report_dead_runs
from gobblin_assets.dagster.sensor_ticks import TRY_WAIT_S_FIRST, TRY_WAIT_S_MAX, decide_try, read_times
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.datasets import NewRun
from gobblin_assets.state.leases import Holder
from tests.support.dagster_instance import open_instance
from tests.support.dagster_world import build_world, write_numbers

pytestmark = pytest.mark.turns(of=8)

JOB = JobName("shop")
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class TestTries:
    def test_the_first_is_made_at_once(self) -> None:
        assert decide_try([], NOW) == 1

    def test_each_waits_longer_after_one_that_died_up_to_a_bound(self) -> None:
        waits = []
        for count in (1, 2, 3, 20):
            ended = [NOW - dt.timedelta(days=1)] * (count - 1) + [NOW]
            seconds = next(s for s in range(1, 10_000) if decide_try(ended, NOW + dt.timedelta(seconds=s)) is not None)
            waits.append(float(seconds))
            assert decide_try(ended, NOW + dt.timedelta(seconds=seconds)) == count + 1
        assert waits == [TRY_WAIT_S_FIRST, 2 * TRY_WAIT_S_FIRST, 4 * TRY_WAIT_S_FIRST, TRY_WAIT_S_MAX]


@dataclass
class Shop:
    """One dataset, its definitions, and ticks of their sensor."""

    definitions: dg.Definitions
    instance: dg.DagsterInstance
    stores: Stores
    engine: Engine
    opened_at: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))

    def leave_open_sequence(self) -> None:
        class Died(BaseException):
            pass

        def die(reached: Failpoint) -> None:
            if reached is Failpoint.STEP_AFTER:
                raise Died

        with failpoints.install(die), pytest.raises(Died):
            self.definitions.resolve_job_def("shop_whole").execute_in_process(instance=self.instance)

    def tick(self) -> SensorExecutionData:
        sensor = self.definitions.resolve_sensor_def("shop_recovery_sensor")
        assert self.definitions.resources is not None
        with dg.build_sensor_context(instance=self.instance, resources=dict(self.definitions.resources)) as context:
            return sensor.evaluate_tick(context)

    def start_run(self, *, take: bool, config: Mapping[str, object] | None = None) -> tuple[dg.DagsterRun, RunId]:
        """A run that is at work in Dagster and in the log; ``take``: it also holds the dataset."""
        job = self.definitions.resolve_job_def("shop_whole")
        run_config = {"ops": {"shop": {"config": dict(config or {})}}}
        run = self.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED, run_config=run_config)
        # Dagster has heard of the run until now, however long it took to make it.
        self.opened_at = dt.datetime.now(dt.UTC)
        run_id = RunId(uuid.uuid4())
        self.stores.runs.begin(NewRun(run_id, JOB, "host:1", run.run_id))
        ids = list(self.stores.datasets.register(JOB, [DatasetUrn("t")]).values())
        if take:
            assert self.stores.leases.take(ids, Holder("host:1", run_id, run.run_id), ttl_s=60)
        return run, run_id

    def look_for_dead(self, cursor: str | None, seconds: float) -> str:
        """Look so long after the world was opened; 300 s without a lease or a word are too long."""
        moment = self.opened_at + dt.timedelta(seconds=seconds)
        lapsed, seen = self.stores.runs.list_lapsed(JOB, limit=50), read_times(cursor)
        return json.dumps(report_dead_runs(self.instance, self.stores, lapsed, seen, moment, idle_s_max=300))

    def pass_time(self, seconds: int) -> None:
        with self.engine.begin() as connection:
            connection.execute(
                text("UPDATE gobblin.lease SET expires_at = expires_at - make_interval(secs => :s)"), {"s": seconds}
            )

    def status_of(self, run: dg.DagsterRun) -> dg.DagsterRunStatus:
        found = self.instance.get_run_by_id(run.run_id)
        assert found is not None
        return found.status


@pytest.fixture
def shop(tmp_path: Path, database_url: str, engine: Engine) -> Iterator[Shop]:
    write_numbers(tmp_path / "source", "t", None, [1])
    definitions = build_world(tmp_path, database_url, datasets=[{"table": "t"}])
    with open_instance(tmp_path) as instance:
        yield Shop(definitions, instance, open_stores(engine), engine)


class TestRequests:
    def test_a_quiet_log_asks_for_nothing(self, shop: Shop) -> None:
        result = shop.tick()
        assert not result.run_requests
        assert result.skip_message

    @pytest.mark.core
    def test_an_open_sequence_asks_for_one_run_under_its_id_and_the_number_of_the_try(self, shop: Shop) -> None:
        shop.leave_open_sequence()
        with shop.engine.connect() as connection:
            sequence = connection.execute(text("SELECT sequence_id FROM gobblin.commit_sequence")).scalar_one()
        (request,) = shop.tick().run_requests or []
        assert request.run_key == f"{sequence}:1"
        assert request.tags["gobblin/sequence_id"] == str(sequence)

    def test_none_is_asked_for_while_one_is_at_work_nor_at_once_after_it_died(self, shop: Shop) -> None:
        shop.leave_open_sequence()
        (first,) = shop.tick().run_requests or []
        run = shop.instance.create_run_for_job(
            shop.definitions.resolve_job_def("shop_recovery"), status=dg.DagsterRunStatus.STARTED, tags=first.tags
        )
        assert not shop.tick().run_requests
        shop.instance.report_run_failed(run)
        assert not shop.tick().run_requests, "a try that has just died is repeated at once"

    def test_a_sequence_whose_dataset_is_held_is_left_to_its_holder(self, shop: Shop) -> None:
        shop.leave_open_sequence()
        shop.start_run(take=True)
        assert not shop.tick().run_requests


class TestDeadRuns:
    @pytest.mark.core
    def test_a_run_whose_lease_ran_out_is_reported_failed_once(self, shop: Shop) -> None:
        run, run_id = shop.start_run(take=True)
        shop.pass_time(50)
        shop.tick()
        assert shop.status_of(run) is dg.DagsterRunStatus.STARTED
        shop.pass_time(11)
        shop.tick()
        assert shop.status_of(run) is dg.DagsterRunStatus.FAILURE
        with shop.engine.connect() as connection:
            state = connection.execute(
                text("SELECT state FROM gobblin.run WHERE run_id = :id"), {"id": run_id}
            ).scalar()
        assert state == "FAILED"

    def test_a_run_whose_lease_ran_out_is_reported_failed_although_others_took_it_over(self, shop: Shop) -> None:
        run, _ = shop.start_run(take=True)
        shop.pass_time(61)
        shop.start_run(take=True)
        shop.tick()
        assert shop.status_of(run) is dg.DagsterRunStatus.FAILURE
        assert shop.stores.runs.list_working(JOB, [run.run_id]) == set()

    @pytest.mark.core
    def test_a_run_that_holds_its_lease_is_left_alone(self, shop: Shop) -> None:
        run, _ = shop.start_run(take=True)
        shop.tick()
        assert shop.status_of(run) is dg.DagsterRunStatus.STARTED

    @pytest.mark.parametrize(
        ("take", "config", "patience_s"),
        [
            pytest.param(False, {}, 300, id="its dataset was taken over"),
            pytest.param(False, {"stream_s": 1000}, 1300, id="a stream waits for others as long as it goes on"),
            pytest.param(True, {"stream_s": 1000.5}, 300, id="a stream has time to take anew a lease that ran out"),
        ],
    )
    def test_a_run_that_may_be_waiting_is_dead_once_it_was_idle_for_longer_than_it_would_wait(
        self, shop: Shop, *, take: bool, config: Mapping[str, object], patience_s: float
    ) -> None:
        run, _ = shop.start_run(take=take, config=config)
        shop.pass_time(61)
        cursor = shop.look_for_dead(shop.look_for_dead(None, 0), patience_s - 1)
        assert shop.status_of(run) is dg.DagsterRunStatus.STARTED
        assert shop.look_for_dead(cursor, patience_s + 1) == "{}"
        assert shop.status_of(run) is dg.DagsterRunStatus.FAILURE

    def test_a_run_that_says_that_it_waits_lives(self, shop: Shop) -> None:
        run, _ = shop.start_run(take=False)
        cursor = shop.look_for_dead(None, 0)
        said_at_s = shop.opened_at.timestamp() + 400
        line = DagsterEvent(
            DagsterEventType.ENGINE_EVENT.value, "shop_whole", event_specific_data=EngineEventData(), message="waiting"
        )
        shop.instance.report_dagster_event(line, run.run_id, timestamp=said_at_s)
        cursor = shop.look_for_dead(shop.look_for_dead(cursor, 401), 699)
        assert shop.status_of(run) is dg.DagsterRunStatus.STARTED
        assert shop.look_for_dead(cursor, 701) == "{}"
        assert shop.status_of(run) is dg.DagsterRunStatus.FAILURE

    def test_a_cursor_that_somebody_typed_is_no_reason_to_stop(self, shop: Shop) -> None:
        run, _ = shop.start_run(take=False)
        shop.look_for_dead("not ours", 0)
        assert shop.status_of(run) is dg.DagsterRunStatus.STARTED


class TestLostRuns:
    """Runs whose process died while the log knew of no work of theirs."""

    def start(self, shop: Shop, marks: str, job: str = "shop_whole") -> dg.DagsterRun:
        definition = shop.definitions.resolve_job_def(job)
        tags = {PROCESS_TAG: marks}
        return shop.instance.create_run_for_job(definition, status=dg.DagsterRunStatus.STARTED, tags=tags)

    def test_four_that_hold_all_slots_are_failed_by_one_tick(self, shop: Shop) -> None:
        (mark,) = json.loads(describe_this_process())
        dead = json.dumps([[mark[0], mark[1], "another:1"]])
        runs = [self.start(shop, dead, job) for job in ("shop_whole", "shop_whole", "shop_recovery", "shop_whole")]
        shop.tick()
        assert [shop.status_of(run) for run in runs] == [dg.DagsterRunStatus.FAILURE] * 4

    def test_those_that_live_or_are_registered_or_can_t_be_seen_are_left_alone(self, shop: Shop) -> None:
        living, elsewhere = describe_this_process(), json.dumps([["elsewhere", 1, "boot:1"]])
        runs = [self.start(shop, marks) for marks in (living, elsewhere, "")]
        registered, _ = shop.start_run(take=False)
        shop.instance.add_run_tags(registered.run_id, {PROCESS_TAG: json.dumps([["elsewhere", 1, "boot:1"]])})
        shop.tick()
        assert {shop.status_of(run) for run in (*runs, registered)} == {dg.DagsterRunStatus.STARTED}

    def test_one_that_is_slow_to_make_its_resources_lives_until_it_is_killed(self, shop: Shop, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            # It accepts the connection and never answers, like a database that hangs.
            url = f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/nothing"
            environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "DAGSTER_HOME": str(tmp_path)}
            child = subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path), url], env=environment)
            try:
                run = self.find_marked(shop, child)
                shop.tick()
                assert shop.status_of(run) is dg.DagsterRunStatus.STARTED
            finally:
                child.send_signal(signal.SIGKILL)
                child.wait(30)
            assert shop.status_of(run) is dg.DagsterRunStatus.STARTED, "somebody told Dagster: this proves nothing"
            shop.tick()
        assert shop.status_of(run) is dg.DagsterRunStatus.FAILURE

    def find_marked(self, shop: Shop, child: "subprocess.Popen[bytes]") -> dg.DagsterRun:
        until = time.monotonic() + 120
        while time.monotonic() < until:
            assert child.poll() is None, "it ended by itself"
            for run in shop.instance.get_runs():
                if PROCESS_TAG in run.tags and run.status is dg.DagsterRunStatus.STARTED:
                    return run
            time.sleep(0.2)
        raise AssertionError("it never began to make its resources")


RUN = """
import sys
from pathlib import Path
import dagster as dg
from tests.support.dagster_world import build_world
folder, url = sys.argv[1:]
job = build_world(Path(folder), url, datasets=[{"table": "t"}]).resolve_job_def("shop_whole")
with dg.DagsterInstance.get() as instance:
    job.execute_in_process(instance=instance)
"""
