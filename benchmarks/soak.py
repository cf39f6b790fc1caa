"""``python -m benchmarks.soak --minutes N``: the service at work for long, at a low load. Does anything grow?

Two nodes, an executor of processes and one of Dagster's run small flows by schedules, and a worker that follows a
change log, over Postgres servers of their own. Each minute a sample is kept. The verdict compares those of the last
quarter with those of the second one. At the end, sources and lakes are compared as multisets, and every slot is
accounted.
"""

import argparse
import datetime as dt
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Final

import psycopg
import urllib3

from benchmarks.soak_samples import Sampler
from benchmarks.soak_slots import account_slots
from benchmarks.soak_verdict import Sample, judge_growth
from benchmarks.soak_world import (
    COPIED_TABLE,
    FOLLOWED,
    GROUP,
    SoakPlan,
    SoakWorld,
    SourceWriter,
    open_world,
)
from demo.places import CLONE
from demo.service.proof import Comparison, are_equal, read_parquet, read_published, replay_changes, say_comparisons
from demo.service.run_demo import wait_until
from demo.service.sources import read_table
from demo.stage import console
from gobblin_assets.settings import forget_unasked_variables

_NICENESS: Final = 5
_TICK_S: Final = 5.0
_TICKS_OF_A_MINUTE: Final = 12
_PUBLISHED_S_MAX: Final = 900.0
_MB: Final = 1_000_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description="Does anything grow?")
    parser.add_argument("--minutes", type=int, default=120, help="how long it is at work (default %(default)s)")
    parser.add_argument("--home", type=Path, default=CLONE / ".soak", help="of its files (default %(default)s)")
    parser.add_argument("--flows", type=int, default=20, help="of tables (default %(default)s)")
    parser.add_argument("--period", type=int, default=8, help="minutes between two runs of one (default %(default)s)")
    parser.add_argument("--dagster", action="store_true", help="an executor of Dagster's too: a third of a processor")
    parser.add_argument("--judge", action="store_true", help="only the verdict on the samples of the home")
    given = parser.parse_args()
    plan = SoakPlan(given.home.resolve(), given.flows, given.period, has_dagster=given.dagster)
    if given.judge:
        return 0 if judge_growth(plan.home) else 1
    os.nice(_NICENESS)
    forget_unasked_variables(os.environ)
    with ExitStack() as stack:
        world = open_world(plan, stack)
        begun = dt.datetime.now(dt.UTC)
        sampler = Sampler(world)
        soak(world, sampler, given.minutes)
        is_sound = prove_all(world, sampler, begun)
    return 0 if judge_growth(plan.home) and is_sound else 1


def soak(world: SoakWorld, sampler: Sampler, minutes: int) -> None:
    """All of it at a steady pace. What a busy machine refuses is said, and is no end."""
    writer = SourceWriter(world.plan, world.source)
    begun = time.monotonic()
    for tick in range(minutes * _TICKS_OF_A_MINUTE):
        if tick % _TICKS_OF_A_MINUTE == 0:
            with _told("the sample"):
                say_sample(sampler.take())
            with _told("the tables"):
                writer.write_tables()
            with _told("the pages"):
                look_at_pages(world)
        with _told("the followed table"):
            writer.change_followed()
        time.sleep(max(0.0, begun + (tick + 1) * _TICK_S - time.monotonic()))
    say_sample(sampler.take())


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, psycopg.Error, urllib3.exceptions.HTTPError, SystemExit) as error:
        console.print(f"[red]{what}: {type(error).__name__}: {error}[/red]")


def look_at_pages(world: SoakWorld) -> None:
    """As a person's program does."""
    for path in ("/flows?limit=100", f"/flows/{GROUP}/{FOLLOWED}/status", f"/flows/{GROUP}/{COPIED_TABLE}/slots"):
        world.client.ask("GET", path)


def say_sample(sample: Sample) -> None:
    nodes = [each["uss"] / _MB for each in sample["processes"] if each["machine"].startswith("node")]
    counts = sample["counts"]
    connections = sum(sample["log"]["connections"].values())
    size = sum(sample["log"]["databases"].values()) / _MB
    console.print(
        f"minute {sample['minute']:5.1f}: {counts['executions']} executions ({counts['open_executions']} open,"
        f" {counts['failed_executions']} failed), late {sample['late_s_max']:.1f} s, nodes"
        f" {' '.join(f'{each:.0f}' for each in nodes)} MB, {connections} connections, {size:.0f} MB of databases,"
        f" {sum(sample['cpu_s'].values()):.0f} s of the processor"
    )


def prove_all(world: SoakWorld, sampler: Sampler, begun: dt.datetime) -> bool:
    """Once all that is at the sources is published, or should be."""
    what = "the publication of all that is at the sources"
    wait_until(lambda: are_equal(lambda: compare(world)), what, _PUBLISHED_S_MAX, _TICK_S)
    ended = dt.datetime.now(dt.UTC)
    time.sleep(_TICKS_OF_A_MINUTE * _TICK_S)
    sampler.read_slots()
    are_same = say_comparisons(list(compare(world)))
    schedules = {name: str(config["schedule"]) for name, config in world.flows.items()}
    expected, wrong = account_slots(schedules, sampler.slots, begun + dt.timedelta(minutes=1), ended)
    states = Counter(str(slot["state"]) for slot in sampler.slots.values())
    console.print(f"slots: {expected} expected, {expected - len(wrong)} accounted once, by their states {dict(states)}")
    for each in wrong:
        console.print(f"[red]{each}[/red]")
    return are_same and not wrong


def compare(world: SoakWorld) -> Iterator[Comparison]:
    return chain(_compare_tables(world), _compare_mirror(world), _compare_followed(world))


def _compare_tables(world: SoakWorld) -> Iterator[Comparison]:
    flows = [*world.plan.tables, *(["by_dagster"] if world.plan.has_dagster else [])]
    for flow in flows:
        table = COPIED_TABLE if flow == "by_dagster" else flow
        columns, rows = read_table(world.source, table)
        found = read_published(world.job_of(flow), f"public.{table}", columns)
        yield Comparison(f"flow {flow}, dataset in the lake", rows, found)


def _compare_mirror(world: SoakWorld) -> Iterator[Comparison]:
    columns, rows = read_table(world.source, COPIED_TABLE)
    files = [path for path in world.plan.mirror.rglob("*.parquet") if not _is_hidden(path, world.plan.mirror)]
    yield Comparison("flow mirror, copy in a second lake", rows, read_parquet(files, columns))


def _compare_followed(world: SoakWorld) -> Iterator[Comparison]:
    columns, rows = read_table(world.source, FOLLOWED)
    found = replay_changes(world.job_of(FOLLOWED), FOLLOWED, columns, "id")
    yield Comparison(f"flow {FOLLOWED}, changes in the lake", rows, found)


def _is_hidden(path: Path, root: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.relative_to(root).parts)


if __name__ == "__main__":
    sys.exit(main())
