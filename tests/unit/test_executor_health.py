"""Executors by their heartbeats: who is well, what each can do and reach, and what the compiler makes of it."""

import uuid
from dataclasses import replace
from typing import Any, Final

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.executor_heartbeat import (
    SILENT_AFTER_S,
    ExecutorHeartbeat,
    ExecutorPhase,
    HeardHeartbeat,
    heartbeat_from_json,
    heartbeat_to_json,
)
from gobblin_assets.model.job_ticket import LogId
from gobblin_assets.service.executor_health import ExecutorHealth, HealthState, judge_health
from gobblin_assets.service.executor_limits import LimitedTopology
from gobblin_assets.service.job_plan import PendingFlow, SpecCompiler
from gobblin_assets.service.template_store import read_shipped_packs
from gobblin_assets.service.topology import Topology
from gobblin_assets.sources.environment import connection_class
from gobblin_assets.spec.source_kind import SourceKind
from gobblin_assets.spec.source_spec import SOURCES
from gobblin_assets.tickets.heartbeats import ADDRESS_OF, find_connections
from tests.support.flow_templates import Names, make_compiler, make_flow, make_topology, plan_flow, show_plan

LOG: Final = LogId(uuid.UUID(int=1))
DOES: Final = frozenset({"ingest.jdbc", "distcp"})
HEALTHY, UNHEALTHY = HealthState.HEALTHY, HealthState.UNHEALTHY


def beat(owner: str = "a:1", ago_s: float = 1.0, waiting: int = 0, working: int = 0, **more: Any) -> HeardHeartbeat:
    made = ExecutorHeartbeat("local", owner, LOG, "1", slots=2, capabilities=DOES)
    return HeardHeartbeat(replace(made, **more), ago_s, waiting, working)


def judge(*beats: HeardHeartbeat, older_s: float = 0.0) -> ExecutorHealth:
    return judge_health("local", beats, LOG, older_s)


def test_an_executor_is_well_while_one_of_its_processes_works_and_is_heard() -> None:
    found = judge(beat(waiting=3, working=1), beat("b:1", 5.0), beat("c:1", phase=ExecutorPhase.DRAINING))
    assert (found.state, found.reason, found.slots, found.inbox, found.working) == (HEALTHY, "", 4, 3, 1)
    assert found.inbox_max == 8
    silent = judge(beat(), older_s=SILENT_AFTER_S)
    assert (silent.state, silent.inbox_max, silent.reason) == (UNHEALTHY, 0, "it was heard last 31 s ago")
    assert judge(beat(phase=ExecutorPhase.DRAINING)).state is HealthState.DRAINING
    ended = judge(beat(phase=ExecutorPhase.ENDED))
    assert (ended.state, ended.reason) == (UNHEALTHY, "it ended 1 s ago")
    never = judge()
    assert (never.state, never.inbox_max) == (HealthState.UNKNOWN, None)


def test_a_process_that_only_answers_questions_hides_no_silence_of_those_that_take_tickets() -> None:
    """As beside a Dagster whose sensors look no more."""
    answering = beat("answers", slots=0)
    silent = judge(answering, beat("dagster", ago_s=45.0, slots=4))
    assert (silent.state, silent.reason, silent.inbox_max) == (UNHEALTHY, "it was heard last 45 s ago", 0)
    heard = judge(answering, beat("dagster", slots=4))
    assert (heard.state, heard.slots) == (HEALTHY, 4)
    assert judge(answering).state is HEALTHY, "nothing else was heard yet"
    assert judge(answering, beat("dagster", slots=0, workers_max=2)).state is HEALTHY


def test_heartbeats_of_another_log_count_for_nothing() -> None:
    other = LogId(uuid.uuid4())
    refused = judge(beat(log_id=other))
    assert refused.state is UNHEALTHY
    assert str(other) in refused.reason
    assert "GOBBLIN_DATABASE_URL" in refused.reason
    beside = judge(beat(), beat("b:1", 0.5, log_id=other))
    assert (beside.state, beside.slots, beside.log_id) == (HEALTHY, 2, LOG)


def test_what_one_process_lacks_the_executor_lacks() -> None:
    found = judge(
        beat(connections=frozenset({"jdbc.shop", "kafka.c"}), workers_max=2),
        beat("b:1", connections=frozenset({"jdbc.shop"}), capabilities=frozenset({"distcp"}), workers_max=3),
    )
    assert (found.connections, found.capabilities, found.workers_max) == ({"jdbc.shop"}, {"distcp"}, 5)
    assert judge(beat(connections=frozenset()), beat("b:1")).connections is None
    # Of one that is silent, what the latest process had: a flow is not planned otherwise, since nobody answers.
    assert judge(beat(ago_s=99.0), beat("b:1", 98.0, capabilities=frozenset({"distcp"}))).capabilities == {"distcp"}


def test_heartbeats_are_read_as_they_were_written_and_newer_ones_without_what_is_new() -> None:
    made = beat(connections=frozenset({"jdbc.shop"}), daemons={"SENSOR": 2.5}, workers_max=1).beat
    assert heartbeat_from_json({**heartbeat_to_json(made), "colour": "red"}) == made


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("executor", ""), ("owner", 7), ("log_id", "x"), ("phase", "ASLEEP"), ("slots", -1), ("slots", True)),
        *(("capabilities", "distcp"), ("connections", [1]), ("daemons", []), ("daemons", {"a": "b"})),
    ],
)
def test_what_is_no_heartbeat_is_refused_by_its_field(field: str, value: object) -> None:
    with pytest.raises(RejectedError) as refused:
        heartbeat_from_json({**heartbeat_to_json(beat().beat), field: value})
    assert refused.value.field == f"heartbeat.{field}"


def test_connections_are_named_by_the_variables_of_their_addresses_and_no_value_is_told() -> None:
    environment = {
        "GOBBLIN_JDBC_SHOP_URL": "postgresql://secret",
        "GOBBLIN_JDBC_SHOP_PASSWORD": "secret",
        "GOBBLIN_JDBC_OLD_URL": "",
        "GOBBLIN_KAFKA_MY_CLUSTER_BOOTSTRAP_SERVERS": "secret:9092",
        "GOBBLIN_POSTGRES_LOG_SHOP_URL": "postgresql://secret",
        "GOBBLIN_ICEBERG_LAKE_URL": "secret",
        "GOBBLIN_LOG_EDGE_URL": "secret",
    }
    assert find_connections(environment) == {"jdbc.shop", "kafka.my_cluster", "postgres_log.shop", "iceberg.lake"}


def test_the_ends_of_variables_are_those_of_the_kinds() -> None:
    kinds = [kind for name in SOURCES.built_in if isinstance(kind := SOURCES.get(name), SourceKind)]
    found = {kind.name: connection_class(kind).ADDRESS.upper() for kind in kinds if kind.connection is not None}
    assert found == ADDRESS_OF


PACKS: Final = tuple(read_shipped_packs())


def compile_by(topology: Topology) -> SpecCompiler:
    return make_compiler(topology, *PACKS)


NODES: Final = {
    "shop": {"kind": "database", "connection": "shop"},
    "lake": {"kind": "files", "root": "/lake"},
    "bucket": {"kind": "files", "root": "s3://bucket/x"},
}
FLOW: Final = make_flow("shop", ["lake"], parameters={"datasets": [{"table": "public.orders"}]})


def make_limited(healths: dict[str, ExecutorHealth], **executors: dict[str, Any]) -> LimitedTopology:
    allowed = {"capabilities": sorted(DOES), "nodes": sorted(NODES)}
    topology = make_topology(NODES, {name: {**allowed, **more} for name, more in executors.items()})
    limited = LimitedTopology(
        topology, lambda name: healths.get(name, ExecutorHealth(name, HealthState.UNKNOWN, reason="never"))
    )
    limited.apply_health()
    return limited


def health(state: HealthState = HEALTHY, **more: Any) -> ExecutorHealth:
    found = {"connections": frozenset({"jdbc.shop"}), "file_systems": frozenset({"file", "s3"}), **more}
    return ExecutorHealth("any", state, capabilities=found.pop("capabilities", DOES), **found)


def explain(topology: Topology) -> str:
    compiled = compile_by(topology).explain_flow(FLOW, Names(), frozenset()).compiled
    assert isinstance(compiled, PendingFlow)
    return " ".join(compiled.reasons)


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        ({"connections": frozenset({"jdbc.other"})}, "the executor local has no connection shop in its environment"),
        ({"connections": frozenset({"kafka.shop"})}, "the executor local has no connection shop in its environment"),
        ({"capabilities": frozenset({"distcp"})}, "the executor local can't do ingest.jdbc: none of its packages"),
        ({"file_systems": frozenset({"s3"})}, "the executor local has no package for the file system file of lake"),
    ],
)
def test_a_flow_waits_for_what_an_executor_lacks_and_is_told_what_that_is(lacking: dict[str, Any], said: str) -> None:
    limited = make_limited({"local": health(**lacking)}, local={})
    assert said in explain(limited.topology)


@pytest.mark.parametrize(
    "found",
    [
        health(),
        ExecutorHealth("local", HealthState.UNKNOWN),
        health(UNHEALTHY),
        health(connections=None, file_systems=None),
        health(connections=frozenset({"my_own_kind.shop"})),
    ],
)
def test_what_an_executor_has_or_does_not_tell_is_taken_as_the_administrator_wrote_it(found: ExecutorHealth) -> None:
    limited = make_limited({"local": found}, local={})
    assert show_plan(plan_flow(compile_by(limited.topology), FLOW)) == ["shop -jdbc-to-lake-> lake by local"]


def test_a_word_of_the_administrator_s_own_stays() -> None:
    limited = make_limited({"local": health()}, local={"capabilities": [*sorted(DOES), "approved"]})
    assert limited.topology.executors["local"].executor.capabilities == {*DOES, "approved"}


def test_an_executor_that_nobody_heard_over_a_way_of_its_own_is_not_planned_with() -> None:
    limited = make_limited({}, local={"communication": "carrier"})
    assert "the executor local was never heard" in explain(limited.topology)


def test_of_equal_executors_one_that_is_well_is_taken_and_a_cheaper_one_stays_cheaper() -> None:
    healths = {"a": health(UNHEALTHY), "b": health()}
    plan = plan_flow(compile_by(make_limited(healths, a={}, b={}).topology), FLOW)
    assert [job.executor for job in plan.jobs] == ["b"]
    assert plan.cost == plan_flow(compile_by(make_limited({}, a={}, b={}).topology), FLOW).cost
    cheaper = make_limited(healths, a={"cost": 0.5}, b={})
    assert [job.executor for job in plan_flow(compile_by(cheaper.topology), FLOW).jobs] == ["a"]


class Hearer:
    def __init__(self) -> None:
        self.heard: list[Topology] = []

    def on_topology(self, topology: Topology) -> None:
        self.heard.append(topology)


def test_listeners_hear_of_what_changes_plans_and_not_of_each_heartbeat() -> None:
    healths = {"local": health(inbox=1)}
    limited, hearer = make_limited(healths, local={}), Hearer()
    limited.add_listener(hearer)
    healths["local"] = health(inbox=7, working=2, heard_ago_s=3.0)
    assert not limited.apply_health()
    healths["local"] = health(connections=frozenset())
    assert limited.apply_health()
    assert [each.executors["local"].executor.nodes for each in hearer.heard] == [{"lake", "bucket"}]
    limited.on_topology(limited.source)
    assert hearer.heard[-1].get_state("local").no_nodes.keys() == {"shop"}
