"""A shop in a test's own Postgres, tickets for its tables, and executors as processes of their own."""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Self
from unittest import mock

import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine, text

from gobblin_assets import failpoints
from gobblin_assets.cli import main
from gobblin_assets.db.engine import open_external
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.job_ticket import JobTicket, SentTicket, TicketId, TicketSelection, TicketShape, TicketVerb
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from gobblin_assets.service.job_plan import PlannedJob
from gobblin_assets.state.tickets import Claim, TicketReport, TicketReportKind
from gobblin_assets.tickets import ticket_worker
from gobblin_assets.tickets.attempt_processes import hand_over
from gobblin_assets.tickets.executor import ExecutorOptions, ProcessExecutor
from gobblin_assets.tickets.heartbeats import Heart, describe_executor
from tests.support.command_lake import invoke
from tests.support.forks import FORKS
from tests.support.postgres import Database

WAIT_S_MAX = 150
NAME = "local"
Rows = Counter[tuple[object, ...]]


def make_sent(ticket_id: TicketId, job: Mapping[str, Any], selection: TicketSelection | None = None) -> SentTicket:
    ticket = JobTicket("gobblin-job:/tests/shop/shop", "1", "tables to files", job)
    return SentTicket(ticket_id, TicketVerb.ADD, NAME, ticket, selection or TicketSelection())


@dataclass
class TicketShop:
    """A source, a lake and a log; and the environment of executors, by which they find all three."""

    folder: Path
    source: Database
    engine: Engine
    environment: dict[str, str]
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def stores(self) -> Stores:
        return open_stores(self.engine)

    def make_job(self, name: str = "shop", **options: Any) -> dict[str, Any]:
        return {
            "job": name,
            "source": {"connection": "shop"},
            "destination": str(self.folder / name),
            "lease": {"ttl_s": 3},
            "retry": {"task_tries_max": 1, "back_off_s": 0},
            "datasets": [
                {
                    "urn": "public.orders",
                    "extract": "append_only",
                    "watermark": {"column": "at", "commit_lag_s": 0},
                    "partitions": {"kind": "monthly", "start": "2024-01-01", "end": "2024-04-01"},
                },
                {"urn": "public.customers"},
            ],
            **options,
        }

    def send(
        self,
        job: Mapping[str, Any] | None = None,
        selection: TicketSelection | None = None,
        *,
        ticket_id: TicketId | None = None,
        verb: TicketVerb = TicketVerb.ADD,
        shape: TicketShape = TicketShape.RUN,
    ) -> TicketId:
        sent = make_sent(ticket_id or TicketId(uuid.uuid4()), self.make_job() if job is None else job, selection)
        ticket = replace(sent.get_job_ticket(), shape=shape)
        self.stores.tickets.send(replace(sent, verb=verb, ticket=ticket))
        return sent.ticket_id

    def cancel(self, other: TicketId) -> TicketId:
        ticket_id = TicketId(uuid.uuid4())
        self.stores.tickets.send(SentTicket(ticket_id, TicketVerb.CANCEL, NAME, cancels=other))
        return ticket_id

    def serve(self, *options: str, name: str = NAME, **variables: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "gobblin_assets.cli", "executor", "serve", "--name", name, *options]
        with (self.folder / "executor.log").open("ab") as log:
            started = subprocess.Popen(command, env={**self.environment, **variables}, cwd=self.folder, stderr=log)
        self.started.append(started)
        return started

    def ask(self, *arguments: str) -> str:
        """The output of a command that must succeed."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GOBBLIN_DATABASE_URL", self.environment["GOBBLIN_DATABASE_URL"])
            done = invoke(*arguments)
        assert done.exit_code == 0, done.output
        return done.stdout

    def say(self) -> str:
        """What all executors said."""
        return (self.folder / "executor.log").read_text(encoding="utf-8")

    def list_reports(self, ticket_id: TicketId) -> Sequence[TicketReport]:
        return self.stores.tickets.list_reports([ticket_id], {}, limit=1_000)

    def kinds(self, ticket_id: TicketId) -> list[str]:
        return [each.kind.value for each in self.list_reports(ticket_id)]

    def await_end(self, ticket_id: TicketId) -> TicketReport:
        """The report that ends the ticket."""
        return self.await_report(ticket_id, lambda report: report.details.get("state") in ENDS)

    def await_report(self, ticket_id: TicketId, is_meant: Callable[[TicketReport], bool]) -> TicketReport:
        until = time.monotonic() + WAIT_S_MAX
        while time.monotonic() < until:
            for report in self.list_reports(ticket_id):
                if is_meant(report):
                    return report
            time.sleep(0.1)
        raise AssertionError(f"{self.list_reports(ticket_id)}\n{self.say()}")

    def await_kind(self, ticket_id: TicketId, kind: TicketReportKind) -> TicketReport:
        return self.await_report(ticket_id, lambda report: report.kind is kind)

    def lake_rows(self, job: str = "shop") -> Rows:
        """The rows of both tables in the files that the ledger has."""
        found: Rows = Counter()
        for urn, columns in {"public.orders": ("id", "amount"), "public.customers": ("id", "name")}.items():
            published = self.stores.published.find(JobName(job), DatasetUrn(urn), role=Role.DATA)
            for segment in () if published is None else published.segments:
                for each in segment.files():
                    table = pq.read_table(each.path, columns=list(columns), partitioning=None)
                    found.update((urn, *row.values()) for row in table.to_pylist())
        return found

    def source_rows(self) -> Rows:
        with self.source.connect() as connection:
            orders = connection.execute("SELECT 'public.orders', id, amount FROM orders").fetchall()
            customers = connection.execute("SELECT 'public.customers', id, name FROM customers").fetchall()
        return Counter(tuple(row) for row in (*orders, *customers))

    def close(self) -> None:
        for each in self.started:
            if each.poll() is None:
                each.send_signal(signal.SIGCONT)
                each.kill()
            each.wait()
        self.engine.dispose()

    def list_sequences(self) -> Counter[str]:
        """The publications that the log has."""
        with self.engine.connect() as connection:
            found = connection.execute(text("SELECT sequence_id FROM gobblin.commit_sequence WHERE state = 'DONE'"))
            return Counter(map(str, found.scalars()))

    def list_told(self, ticket_id: TicketId) -> Counter[str]:
        """The publications that the ticket's reports have."""
        told = [each for each in self.list_reports(ticket_id) if each.kind is TicketReportKind.PUBLISHED]
        return Counter(each.details["sequence_id"] for each in told)


class ForkedAttempt:
    """``executor run`` in a process that is forked from one that has imported what it needs."""

    def __init__(self, shop: TicketShop, claim: Claim, failpoint: str) -> None:
        self.log = shop.folder / f"reached-{claim.ticket_id}-{claim.attempt}"
        arguments = ["executor", "run"]
        read, write = FORKS.Pipe(duplex=False)
        self._process = FORKS.Process(
            target=_become, args=(shop.environment, str(shop.folder), arguments, failpoint, str(self.log), read)
        )
        self._process.start()
        read.close()
        self.stdin: IO[bytes] = os.fdopen(os.dup(write.fileno()), "wb")
        write.close()
        hand_over(self, claim)

    def poll(self) -> int | None:
        return self._process.exitcode

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()

    def reached(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []


def _become(
    environment: Mapping[str, str], folder: str, arguments: Sequence[str], failpoint: str, log: str, pipe: Any
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    os.dup2(pipe.fileno(), 0)
    output = os.open("executor.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 2)
    if "GOBBLIN_TEST_PROGRESS_S" in environment:
        mock.patch.object(ticket_worker, "PROGRESS_S", float(environment["GOBBLIN_TEST_PROGRESS_S"])).start()
    if failpoint:
        failpoints.arm(failpoint, log)
    main(list(arguments), prog_name="gobblin-assets")


class Executor:
    """An executor in a thread of the test, with real processes. ``failpoints_of``: those of an attempt's process."""

    def __init__(
        self,
        shop: TicketShop,
        failpoints_of: Callable[[Claim], str] = lambda _claim: "",
        *,
        slots: int = 2,
        owner: str = "test",
        stop_grace_s: float = 60.0,
        claim_ttl_s: float = 30.0,
    ) -> None:
        self.attempts: list[ForkedAttempt] = []
        self.lines: list[str] = []
        self._stop = threading.Event()
        self._shop = shop
        self._failpoints_of = failpoints_of
        options = ExecutorOptions(NAME, slots, owner, claim_ttl_s, stop_grace_s)
        log_id = shop.stores.tickets.find_log_id()
        beat = describe_executor(NAME, owner, log_id, slots, shop.environment)
        heart = Heart(shop.stores.heartbeats, lambda: beat, SystemClock())
        made = ProcessExecutor(options, shop.stores, self, heart, SystemClock(), self.lines.append)
        self._thread = threading.Thread(target=made.take_tickets, args=(self._stop.wait,))

    def start(self, claim: Claim) -> ForkedAttempt:
        self.attempts.append(ForkedAttempt(self._shop, claim, self._failpoints_of(claim)))
        return self.attempts[-1]

    def prepare(self) -> None:
        """Nothing: a process that is forked has its imports."""

    def close(self) -> None:
        """Nothing waits for a claim."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join(WAIT_S_MAX)
        assert not self._thread.is_alive()

    def end(self) -> None:
        """Drain it."""
        self.__exit__()


def only_first(failpoint: str) -> Callable[[Claim], str]:
    return lambda claim: failpoint if claim.attempt == 1 else ""


def send_planned(shop: TicketShop, job: PlannedJob) -> TicketId:
    """What a compiler planned."""
    ticket_id = TicketId(uuid.uuid4())
    shop.stores.tickets.send(SentTicket(ticket_id, TicketVerb.ADD, NAME, job.ticket))
    return ticket_id


def require_complete(shop: TicketShop, ticket_id: TicketId) -> None:
    end = shop.await_end(ticket_id)
    assert end.details["state"] == "COMPLETE", (end.details, shop.say())


ENDS = ("COMPLETE", "FAILED", "CANCELLED")


@pytest.fixture
def ticket_shop(tmp_path: Path, fresh_database: Database, database_url: str) -> Iterator[TicketShop]:
    with fresh_database.connect() as connection:
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY, at timestamptz NOT NULL, amount int)")
        connection.execute(
            "INSERT INTO orders SELECT n, timestamptz '2024-01-01Z' + n * interval '12 hours', n % 7"
            " FROM generate_series(0, 179) n"
        )
        connection.execute("CREATE TABLE customers (id int PRIMARY KEY, name text)")
        connection.execute("INSERT INTO customers SELECT n, 'c' || n FROM generate_series(1, 9) n")
    environment = {
        **os.environ,
        "GOBBLIN_HOME": str(tmp_path / "home"),
        "GOBBLIN_DATABASE_URL": database_url,
        "GOBBLIN_JDBC_SHOP_URL": fresh_database.jdbc_url,
        "GOBBLIN_JDBC_SHOP_USER": fresh_database.user,
        "GOBBLIN_JDBC_SHOP_PASSWORD": fresh_database.password,
    }
    shop = TicketShop(tmp_path, fresh_database, open_external(database_url), environment)
    yield shop
    shop.close()
