"""A service, and `gobblin-assets dagster --executor` that runs its flows: each in processes of its own, on one log."""

import os
import shutil
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine, text

from gobblin_assets.dagster.instance import HOME_VARIABLE, URL_VARIABLE, prepare_instance
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.engine import open_external
from gobblin_assets.model.job_ticket import JobTicket, SentTicket, TicketId, TicketSelection, TicketVerb
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from gobblin_assets.settings import Settings
from gobblin_assets.state.tickets import TicketReport, TicketReportKind
from tests.support import postgres
from tests.support.dagster_process import WAIT_S_MAX, DagsterProcess
from tests.support.database_pool import DatabasePool
from tests.support.postgres import Database
from tests.support.running_service import RunningService, prepare_database, run_service

EXECUTOR = "lakehouse"
GROUP = "sales"
ROWS = 9

_POLL_S = 0.1
_OBEYING = """
import os, pathlib
from tests.support.orders_to_die import obey
obey(pathlib.Path(os.environ["GOBBLIN_TEST_ORDERS"]))
"""


@dataclass(frozen=True)
class DagsterExecutor:
    """``folder``: of orders; ``lake``: where flows publish to."""

    service: RunningService
    dagster: DagsterProcess
    engine: Engine
    source: Database
    folder: Path
    lake: Path

    @property
    def stores(self) -> Stores:
        return open_stores(self.engine)

    def make_table(self, name: str, rows: int = ROWS) -> str:
        with self.source.connect() as connection:
            connection.execute(
                f"CREATE TABLE {name} AS SELECT n AS id, n % 7 AS amount FROM generate_series(1, {rows}) n"
            )
        return f"public.{name}"

    def create_flow(self, name: str, *tables: str) -> None:
        """A flow that begins at once."""
        body = {
            "flow_group": GROUP,
            "flow_name": name,
            "source": "shop",
            "destinations": ["lake"],
            "parameters": {"datasets": [{"table": table} for table in tables]},
        }
        answer = self.service.ask("POST", "/api/v1/flows", body)
        assert answer.status == 201, answer.text

    def find_execution(self, name: str) -> Mapping[str, Any]:
        """The last execution of a flow."""
        executions = self.list_executions(name)
        return executions[0] if executions else {"status": "none", "jobs": []}

    def list_executions(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Of a flow, the last one first."""
        found = self.service.ask("GET", f"/api/v1/flows/{GROUP}/{name}/executions?limit=9").json["executions"]
        return list(found)

    def await_flow(self, name: str, *states: str) -> Mapping[str, Any]:
        """The last execution, once it is in one of the states."""
        self.dagster.wait(lambda: self.find_execution(name)["status"] in states, f"{name} is {states}")
        return self.find_execution(name)

    def send(self, name: str, *tables: str) -> TicketId:
        """A ticket without a flow."""
        job = {
            "job": name,
            "source": {"connection": "shop"},
            "destination": str(self.lake),
            "datasets": [{"urn": table} for table in tables],
        }
        ticket = JobTicket(f"gobblin-job:/{GROUP}/{name}/{name}", "1", "ingest.jdbc", job)
        sent = SentTicket(TicketId(uuid.uuid4()), TicketVerb.ADD, EXECUTOR, ticket, TicketSelection())
        self.stores.tickets.send(sent)
        return sent.ticket_id

    def list_reports(self, ticket_id: TicketId) -> Sequence[TicketReport]:
        return self.stores.tickets.list_reports([ticket_id], {}, limit=1_000)

    def await_end(self, ticket_id: TicketId) -> TicketReport:
        """The report that ended the ticket."""
        self.dagster.wait(lambda: self.stores.tickets.find_ends([ticket_id]), f"the ticket {ticket_id} ends")
        return self.stores.tickets.find_ends([ticket_id])[ticket_id]

    def await_tick(self) -> None:
        """Return when the sensor looked a second ago: its next look comes some seconds later."""
        until = time.monotonic() + WAIT_S_MAX
        while time.monotonic() < until:
            beats = [each for each in self.stores.heartbeats.list_heartbeats() if each.beat.executor == EXECUTOR]
            if beats and 1.0 < min(each.heard_ago_s for each in beats) < 2.5:
                return
            time.sleep(_POLL_S)
        raise AssertionError(f"the sensor does not look\n{self.dagster.say()}")

    def find_runs(self, ticket_id: TicketId) -> list[str]:
        """The Dagster runs that the ticket's attempts told of."""
        told = [each for each in self.list_reports(ticket_id) if each.kind is TicketReportKind.RUNNING]
        return [str(each.details["dagster_run_id"]) for each in told]

    def count_rows(self, table: str) -> int:
        """Of all files of the table's datasets, staging and hidden files aside."""
        files = [path for path in self.lake.rglob("*.parquet") if table in path.parts]
        shown = [
            path for path in files if not any(part.startswith((".", "_")) for part in path.relative_to(self.lake).parts)
        ]
        return sum(pq.ParquetFile(path).metadata.num_rows for path in shown)

    def count_sequences(self, job: str) -> int:
        """The publications of a job in the log."""
        query = text(
            "SELECT count(*) FROM gobblin.commit_sequence JOIN gobblin.dataset USING (dataset_id)"
            " WHERE job = :job AND state = 'DONE'"
        )
        with self.engine.connect() as connection:
            return int(connection.execute(query, {"job": job}).scalar_one())


@contextmanager
def run_dagster_executor(
    server: EmbeddedServer,
    pool: DatabasePool,
    more: Mapping[str, str] = MappingProxyType({}),
    *,
    bootstrap: str | None = None,
) -> Iterator[DagsterExecutor]:
    """``more``: variables of the executor, besides those of its own source.

    ``bootstrap``: brokers over which the service sends tickets, though the log is its own database as well.
    """
    brokers = {} if bootstrap is None else {"GOBBLIN_KAFKA_MAIN_BOOTSTRAP_SERVERS": bootstrap}
    wired = ("--kafka", "main") if brokers else ()
    way = {"communication": "kafka", "location": "main", "log": "away"} if brokers else {}
    folder = postgres.make_reachable_directory("gobblin-tickets-")
    lake = folder / "lake"
    lake.mkdir()
    (folder / "sitecustomize.py").write_text(_OBEYING, encoding="utf-8")
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        source = postgres.describe_database(server, stack.enter_context(postgres.temporary_database(server)))
        url = server.url(stack.enter_context(postgres.migrated_database(server, pool)))
        prepare_database(url)
        dagster_url = server.url(stack.enter_context(postgres.temporary_database(server)))
        home = folder / "home"
        variables = {
            "GOBBLIN_HOME": str(home),
            "GOBBLIN_DATABASE_URL": url,
            "GOBBLIN_DAGSTER_URL": dagster_url,
            "GOBBLIN_JOBS": "",
            "GOBBLIN_JDBC_SHOP_URL": source.jdbc_url,
            "GOBBLIN_JDBC_SHOP_USER": source.user,
            "GOBBLIN_JDBC_SHOP_PASSWORD": source.password,
            "GOBBLIN_TEST_ORDERS": str(folder),
            **more,
            **brokers,
            "PYTHONPATH": os.pathsep.join([str(folder), str(Path(__file__).parents[2])]),
        }
        prepared = prepare_instance(Settings(home=home, database_url=url, dagster_url=dagster_url), lambda _line: None)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv(URL_VARIABLE, prepared[URL_VARIABLE])
        instance = stack.enter_context(dg.DagsterInstance.from_config(prepared[HOME_VARIABLE]))
        command = [sys.executable, "-m", "gobblin_assets.cli", "dagster", "--executor", EXECUTOR, *wired, "dev"]
        dagster = DagsterProcess(folder, command, {**os.environ, **variables}, instance)
        stack.callback(dagster.close)
        dagster.start()
        topology = {
            "nodes": {
                "shop": {"kind": "database", "connection": "shop"},
                "lake": {"kind": "files", "root": str(lake)},
            },
            "executors": {
                EXECUTOR: {
                    "technology": "dagster",
                    **way,
                    "capabilities": ["ingest.jdbc"],
                    "nodes": ["shop", "lake"],
                    "ui_url": f"http://127.0.0.1:{dagster.port}",
                }
            },
        }
        engine = open_external(url)
        stack.callback(engine.dispose)
        own = folder / "service"
        own.mkdir()
        for name, value in brokers.items():
            patch.setenv(name, value)
        service = stack.enter_context(run_service(own, url, "--no-auth", topology=topology, pack={}))
        yield DagsterExecutor(service, dagster, engine, source, folder, lake)
