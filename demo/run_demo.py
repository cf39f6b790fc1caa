"""Four acts: load, kill, recover, prove. The product's own commands do everything.

Each demo starts from nothing: it first removes what an earlier demo left below .demo.
"""

import os
import shutil
import sys
import time
from typing import Any, Final

from flights_source import let_arrive, load_source  # from the script's own folder
from places import CLONE, DEMO, HOME, JOB_FILE, LAKE, apply_environment
from proof import compare
from rich.table import Table
from stage import act, command, console, killed_command, list_visible, say_counts

from gobblin_assets.dagster.resources.spark import GobblinSparkResource
from gobblin_assets.db import embedded
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.libpq import forget_unasked_variables
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.log import open_log
from gobblin_assets.spark import connect_server

NOVEMBER, DECEMBER = "2013-11-01", "2013-12-01"
# Each month has three steps, one for each airport's directory: after the second step, two directories are visible.
FAILPOINT: Final = "step_after=kill@2"


def main() -> int:
    begun = time.monotonic()
    os.chdir(CLONE)
    forget_unasked_variables(os.environ)
    start_anew()
    with act("Servers, below .demo: an embedded Postgres, a warm Spark"):
        server = embedded.start(HOME, print)
        apply_environment(server)
        command("spark", "start", "--master", "local[2]")
    with act("Act 1: a first pass over January to October"):
        say_counts("at the source", load_source(server))
        command("run", job_file(), "--partition-range", "2013-01-01...2013-10-01")
        command("run", job_file())
    with act("Act 2: November and December arrive; a run is killed while publishing"):
        say_counts("at the source", let_arrive(server, 11, 12))
        killed = ["--dataset", "public.flights", "--partition", NOVEMBER, "--partition", DECEMBER]
        killed_command(FAILPOINT, CLONE, "run", job_file(), *killed)
        show_wreck()
    with act("Act 3: the next run completes that publication, then reads the rest"):
        command("run", job_file(), "--partition", NOVEMBER, "--partition", DECEMBER, "--mode", "append")
    with act("Act 4: the proof"):
        is_equal = prove(server)
        command("ledger", "--job", "nyc", "--dataset", "public.flights")
        command("watermark", "show", "--job", "nyc")
    command("spark", "stop")
    say_end(time.monotonic() - begun)
    return 0 if is_equal else 1


def start_anew() -> None:
    if HOME.exists():
        connect_server.stop_connect(HOME)
        embedded.stop(HOME)
    if DEMO.exists():
        shutil.rmtree(DEMO)
    HOME.mkdir(parents=True)


def job_file() -> str:
    return str(JOB_FILE.relative_to(CLONE))


def show_wreck() -> None:
    """Show the state after the kill: some files visible, none of them published, no watermark moved."""
    command("commit", "list", "--job", "nyc")
    with open_log() as log:
        found = log.stores.published.find(JobName("nyc"), DatasetUrn("public.flights"), role=Role.DATA)
        listed = {file.path for segment in found.segments for file in segment.files()} if found else set()
        positions = log.overview.list_watermarks(JobName("nyc"), DatasetUrn("public.flights"))
    lying = [path for path in list_visible(LAKE) if "flights" in path]
    console.print(f"Files of flights below {LAKE.relative_to(CLONE)}: {len(lying)}")
    console.print(f"Files that the ledger lists, and read_dataset reads: {len(listed)}")
    moved = sorted(p.partition for p in positions if p.partition >= NOVEMBER and p.watermark)
    console.print(f"Watermarks that moved in November and December: {', '.join(moved) or 'none'}")
    if len(lying) <= len(listed) or moved:
        raise SystemExit("The run should have been killed between its first visible file and its watermark.")


def prove(server: EmbeddedServer) -> bool:
    warm = connect_server.find(HOME)
    spark: Any = GobblinSparkResource(remote=None if warm is None else warm.url, capabilities=["postgres"])
    with open_log() as log:
        verdicts = compare(server, spark.get_session(), log.stores.published)
    table = Table("table", title="source and dataset, row for row, as multisets", title_justify="left")
    for name in ("source rows", "dataset rows", "missing", "extra or doubled"):
        table.add_column(name, justify="right")
    table.add_column("")
    for each in verdicts:
        numbers = (each.source_rows, each.dataset_rows, each.missing, each.extra)
        verdict = "[green]equal[/green]" if each.is_equal else "[red]DIFFERENT[/red]"
        table.add_row(each.table, *(f"{number:,}" for number in numbers), verdict)
    console.print(table)
    return all(each.is_equal for each in verdicts)


def say_end(seconds: float) -> None:
    console.rule(f"[bold]Done in {seconds:.0f} s", align="left")
    console.print(
        "The same state in Dagster's UI, with a materialization for each partition:\n"
        "    .venv/bin/python demo/open_ui.py     then open http://localhost:3000\n"
        "On the command line:\n"
        f"    GOBBLIN_HOME={HOME.relative_to(CLONE)} gobblin-assets status\n"
        "The embedded Postgres keeps running; this command stops it:\n"
        f"    GOBBLIN_HOME={HOME.relative_to(CLONE)} gobblin-assets db stop"
    )


if __name__ == "__main__":
    sys.exit(main())
