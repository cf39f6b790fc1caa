"""What waits for a person: each alert is there while its cause is, and for those who may see what it is about."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import Engine, text

from gobblin_assets.model.executor_heartbeat import ExecutorPhase
from gobblin_assets.service.access import AccessRules, User, parse_access
from gobblin_assets.service.executor_limits import LimitedTopology
from gobblin_assets.service.guarded_alerts import Alert, AlertKind, GuardedAlerts
from gobblin_assets.service.postgres.alerts import PostgresAlertStore
from gobblin_assets.service.postgres.published_jobs import PostgresPublishingJobs
from gobblin_assets.service.spec_executors.wired_executor import SpecExecutors
from gobblin_assets.state.tickets import AttemptEnd
from tests.support.flow_world import (
    EXECUTOR,
    KEY,
    OTHER_EXECUTOR,
    FlowWorld,
    LineCompiler,
    make_config,
    make_topology,
    play_worker,
)

pytestmark = pytest.mark.service_schema

ANN = User("ann", frozenset())
BOB = User("bob", frozenset())
RULES: AccessRules = parse_access(
    {"rules": [{"allow": "*", "to": "user:ann"}, {"allow": "read", "to": "*", "on": "it/*"}]}
)


@pytest.fixture
def world(engine: Engine) -> FlowWorld:
    return FlowWorld(engine, LineCompiler(make_topology("shop", "lake", executors=(EXECUTOR, OTHER_EXECUTOR))))


@pytest.fixture
def list_alerts(world: FlowWorld) -> Callable[[User], list[Alert]]:
    limited = LimitedTopology(world.compiler.topology, world.healths.get)
    executors = SpecExecutors(limited, world.logs, world.healths, PostgresPublishingJobs(world.engine))
    return GuardedAlerts(PostgresAlertStore(world.engine), executors, lambda: RULES).list_alerts


def change(world: FlowWorld, statement: str) -> None:
    with world.engine.begin() as connection:
        assert connection.execute(text(statement)).rowcount


def test_an_executor_that_is_not_heard_is_told_with_the_jobs_that_no_other_one_can_do(
    world: FlowWorld, list_alerts: Callable[[User], list[Alert]]
) -> None:
    world.flows.create(world.person, make_config())
    world.beat()
    world.orchestrator.look()
    assert list_alerts(ANN) == []
    world.beat(phase=ExecutorPhase.ENDED)
    lost, job = list_alerts(ANN)
    assert (lost.kind, lost.executor, job.kind, job.flow) == (
        AlertKind.EXECUTOR_UNHEALTHY,
        EXECUTOR,
        AlertKind.JOB_WITHOUT_EXECUTOR,
        KEY,
    )
    assert "has 1 job: it ended" in lost.what
    assert lost.since is not None
    assert job.execution_id == world.flows.get_status(KEY).execution_id
    assert job.fix == f"Start the executor {EXECUTOR}, or another one on its log that can do ingest.jdbc at lake, shop."
    assert [each.kind for each in list_alerts(BOB)] == [AlertKind.EXECUTOR_UNHEALTHY], "a flow is told that is not his"
    world.beat(OTHER_EXECUTOR)
    assert [each.kind for each in list_alerts(ANN)] == [AlertKind.EXECUTOR_UNHEALTHY], "the other one gets the job"
    world.beat()
    assert list_alerts(ANN) == []


def test_a_ticket_that_nobody_begins_is_told_until_somebody_does(
    world: FlowWorld, list_alerts: Callable[[User], list[Alert]]
) -> None:
    world.flows.create(world.person, make_config())
    world.orchestrator.look()
    sent_at = "UPDATE gobblin_service.job_execution SET sent_at = sent_at - interval '{}'"
    change(world, sent_at.format("4 min"))
    assert list_alerts(ANN) == []
    change(world, sent_at.format("2 min"))
    (alert,) = list_alerts(ANN)
    assert (alert.kind, alert.executor, alert.flow) == (AlertKind.TICKET_NOT_TAKEN, EXECUTOR, KEY)
    assert list_alerts(BOB) == []
    world.executor.run_all()
    world.monitor.look()
    assert list_alerts(ANN) == []


def test_a_log_that_does_not_answer_is_told_to_who_may_use_an_executor_of_it(
    world: FlowWorld, list_alerts: Callable[[User], list[Alert]]
) -> None:
    edge = world.compiler.topology.executors[OTHER_EXECUTOR]
    kept = replace(edge, executor=replace(edge.executor, log="edge", groups=frozenset({"sales"})))
    executors = {**world.compiler.topology.executors, OTHER_EXECUTOR: kept}
    world.compiler.on_topology(replace(world.compiler.topology, executors=executors))
    world.healths.look()
    limited = LimitedTopology(world.compiler.topology, world.healths.get)
    reached = SpecExecutors(limited, world.logs, world.healths, PostgresPublishingJobs(world.engine))
    alerts = GuardedAlerts(PostgresAlertStore(world.engine), reached, lambda: RULES)
    (alert,) = alerts.list_alerts(replace(ANN, groups=frozenset({"sales"})))
    assert alert.kind is AlertKind.WAY_AWAY
    assert "the log edge does not answer" in alert.what
    assert "GOBBLIN_LOG_EDGE_URL" in alert.what + alert.fix
    assert alerts.list_alerts(ANN) == []
    world.compiler.on_topology(make_topology("shop", "lake"))
    world.healths.look()
    assert world.healths.list_unheard() == {}


def test_a_schedule_that_can_t_be_read_is_told_and_one_that_is_put_off_is_not(
    world: FlowWorld, list_alerts: Callable[[User], list[Alert]]
) -> None:
    world.flows.create(world.person, make_config(schedule="0 0 1 1 *"))
    change(
        world,
        "UPDATE gobblin_service.flow SET next_fire_at = now() - interval '2 min', due_at = now() + interval '1 h'",
    )
    assert list_alerts(ANN) == []
    change(
        world,
        """UPDATE gobblin_service.flow_version SET config = jsonb_set(config, '{timezone}', '"Mars/Olympus"')""",
    )
    (alert,) = list_alerts(ANN)
    assert (alert.kind, alert.flow) == (AlertKind.SCHEDULE_UNREADABLE, KEY)
    assert "Mars/Olympus" in alert.what
    assert list_alerts(BOB) == []


def test_a_deletion_that_failed_is_told(world: FlowWorld, list_alerts: Callable[[User], list[Alert]]) -> None:
    world.compiler.workers = frozenset({0})
    world.flows.create(world.person, make_config())
    claim = play_worker(world, publishes=True)
    world.flows.delete(KEY)
    world.executor.tickets.end(claim, AttemptEnd.CANCELLED, {})
    world.step()
    deletion = world.executor.claim()
    assert deletion is not None
    assert list_alerts(ANN) == []
    world.executor.tickets.end(
        deletion[0], AttemptEnd.FAILED, {"message": "the slot is in use", "hint": "End its reader."}
    )
    world.monitor.look()
    (alert,) = list_alerts(ANN)
    assert (alert.kind, alert.flow, alert.executor) == (AlertKind.DELETION_FAILED, KEY, EXECUTOR)
    assert "the slot is in use" in alert.what
    assert list_alerts(BOB) == []
