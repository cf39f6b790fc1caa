"""Flows as a service: a table's rows and a copy of them, by REST; an executor is killed; the proof.

Each demo starts from nothing: it first removes what an earlier one left below .demo-service. ``--keep``: the service
and its executor stay up, with their pages, until Ctrl-C.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import pyarrow.parquet as pq
from rich.table import Table

from demo.flights_source import connect_source, let_arrive, load_source
from demo.places import CLONE
from demo.server_process import run_guarded, serve
from demo.service.client import ServiceClient
from demo.service.places import DEMO, HOME, LAKE, MIRROR, TOPOLOGY, apply_environment, child_environment, write_topology
from demo.stage import act, console, say_counts
from gobblin_assets.db import embedded
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.log import open_log
from gobblin_assets.settings import forget_unasked_variables

FLOW: Final = "/flows/nyc/flights"
FLOW_CONFIG: Final = {
    "flow_group": "nyc",
    "flow_name": "flights",
    "description": "Flights as they come, and the airlines as they are.",
    "source": "nyc",
    "destinations": ["lake"],
    "parameters": {
        "datasets": [
            {
                "table": "public.flights",
                "primary_key": ["time_hour", "carrier", "flight", "origin"],
                "watermark_column": "time_hour",
            },
            {"table": "public.airlines", "primary_key": ["carrier"]},
        ]
    },
}
FAILPOINT: Final = "step_after=kill"
PORT_OF_PAGES: Final = 8080

_CLAIM_TTL_S: Final = 5
_OPEN_S_MAX: Final = 90.0

Rows = Counter[tuple[Any, ...]]


def main() -> int:
    begun, keeps = time.monotonic(), "--keep" in sys.argv[1:]
    os.chdir(CLONE)
    forget_unasked_variables(os.environ)
    start_anew()
    with ExitStack() as stack:
        with act("Servers: an embedded Postgres, the service, and an executor of plain processes"):
            server = embedded.start(HOME, console.print)
            stack.callback(embedded.stop, HOME)
            apply_environment(server)
            write_topology()
            say_counts("at the source", load_source(server))
            port = stack.enter_context(serving(PORT_OF_PAGES if keeps else None))
            client = ServiceClient(f"http://127.0.0.1:{port}")
        is_equal = play(server, client)
        if keeps:
            keep_up(port)
    console.rule(f"[bold]Done in {time.monotonic() - begun:.0f} s", align="left")
    return 0 if is_equal else 1


def start_anew() -> None:
    if HOME.exists():
        embedded.stop(HOME)
    if DEMO.exists():
        shutil.rmtree(DEMO)
    for folder in (HOME, LAKE, MIRROR):
        folder.mkdir(parents=True)


@contextmanager
def serving(port: int | None) -> Iterator[int]:
    """The service on a port; None: on a free one."""

    def command(free: int) -> list[str]:
        chosen = str(free if port is None else port)
        words = ["service", "serve", "--topology", str(TOPOLOGY), "--port", chosen, "--no-auth"]
        return [sys.executable, "-m", "gobblin_assets.cli", *words]

    if port is not None:
        console.print(f"[cyan]$ gobblin-assets {' '.join(command(port)[3:])}[/cyan]")
        with run_guarded(command(port), DEMO / "service.log", child_environment()):
            yield port
        return
    with serve(command, DEMO / "service.log", child_environment()) as found:
        console.print(f"[cyan]$ gobblin-assets {' '.join(command(found)[3:])}[/cyan]")
        yield found


@contextmanager
def executing(name: str, failpoint: str = "") -> Iterator["subprocess.Popen[bytes]"]:
    """An executor of the name ``local``; ``name``: of its log."""
    words = ["executor", "serve", "--name", "local", "--claim-ttl", str(_CLAIM_TTL_S)]
    shown = f"GOBBLIN_FAILPOINT={failpoint} " if failpoint else ""
    console.print(f"[cyan]$ {shown}gobblin-assets {' '.join(words)}[/cyan]")
    environment = child_environment() | ({"GOBBLIN_FAILPOINT": failpoint} if failpoint else {})
    command = [sys.executable, "-m", "gobblin_assets.cli", *words]
    with run_guarded(command, DEMO / f"{name}.log", environment) as process:
        yield process


def play(server: EmbeddedServer, client: ServiceClient) -> bool:
    with act("Act 1: a flow is explained, made, and run: a table's rows from January to October"):
        explain(client)
        client.ask("POST", "/flows", FLOW_CONFIG)
        console.print(f"[cyan]POST /api/v1/flows[/cyan]  {FLOW_CONFIG['flow_group']}/{FLOW_CONFIG['flow_name']}")
        with executing("executor-1"):
            require(client.wait(FLOW, say_status), "COMPLETE")
    with act("Act 2: November and December arrive; the run is killed while it publishes, and its executor too"):
        say_counts("at the source", let_arrive(server, 11, 12))
        client.ask("POST", f"{FLOW}:run")
        with executing("executor-2", FAILPOINT) as process:
            wait_for_wreck()
            process.send_signal(signal.SIGKILL)
            console.print("[red]killed: the run, at its first visible directory, and the executor (SIGKILL)[/red]")
    with act("Act 3: another executor takes the ticket over, completes that publication, and reads the rest"):
        with executing("executor-3"):
            status = client.wait(FLOW, say_status)
        require(status, "COMPLETE")
        show_jobs(status)
    with act("Act 4: the proof"):
        return prove(server, client.ask("GET", f"{FLOW}/jobs")[0]["job_name"])


def explain(client: ServiceClient) -> None:
    console.print(f"[cyan]POST /api/v1{FLOW}:explain[/cyan]")
    found = client.ask("POST", f"{FLOW}:explain", FLOW_CONFIG)
    for job in found["plan"]["jobs"]:
        hop = f"{job['source']['node']} ({job['source']['format']}) to {job['target']['node']}"
        console.print(f"job {job['job_name']}: {hop} by {job['template_uri']} on {job['executor']}")


def wait_for_wreck() -> None:
    """Until a publication is sealed, some of it visible, and nobody completes it."""
    until = time.monotonic() + _OPEN_S_MAX
    with open_log() as log:
        while not log.stores.commits.list_open(None, limit=1):
            if time.monotonic() > until:
                raise SystemExit("The run should have been killed between its first visible file and its watermark.")
            time.sleep(0.1)


def say_status(status: dict[str, Any]) -> None:
    jobs = ", ".join(f"{job['job_name']} {job['status']}" for job in status["jobs"])
    console.print(f"execution {status['execution_id']}: {status['status']}  ({jobs})")


def show_jobs(status: dict[str, Any]) -> None:
    table = Table("job", title="GET /api/v1" + FLOW + "/status", title_justify="left")
    for name in ("status", "rows", "low watermark", "high watermark"):
        table.add_column(name)
    for job in status["jobs"]:
        marks = (job["low_watermark"] or "", job["high_watermark"] or "")
        table.add_row(job["job_name"], job["status"], f"{job['processed_count']:,}", *marks)
    console.print(table)


def require(status: dict[str, Any], expected: str) -> None:
    if status["status"] != expected:
        raise SystemExit(f"Expected {expected}, found {status['status']}: {status['message']}")


def prove(server: EmbeddedServer, job: str) -> bool:
    """Compare every row at the source with every row that the ledger lists, as multisets."""
    table = Table("table", title="source and dataset, row for row, as multisets", title_justify="left")
    for name in ("source rows", "dataset rows", "missing", "extra or doubled"):
        table.add_column(name, justify="right")
    table.add_column("")
    is_equal = True
    for name in ("flights", "airlines"):
        columns, source = read_source(server, name)
        found = read_published(job, f"public.{name}", columns)
        missing, extra = (source - found).total(), (found - source).total()
        verdict = "[red]DIFFERENT[/red]" if missing or extra else "[green]equal[/green]"
        table.add_row(name, *(f"{number:,}" for number in (source.total(), found.total(), missing, extra)), verdict)
        is_equal = is_equal and source == found
    console.print(table)
    return is_equal


def read_source(server: EmbeddedServer, table: str) -> tuple[list[str], Rows]:
    """The table's columns, and its rows."""
    with connect_source(server) as connection:
        cursor = connection.execute(f"SELECT * FROM public.{table}".encode())
        return [column.name for column in cursor.description or ()], Counter(cursor)


def read_published(job: str, urn: str, columns: list[str]) -> Rows:
    """By Arrow, from the files that the ledger lists."""
    rows: Rows = Counter()
    with open_log() as log:
        found = log.stores.published.find(JobName(job), DatasetUrn(urn), role=Role.DATA)
        for path in [file.path for segment in found.segments for file in segment.files()] if found else []:
            table = pq.ParquetFile(path).read(columns=columns)
            rows.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return rows


def keep_up(port: int) -> None:
    with executing("executor-4"):
        console.print(
            f"The pages: http://localhost:{port}/      the interface: http://localhost:{port}/api/v1/openapi.json"
        )
        console.print("Ctrl-C ends the service, its executor, and the embedded Postgres.")
        try:
            while True:
                time.sleep(60)
        except KeyboardInterrupt:
            console.print("ended")


if __name__ == "__main__":
    sys.exit(main())
