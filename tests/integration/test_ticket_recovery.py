"""The sensors for all jobs that came as tickets: what dead runs left is finished, and what nobody told is told."""

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.sensor_definition import SensorExecutionData
from sqlalchemy import Engine, text

from gobblin_assets import failpoints
from gobblin_assets.dagster import ticket_recovery
from gobblin_assets.dagster.runner_location import EXECUTOR_VARIABLE, build_runner_definitions
from gobblin_assets.dagster.ticket_recovery import (
    JOBS_PER_RUN_MAX,
    TICKETS_RECOVERY_JOB,
    TICKETS_RECOVERY_SENSOR,
    TICKETS_REPORTING_SENSOR,
    AskedRecovery,
    build_ticket_recovery_job,
    build_ticket_recovery_sensor,
    build_ticket_reporting_sensor,
    decide_recoveries,
    read_recovery_memory,
)
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.job_ticket import JobTicket, SentTicket, TicketId, TicketVerb
from gobblin_assets.model.state import RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.datasets import NewRun
from gobblin_assets.state.leases import Holder
from gobblin_assets.state.tickets import AttemptEnd
from tests.support.command_lake import invoke
from tests.support.dagster_instance import open_instance
from tests.support.dagster_world import build_world, describe_job, published_numbers, write_numbers
from tests.support.ticket_shop import NAME, ForkedAttempt, TicketShop, ticket_shop

__all__ = ["ticket_shop"]

pytestmark = pytest.mark.turns(of=4)

WAIT_S_MAX = 150.0


class TestDecisions:
    def decide(
        self, due: Mapping[str, str], asked: Mapping[str, tuple[str, int, float]], now_s: float, *busy: str
    ) -> tuple[list[list[JobName]], dict[JobName, AskedRecovery]]:
        return decide_recoveries(
            {JobName(job): SequenceId(uuid.UUID(int=int(mark))) for job, mark in due.items()},
            {JobName(each) for each in busy},
            {JobName(job): AskedRecovery(str(uuid.UUID(int=int(mark))), *rest) for job, (mark, *rest) in asked.items()},
            now_s,
        )

    def test_new_ones_share_runs_and_one_whose_try_died_is_tried_alone_and_later_each_time(self) -> None:
        due = {f"j{number}": "1" for number in range(JOBS_PER_RUN_MAX + 1)}
        runs, asked = self.decide(due, {}, 0.0)
        assert [len(run) for run in runs] == [JOBS_PER_RUN_MAX, 1]
        assert {each.tries for each in asked.values()} == {1}

        before = {"a": ("1", 1, 0.0), "b": ("1", 2, 0.0), "c": ("1", 1, 0.0), "gone": ("1", 1, 0.0)}
        due = {"a": "1", "b": "1", "c": "2", "d": "1"}
        assert self.decide(due, before, 29.0)[0] == [["c", "d"]]
        runs, asked = self.decide(due, before, 31.0)
        assert runs == [["c", "d"], ["a"]], "c has another sequence; b waits twice as long"
        assert asked["a"].tries == 2
        assert "gone" not in asked

    def test_one_that_a_run_works_on_waits_from_its_end(self) -> None:
        runs, asked = self.decide({"a": "1"}, {"a": ("1", 1, 0.0)}, 100.0, "a")
        assert runs == []
        assert (asked[JobName("a")].tries, asked[JobName("a")].at) == (1, 100.0)


@dataclass
class Shops:
    """Jobs over folders of numbers that came as tickets, and the sensors of all of them."""

    folder: Path
    database_url: str
    instance: dg.DagsterInstance
    engine: Engine

    @property
    def stores(self) -> Stores:
        return open_stores(self.engine)

    def __post_init__(self) -> None:
        world = self.build("any")
        self.definitions = dg.Definitions(
            jobs=[build_ticket_recovery_job()],
            sensors=[build_ticket_recovery_sensor(), build_ticket_reporting_sensor()],
            resources=world.resources,
        )

    def build(self, job: str, **options: Any) -> dg.Definitions:
        write_numbers(self.folder / job / "source", "t", None, [1, 2])
        return build_world(self.folder / job, self.database_url, job=job, datasets=[{"table": "t"}], **options)

    def send(self, job: str, **options: Any) -> TicketId:
        described = describe_job(self.folder / job, job=job, datasets=[{"table": "t"}], **options)
        ticket = JobTicket("gobblin-job:/tests/shop/shop", "1", "tables to files", described)
        sent = SentTicket(TicketId(uuid.uuid4()), TicketVerb.ADD, NAME, ticket)
        self.stores.tickets.send(sent)
        return sent.ticket_id

    def leave_open(self, job: str, **options: Any) -> None:
        """As a run of the job does that dies in the middle of a publication."""

        class Died(BaseException):
            pass

        def die(reached: Failpoint) -> None:
            if reached is Failpoint.STEP_AFTER:
                raise Died

        dying = self.build(job, **options).resolve_job_def(f"{job}_whole")
        with failpoints.install(die), pytest.raises(Died):
            dying.execute_in_process(instance=self.instance)

    def tick(self, sensor: str = TICKETS_RECOVERY_SENSOR, cursor: str | None = None) -> SensorExecutionData:
        assert self.definitions.resources is not None
        resources = dict(self.definitions.resources)
        with dg.build_sensor_context(instance=self.instance, resources=resources, cursor=cursor) as context:
            return self.definitions.resolve_sensor_def(sensor).evaluate_tick(context)

    def recover(self, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        job = self.definitions.resolve_job_def(TICKETS_RECOVERY_JOB)
        return job.execute_in_process(
            instance=self.instance, run_config=request.run_config, tags=request.tags, raise_on_error=False
        )

    def events(self, job: str) -> list[dg.AssetMaterialization | None]:
        records = self.instance.fetch_materializations(dg.AssetKey([job, "t"]), limit=10).records
        return [each.asset_materialization for each in records]


@pytest.fixture
def shops(tmp_path: Path, database_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shops]:
    monkeypatch.setenv("GOBBLIN_JDBC_NUMBERS_URL", "jdbc:postgresql://nowhere/numbers")
    with open_instance(tmp_path) as instance:
        yield Shops(tmp_path, database_url, instance, engine)


@pytest.mark.parametrize("sensor", [TICKETS_RECOVERY_SENSOR, TICKETS_REPORTING_SENSOR])
def test_a_tick_that_says_nothing_leaves_no_file(shops: Shops, sensor: str) -> None:
    """Dagster removes ticks after a day, and never the files of their logs."""
    shops.send("a")
    assert shops.definitions.resources is not None
    with dg.SensorEvaluationContext(
        instance_ref=shops.instance.get_ref(),
        log_key=["shops", sensor, "1"],
        repository_name="shops",
        resources=dict(shops.definitions.resources),
    ) as context:
        found = shops.definitions.resolve_sensor_def(sensor).evaluate_tick(context)
        assert (found.run_requests, found.skip_message is not None) == ([], True)
        assert not list(shops.folder.rglob("*.err"))
        context.log.warning("something")
    assert list(shops.folder.rglob("*.err")), "where the test looks, files of logs are"


@pytest.mark.every_run
def test_one_run_recovers_the_jobs_that_this_environment_can_and_the_others_are_said(shops: Shops) -> None:
    """Two jobs, one of another environment, one whose tickets are forgotten, and one of a job file alone."""
    for job in ("a", "b", "forgotten", "of_file"):
        shops.leave_open(job)
    shops.leave_open("elsewhere", source={"connection": "numbers"})
    shops.send("a")
    shops.send("b")
    shops.send("elsewhere", source={"connection": "other"})
    forgotten = shops.send("forgotten")
    assert shops.stores.tickets.end_unclaimed(forgotten, "it is over")
    assert not shops.stores.tickets.forget([forgotten])

    found = shops.tick()
    (request,) = found.run_requests or []
    assert request.run_config == {"ops": {"recover_jobs": {"config": {"jobs": ["a", "b"]}}}}
    assert not shops.tick(cursor=found.cursor).run_requests, "it was just asked for"

    assert shops.recover(request).success
    for job in ("a", "b"):
        assert published_numbers(shops.folder / job) == [1, 2]
        (event,) = shops.events(job)
        assert event is not None
        assert event.metadata["gobblin/recovered"].value is True
    rest = shops.tick(cursor=found.cursor)
    assert not rest.run_requests
    assert rest.skip_message is not None
    assert "forgotten are forgotten" in rest.skip_message
    assert "gobblin-assets commit recover --job forgotten" in rest.skip_message
    assert "elsewhere: GOBBLIN_JDBC_OTHER_URL" in rest.skip_message
    assert read_recovery_memory(rest.cursor).asked == {}


def test_what_is_left_to_others_hides_nothing_although_it_fills_what_is_read(
    shops: Shops, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticket_recovery, "LOADED_MAX", 1)
    shops.leave_open("elsewhere", source={"connection": "numbers"})
    shops.leave_open("a")
    shops.send("elsewhere", source={"connection": "other"})
    shops.send("a")
    (request,) = shops.tick().run_requests or []
    assert request.run_config == {"ops": {"recover_jobs": {"config": {"jobs": ["a"]}}}}


def test_a_fault_of_one_job_is_said_behind_the_recovery_of_the_others(shops: Shops) -> None:
    shops.leave_open("b")
    shops.send("b")
    request = dg.RunRequest(run_config={"ops": {"recover_jobs": {"config": {"jobs": ["unknown", "b"]}}}}, tags={})
    result = shops.recover(request)
    assert not result.success
    assert published_numbers(shops.folder / "b") == [1, 2]
    (failure,) = [event for event in result.all_node_events if event.is_step_failure]
    assert "unknown" in str(failure.event_specific_data)


def test_what_no_run_of_dagster_published_becomes_events_of_the_right_assets(shops: Shops) -> None:
    """Recovered by the command, so that nobody told Dagster."""
    shops.leave_open("a")
    shops.send("a")
    pass_time(shops.engine, 600)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GOBBLIN_DATABASE_URL", shops.database_url)
        assert invoke("commit", "recover", "--job", "a").exit_code == 0
    assert shops.events("a") == []
    shops.tick(TICKETS_REPORTING_SENSOR)
    (event,) = shops.events("a")
    assert event is not None
    assert event.metadata["dagster/uri"].value
    (run,) = shops.instance.get_runs(dg.RunsFilter(job_name=TICKETS_RECOVERY_JOB))
    assert run.tags["gobblin/reported_by"]


def test_dead_runs_and_blocked_publications_of_tickets_are_reported(shops: Shops) -> None:
    shops.leave_open("a")
    shops.send("a")
    with shops.engine.begin() as connection:
        connection.execute(text("UPDATE gobblin.commit_sequence SET state = 'BLOCKED', last_error = 'no room'"))
    recovery = shops.definitions.resolve_job_def(TICKETS_RECOVERY_JOB)
    config = {"ops": {"recover_jobs": {"config": {"jobs": []}}}}
    mine = shops.instance.create_run_for_job(recovery, status=dg.DagsterRunStatus.STARTED, run_config=config)
    ids = list(shops.stores.datasets.register(JobName("a"), [DatasetUrn("u")]).values())
    for dagster_run_id in (mine.run_id, "of another instance"):
        run_id = RunId(uuid.uuid4())
        shops.stores.runs.begin(NewRun(run_id, JobName("a"), "host:1", dagster_run_id))
        assert shops.stores.leases.take(ids, Holder("host:1", run_id, dagster_run_id), ttl_s=60)
        pass_time(shops.engine, 61)

    found = shops.tick()

    assert not found.run_requests
    assert "wait for a person, the first of a: t" in str(found.skip_message)
    run = shops.instance.get_run_by_id(mine.run_id)
    assert run is not None
    assert run.status is dg.DagsterRunStatus.FAILURE
    left = [each.dagster_run_id for each in shops.stores.runs.list_lapsed(None, limit=10)]
    assert left == ["of another instance"], "it is left to the instance whose run it is"
    check = dg.AssetCheckKey(dg.AssetKey(["a", "t"]), "gobblin_published")
    known = shops.instance.event_log_storage.get_asset_check_execution_history(check, limit=9)
    assert known[0].status.value == "FAILED"
    shops.tick(cursor=found.cursor)
    assert len(shops.instance.event_log_storage.get_asset_check_execution_history(check, limit=9)) == len(known)


def pass_time(engine: Engine, seconds: int) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE gobblin.lease SET expires_at = expires_at - make_interval(secs => :s)"), {"s": seconds}
        )


@pytest.mark.every_run
def test_a_ticket_s_run_that_was_killed_behind_its_seal_is_published_by_the_sensor_s_run(
    ticket_shop: TicketShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of an executor of another kind dies; the sensor of Dagster's runner recovers what it left."""
    for name, value in ticket_shop.environment.items():
        monkeypatch.setenv(name, value)
    ticket_id = ticket_shop.send()
    claim = ticket_shop.stores.tickets.claim(ticket_id, "test", ttl_s=600)
    assert claim is not None
    attempt = ForkedAttempt(ticket_shop, claim, f"{Failpoint.SEAL_COMMITTED}=kill")
    until = time.monotonic() + WAIT_S_MAX
    while attempt.poll() is None:
        assert time.monotonic() < until, ticket_shop.say()
        time.sleep(0.05)
    assert ticket_shop.list_sequences() == {}, "it died before it published"
    definitions = build_runner_definitions({**ticket_shop.environment, EXECUTOR_VARIABLE: "lake"})
    pass_time(ticket_shop.engine, 60)
    with open_instance(tmp_path / "instance") as instance:
        assert definitions.resources is not None
        resources = dict(definitions.resources)
        with dg.build_sensor_context(instance=instance, resources=resources) as context:
            found = definitions.resolve_sensor_def(TICKETS_RECOVERY_SENSOR).evaluate_tick(context)
        (request,) = found.run_requests or []
        job = definitions.resolve_job_def(TICKETS_RECOVERY_JOB)
        assert job.execute_in_process(instance=instance, run_config=request.run_config).success
        published = ticket_shop.list_sequences()
        assert set(published.values()) == {1}
        assert ticket_shop.lake_rows() <= ticket_shop.source_rows()
        events = [
            event
            for table in ("public.orders", "public.customers")
            for event in instance.fetch_materializations(dg.AssetKey(["shop", table]), limit=10).records
        ]
        assert len(events) == len(published)
    assert ticket_shop.stores.tickets.end(claim, AttemptEnd.DIED, {})
