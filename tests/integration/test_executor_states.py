"""Executors as the service shows them by their heartbeats, and what flows become when an executor lacks something."""

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.engine import open_external
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.executor_heartbeat import ExecutorHeartbeat, ExecutorPhase
from gobblin_assets.model.job_ticket import LogId, SentTicket
from gobblin_assets.service.topology import ExecutorState
from gobblin_assets.state.postgres.heartbeats import PostgresHeartbeatStore
from gobblin_assets.state.postgres.tickets import PostgresTicketStore
from gobblin_assets.state.tickets import AttemptEnd, Claim
from tests.support.command_lake import invoke
from tests.support.database_pool import DatabasePool
from tests.support.flow_world import EXECUTOR, FlowWorld, LineCompiler, make_config, make_topology
from tests.support.running_service import RunningService, run_own_service

API = "/api/v1"
HERE = f"{API}/executors/here"
ORDERS = f"{API}/flows/sales/orders"
WAIT_S_MAX = 150.0


def describe_flow() -> dict[str, Any]:
    return {
        "flow_group": "sales",
        "flow_name": "orders",
        "source": "shop",
        "destinations": ["lake"],
        "template_uris": ["FS:///tables.template"],
        "parameters": {"tables": [{"table": "public.orders"}]},
    }


def await_answer(service: RunningService, path: str, is_meant: Callable[[Any], bool]) -> Any:
    until = time.monotonic() + WAIT_S_MAX
    while not is_meant(found := service.ask("GET", path).json):
        assert time.monotonic() < until, found
        time.sleep(0.1)
    return found


def test_from_the_first_heartbeat_to_the_last_one(
    server: EmbeddedServer, service_pool: DatabasePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_own_service(server, service_pool, tmp_path) as service:
        engine = open_external(service.environment["GOBBLIN_DATABASE_URL"])
        heartbeats, tickets = PostgresHeartbeatStore(engine), PostgresTicketStore(engine)
        try:
            # Before it was asked for, nothing may wait at it.
            never = await_answer(service, HERE, lambda each: each["health"]["inbox_max"] != 0)
            assert (never["health"]["state"], never["health"]["inbox_max"], never["lacks"]) == ("UNKNOWN", None, [])

            does = frozenset({"ingest.jdbc"})
            log_id = tickets.find_log_id()
            beat = ExecutorHeartbeat("here", "a:1", log_id, "9.9", 3, does, workers_max=2, connections=frozenset())
            heartbeats.beat(beat)
            found = await_answer(service, HERE, lambda each: each["health"]["state"] == "HEALTHY")
            assert (found["health"]["slots"], found["health"]["inbox_max"], found["health"]["release"]) == (3, 6, "9.9")
            assert found["usable"] == ["ingest.jdbc"]
            assert found["capabilities"] == ["distcp", "ingest.jdbc"], "as the administrator wrote it"
            no_connection = "the executor here has no connection shop in its environment"
            assert found["lacks"] == [
                "the executor here can't do distcp: none of its packages offers it",
                no_connection,
            ]

            made = service.ask("POST", f"{API}/flows", describe_flow())
            assert (made.status, made.json["state"]) == (201, "PENDING")
            assert no_connection in str(made.json["reasons"])
            assert no_connection in service.ask("POST", f"{ORDERS}:explain", describe_flow()).text
            page = service.ask("GET", "/ui/topology").text
            for shown in ("HEALTHY", "heard just now, release 9.9", "0 of 3 taken", "2 workers at once", no_connection):
                assert shown in page
            monkeypatch.setenv("GOBBLIN_SERVICE_URL", service.url)
            listed = invoke("service", "executor", "list")
            assert listed.exit_code == 0, listed.output
            for shown in ("HEALTHY", "0 of 3", "9.9", no_connection):
                assert shown in listed.output

            # Whoever starts the executor gives it the connection: the flow that waited runs.
            heartbeats.beat(replace(beat, connections=frozenset({"jdbc.shop"})))
            await_answer(service, ORDERS, lambda each: each["state"] == "ACTIVE")
            (job,) = await_answer(service, f"{HERE}/jobs", lambda each: each != [])
            assert (job["job"]["executor"], job["job"]["status"]) == ("here", "ORCHESTRATED")
            await_answer(service, HERE, lambda each: each["health"]["inbox"] == 1)

            heartbeats.beat(replace(beat, log_id=LogId(uuid.uuid4())))
            refused = await_answer(service, HERE, lambda each: each["health"]["state"] == "UNHEALTHY")
            assert "its heartbeats are of the log" in refused["health"]["reason"]
            heartbeats.beat(replace(beat, connections=frozenset({"jdbc.shop"}), phase=ExecutorPhase.ENDED))
            ended = await_answer(service, HERE, lambda each: each["health"]["reason"].startswith("it ended"))
            assert (ended["health"]["state"], ended["health"]["inbox_max"]) == ("UNHEALTHY", 0)
            # It is the only one: the flow waits for it.
            assert service.ask("GET", ORDERS).json["state"] == "ACTIVE"
            assert service.ask("GET", f"{API}/executors/there").status == 404
        finally:
            engine.dispose()


@pytest.mark.service_schema
def test_more_workers_than_an_executor_has_places_for_are_refused(engine: Engine) -> None:
    topology = make_topology("shop", "lake")
    places = {EXECUTOR: ExecutorState(workers_max=1)}
    world = FlowWorld(engine, LineCompiler(replace(topology, states=places), workers=frozenset({0})))
    first, second = make_config("lake"), make_config("lake", name="second")
    world.flows.create(world.person, first)
    (claim, sent), *others = take_all(world)
    assert not others
    assert sent.expires_after_s is None
    for refused in (
        lambda: world.flows.explain(world.person, second),
        lambda: world.flows.create(world.person, second),
    ):
        with pytest.raises(RejectedError, match=f"{EXECUTOR} runs 1 worker at once, and has 1 of other flows") as found:
            refused()
        assert found.value.field == "destinations"
        assert "dagster.yaml" in found.value.hint
    # Its own worker takes no place from its next version.
    world.flows.explain(world.person, make_config("lake", description="next"))
    world.executor.tickets.end(claim, AttemptEnd.FAILED, {"message": "it broke", "hint": ""})
    world.monitor.look()
    world.flows.create(world.person, second)


@pytest.mark.service_schema
def test_the_first_job_of_an_execution_expires_with_the_flow_s_deadline(engine: Engine) -> None:
    world = FlowWorld(engine)
    world.flows.create(world.person, make_config("lake", "mirror", start_deadline="90s"))
    (first,) = take_all(world)
    assert first[1].expires_after_s == 90.0
    world.executor.run(first[0])
    world.monitor.look()
    (second,) = take_all(world)
    assert second[1].expires_after_s is None, "the execution has begun"


def take_all(world: FlowWorld) -> list[tuple[Claim, SentTicket]]:
    world.orchestrator.look()
    return list(iter(world.executor.claim, None))
