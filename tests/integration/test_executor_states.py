"""Executors as the service shows them by their heartbeats, and what flows become when an executor lacks something."""

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.engine import open_external
from gobblin_assets.model.executor_heartbeat import ExecutorHeartbeat, ExecutorPhase
from gobblin_assets.model.job_ticket import LogId
from gobblin_assets.state.postgres.heartbeats import PostgresHeartbeatStore
from gobblin_assets.state.postgres.tickets import PostgresTicketStore
from tests.support.command_lake import invoke
from tests.support.database_pool import DatabasePool
from tests.support.running_service import RunningService, run_own_service

API = "/api/v1"
HERE = f"{API}/executors/here"
ORDERS = f"{API}/flows/sales/orders"
WAIT_S_MAX = 30.0


def make_flow(**changes: Any) -> dict[str, Any]:
    return {
        "flow_group": "sales",
        "flow_name": "orders",
        "source": "shop",
        "destinations": ["lake"],
        "template_uris": ["FS:///tables.template"],
        "parameters": {"tables": [{"table": "public.orders"}]},
        **changes,
    }


def await_answer(service: RunningService, path: str, is_meant: Callable[[Any], bool]) -> Any:
    until = time.monotonic() + WAIT_S_MAX
    while not is_meant(found := service.ask("GET", path).json):
        assert time.monotonic() < until, found
        time.sleep(0.1)
    return found


def test_from_the_first_heartbeat_to_the_last_one(
    server: EmbeddedServer, database_pool: DatabasePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_own_service(server, database_pool, tmp_path) as service:
        engine = open_external(service.environment["GOBBLIN_DATABASE_URL"])
        heartbeats, tickets = PostgresHeartbeatStore(engine), PostgresTicketStore(engine)
        try:
            never = service.ask("GET", HERE).json
            assert (never["health"]["state"], never["health"]["inbox_max"], never["lacks"]) == ("UNKNOWN", None, [])

            does = frozenset({"ingest.jdbc"})
            beat = ExecutorHeartbeat("here", "host:1", tickets.find_log_id(), "9.9", 3, does, connections=frozenset())
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

            made = service.ask("POST", f"{API}/flows", make_flow())
            assert (made.status, made.json["state"]) == (201, "PENDING")
            assert no_connection in str(made.json["reasons"])
            assert no_connection in service.ask("POST", f"{ORDERS}:explain", make_flow()).text
            page = service.ask("GET", "/ui/topology").text
            for shown in ("HEALTHY", "heard just now, release 9.9", "0 of 3 taken", no_connection):
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
