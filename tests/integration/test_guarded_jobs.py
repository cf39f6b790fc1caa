"""Datasets, histories and logs of jobs: what a user may read, page by page, and what is there while a log is away."""

from dataclasses import dataclass, field

import pytest
from sqlalchemy import Engine

from gobblin_assets.errors import RetryableError
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.service.access import AccessRules, User, parse_access
from gobblin_assets.service.flow_store import SpecNotFoundError
from gobblin_assets.service.guarded_flows import GuardedFlows
from gobblin_assets.service.guarded_jobs import DatasetCondition, GuardedJobs
from gobblin_assets.service.postgres.logs import PostgresTicketLogs
from gobblin_assets.service.postgres.published_jobs import PostgresPublishingJobs
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.state.overview import Overview
from gobblin_assets.state.postgres import PostgresDatasetStore
from gobblin_assets.state.postgres.tickets import PostgresTicketStore
from gobblin_assets.state.tickets import AttemptEnd
from tests.support.flow_world import EXECUTOR, KEY, FlowWorld, LineCompiler, make_config, make_topology

pytestmark = pytest.mark.service_schema

ANN = User("ann", frozenset())
BOB = User("bob", frozenset())
RULES = parse_access(
    {
        "rules": [
            {"allow": "*", "to": "user:ann"},
            {"allow": "read", "to": "user:bob", "on": f"{KEY.group}/b*"},
        ]
    }
)


class TwoLogs(PostgresTicketLogs):
    """The service's own log, and "edge" in the same database, which may be away."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, {})
        self.is_away = False
        self.asked = 0

    def get_store(self, log: str) -> PostgresTicketStore:
        self._reach(log)
        return super().get_store("")

    def get_overview(self, log: str) -> Overview:
        self._reach(log)
        return super().get_overview("")

    def _reach(self, log: str) -> None:
        self.asked += log == "edge"
        if log == "edge" and self.is_away:
            raise RetryableError("no route", passes=True)


@dataclass
class JobsWorld:
    """Flows a, b1, b2 and c; c publishes through the log "edge"; each job has the datasets t1 and t2."""

    engine: Engine
    now_s: float = 0.0
    rules: AccessRules = RULES
    names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.here = FlowWorld(self.engine)
        self.edge = FlowWorld(self.engine, LineCompiler(make_topology("shop", "lake", log="edge")))
        self.logs = TwoLogs(self.engine)
        self.edge.flows.compiling._logs = self.logs
        self.jobs = GuardedJobs(
            PostgresPublishingJobs(self.engine),
            GuardedFlows(self.here.flows, lambda: self.rules),
            self.logs,
            lambda: self.rules,
            lambda: make_topology("shop", "lake"),
            monotonic=lambda: self.now_s,
        )
        datasets = PostgresDatasetStore(self.engine)
        for name, world in {"a": self.here, "b1": self.here, "b2": self.here, "c": self.edge}.items():
            world.flows.create(world.person, make_config("lake", name=name))
            (job,) = world.flows.list_jobs(FlowKey(KEY.group, name))
            self.names[name] = job.job_name
            datasets.register(JobName(job.job_name), [DatasetUrn("public.t1"), DatasetUrn("public.t2")])

    def list_all(self, user: User, limit: int = 100, **filters: str) -> list[tuple[str, str]]:
        """The (flow, URN) of all pages."""
        found: list[tuple[str, str]] = []
        after = None
        while True:
            page = self.jobs.list_datasets(user, after=after, limit=limit, **filters)
            assert len(page.datasets) <= limit
            found += [(each.job.flow.name, each.line.urn) for each in page.datasets]
            if (after := page.after) is None:
                return found


@pytest.fixture
def world(engine: Engine) -> JobsWorld:
    return JobsWorld(engine)


def test_datasets_are_those_of_flows_that_the_user_may_read(world: JobsWorld) -> None:
    everything = [(flow, urn) for flow in ("a", "b1", "b2", "c") for urn in ("public.t1", "public.t2")]
    assert world.list_all(ANN) == everything
    assert world.list_all(ANN, limit=3) == everything
    assert world.list_all(ANN, limit=1) == everything
    assert world.list_all(BOB, limit=3) == [each for each in everything if each[0] in {"b1", "b2"}]
    assert world.list_all(User("nobody", frozenset())) == []
    assert world.list_all(ANN, prefix="public.t2") == [each for each in everything if each[1] == "public.t2"]
    assert world.list_all(ANN, prefix="t2") == []
    assert world.list_all(ANN, node="mirror") == []
    of_flow = world.jobs.list_datasets(ANN, flow=FlowKey(KEY.group, "b1"))
    assert {each.job.flow.name for each in of_flow.datasets} == {"b1"}
    assert world.jobs.get_dataset(BOB, world.names["b1"], "public.t1").dataset.condition is DatasetCondition.EMPTY
    for user, job, urn in (
        (BOB, world.names["a"], "public.t1"),
        (ANN, world.names["a"], "public.t"),
        (ANN, "no_job", "public.t1"),
    ):
        with pytest.raises(SpecNotFoundError):
            world.jobs.get_dataset(user, job, urn)
    world.here.flows.delete(FlowKey(KEY.group, "b1"))
    assert world.list_all(BOB) == [("b2", "public.t1"), ("b2", "public.t2")]


def test_a_log_that_is_away_hides_its_own_datasets_only(world: JobsWorld) -> None:
    world.logs.is_away = True
    page = world.jobs.list_datasets(ANN)
    assert {each.job.flow.name for each in page.datasets} == {"a", "b1", "b2"}
    (away,) = page.away
    assert (away.log, [each.job_name for each in away.jobs]) == ("edge", [world.names["c"]])
    assert "no route" in away.reason
    asked = world.logs.asked
    with pytest.raises(RetryableError, match="no route"):
        world.jobs.get_dataset(ANN, world.names["c"], "public.t1")
    assert world.logs.asked == asked, "nobody waits for it again at once"
    world.logs.is_away = False
    world.now_s += 60
    assert len(world.list_all(ANN)) == 8


def test_jobs_have_a_history_and_a_log(world: JobsWorld) -> None:
    key, job_name = FlowKey(KEY.group, "a"), world.names["a"]
    for number in range(3):
        world.here.orchestrator.look()
        while (claimed := world.here.executor.claim()) is not None:
            claim = claimed[0]
            world.here.tickets = world.here.executor.tickets
            world.here.tickets.keep_output(claim, f"run {number}\nlast line")
            world.here.executor.run(claim, end=AttemptEnd.COMPLETE if number else AttemptEnd.FAILED)
        world.here.monitor.look()
        if number < 2:
            world.here.flows.run(world.here.person, key)
    past = world.jobs.list_past(ANN, key, [job_name])[job_name]
    assert [each.job.status.value for each in past] == ["COMPLETE", "COMPLETE", "FAILED"]
    assert world.here.flows.get_execution(past[-1].execution_id).message == f"{job_name} failed: it broke Mend it."
    first = world.jobs.page_past(ANN, key, job_name, limit=2)
    second = world.jobs.page_past(ANN, key, job_name, limit=2, after=first.after)
    assert [*first.executions, *second.executions] == list(past)
    assert second.after is None
    with pytest.raises(SpecNotFoundError):
        world.jobs.page_past(ANN, FlowKey(KEY.group, "b1"), job_name)
    with pytest.raises(SpecNotFoundError):
        world.jobs.page_past(BOB, key, job_name)

    found = world.jobs.get_output(ANN, key, past[0].execution_id, 0)
    assert [each.lines for each in found.outputs] == ["run 2\nlast line"]
    with pytest.raises(SpecNotFoundError):
        world.jobs.get_output(BOB, key, past[0].execution_id, 0)
    with pytest.raises(SpecNotFoundError):
        world.jobs.get_output(ANN, key, past[0].execution_id, 1)

    world.logs.is_away = True
    execution = world.here.flows.get_status(FlowKey(KEY.group, "c"))
    (away,) = world.jobs.list_outputs(ANN, FlowKey(KEY.group, "c"), execution.execution_id)
    assert "no route" in away.away


def test_an_execution_shows_the_earlier_tickets_of_its_jobs(world: JobsWorld) -> None:
    key, here = FlowKey(KEY.group, "a"), world.here
    execution_id = here.flows.get_status(key).execution_id
    for end in (AttemptEnd.FAILED, AttemptEnd.COMPLETE):
        here.orchestrator.look()
        # Of the flows a, b1 and b2.
        while (claimed := here.executor.claim()) is not None:
            here.executor.tickets.keep_output(claimed[0], f"it is {end.value}")
            here.executor.run(claimed[0], end=end)
        here.monitor.look()
        if end is AttemptEnd.FAILED:
            (before,) = here.flows.get_execution(execution_id).jobs
            here.flows.resume_execution(here.person, key, execution_id)
    (job,) = here.flows.get_execution(execution_id).jobs
    (earlier,) = job.earlier
    assert (before.earlier, job.attempt, earlier.attempt) == ((), 2, 1)
    assert (earlier.ticket_id, earlier.executor, earlier.status.value) == (before.ticket_id, EXECUTOR, "FAILED")
    assert earlier.message == "it broke Mend it."

    first = world.jobs.get_output(ANN, key, execution_id, 0, ticket=1)
    assert ([each.lines for each in first.outputs], first.job.attempt) == (["it is FAILED"], 1)
    for ticket in (None, 2):
        (last,) = world.jobs.get_output(ANN, key, execution_id, 0, ticket=ticket).outputs
        assert last.lines == "it is COMPLETE"
    with pytest.raises(SpecNotFoundError, match="no ticket 3"):
        world.jobs.get_output(ANN, key, execution_id, 0, ticket=3)
