"""Four acts: load, kill, recover, prove. The product's own commands do everything.

Each demo starts from nothing: it first removes what an earlier one left below its folder. ``--s3``: the lake is a
bucket of a store that runs as long as the demo.
"""

import os
import shutil
import sys
import time
from contextlib import ExitStack
from typing import Any, Final

from rich.table import Table

from demo.flights_source import let_arrive, load_source
from demo.places import CLONE, DISK, STORE, Place, apply_environment
from demo.proof import compare
from demo.s3.store import open_store
from demo.stage import act, command, console, killed_command, say_counts
from gobblin_assets.dagster.resources.spark import GobblinSparkResource
from gobblin_assets.db import embedded
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.log import open_log
from gobblin_assets.settings import forget_unasked_variables
from gobblin_assets.spark import connect_server

NOVEMBER, DECEMBER = "2013-11-01", "2013-12-01"
# Each month has three steps, one for each airport's directory: after the second step, two directories are visible.
FAILPOINT: Final = "step_after=kill@2"


def main() -> int:
    place = STORE if "--s3" in sys.argv[1:] else DISK
    begun = time.monotonic()
    os.chdir(CLONE)
    forget_unasked_variables(os.environ)
    start_anew(place)
    with ExitStack() as stack:
        servers = "an embedded Postgres, a warm Spark" + (", a store that speaks S3" if place is STORE else "")
        with act(f"Servers, below {place.folder.name}: {servers}"):
            if place is STORE:
                stack.enter_context(open_store(place))
            server = embedded.start(place.home, print)
            apply_environment(place, server)
            connectors = ("postgres", "s3") if place is STORE else ("postgres",)
            command("spark", "start", "--master", "local[2]", *(f"--capability={each}" for each in connectors))
        is_equal = play(place, server)
        command("spark", "stop")
    say_end(place, time.monotonic() - begun)
    return 0 if is_equal else 1


def play(place: Place, server: EmbeddedServer) -> bool:
    job = str(place.job_file.relative_to(CLONE))
    with act("Act 1: a first pass over January to October"):
        say_counts("at the source", load_source(server))
        command("run", job, "--partition-range", "2013-01-01...2013-10-01")
        command("run", job)
    with act("Act 2: November and December arrive; a run is killed while publishing"):
        say_counts("at the source", let_arrive(server, 11, 12))
        killed = ["--dataset", "public.flights", "--partition", NOVEMBER, "--partition", DECEMBER]
        killed_command(FAILPOINT, CLONE, "run", job, *killed)
        show_wreck(place)
    with act("Act 3: the next run completes that publication, then reads the rest"):
        command("run", job, "--partition", NOVEMBER, "--partition", DECEMBER, "--mode", "append")
    with act("Act 4: the proof"):
        is_equal = prove(place, server)
        command("ledger", "--job", "nyc", "--dataset", "public.flights")
        command("watermark", "show", "--job", "nyc")
    return is_equal


def start_anew(place: Place) -> None:
    if place.home.exists():
        connect_server.stop_connect(place.home)
        embedded.stop(place.home)
    if place.folder.exists():
        shutil.rmtree(place.folder)
    place.home.mkdir(parents=True)


def show_wreck(place: Place) -> None:
    """Show the state after the kill: some files visible, none of them published, no watermark moved."""
    command("commit", "list", "--job", "nyc")
    with open_log() as log:
        found = log.stores.published.find(JobName("nyc"), DatasetUrn("public.flights"), role=Role.DATA)
        listed = {file.path for segment in found.segments for file in segment.files()} if found else set()
        positions = log.overview.list_watermarks(JobName("nyc"), DatasetUrn("public.flights"))
    fs, root = open_file_system(place.destination)
    lying = [file.path for file in fs.list_files(f"{root}/nyc/data/public.flights")]
    console.print(f"Files of flights at {place.destination}: {len(lying)}")
    console.print(f"Files that the ledger lists, and read_dataset reads: {len(listed)}")
    moved = sorted(p.partition for p in positions if p.partition >= NOVEMBER and p.watermark)
    console.print(f"Watermarks that moved in November and December: {', '.join(moved) or 'none'}")
    if len(lying) <= len(listed) or moved:
        raise SystemExit("The run should have been killed between its first visible file and its watermark.")


def prove(place: Place, server: EmbeddedServer) -> bool:
    warm = connect_server.find(place.home)
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


def say_end(place: Place, seconds: float) -> None:
    console.rule(f"[bold]Done in {seconds:.0f} s", align="left")
    home = place.home.relative_to(CLONE)
    if place is STORE:
        console.print("The store has stopped. Its objects are files below .demo-s3/store/data.")
    else:
        console.print(
            "The same state in Dagster's UI, with a materialization for each partition:\n"
            "    .venv/bin/python -m demo.open_ui     then open http://localhost:3000"
        )
    console.print(
        "On the command line:\n"
        f"    GOBBLIN_HOME={home} gobblin-assets status\n"
        "The embedded Postgres keeps running; this command stops it:\n"
        f"    GOBBLIN_HOME={home} gobblin-assets db stop"
    )


if __name__ == "__main__":
    sys.exit(main())
