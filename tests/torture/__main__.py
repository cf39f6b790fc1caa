"""The command: torture for so many minutes, then the table and the verdict. Exit code 1: a difference was found."""

import argparse
import secrets
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.torture.campaign import Arena, Campaign
from tests.torture.cdc_arena import CdcArena
from tests.torture.copy_arena import CopyArena
from tests.torture.home import hold_home, stop_servers
from tests.torture.isolation import enter_own_mounts
from tests.torture.mutants import MUTANTS
from tests.torture.runner_process import FORKS
from tests.torture.schedule import LOADS, Injection
from tests.torture.sink_arena import SinkArena
from tests.torture.small_arena import SmallArena
from tests.torture.table_arena import TableArena
from tests.torture.tally import Tally, render_table
from tests.torture.topic_arena import TopicArena
from tests.torture.whole_arena import WholeArena

PROGRESS_EVERY_S: Final = 5.0
KINDS: Final = ("small", "table", "copy", "whole", "topic", "sink", *LOADS, "cdc")
_PRELOADED: Final = {
    "small": "tests.torture.small_runner",
    "table": "tests.support.table_lake",
    "copy": "tests.support.copy_lake",
    "whole": "tests.torture.whole_runner",
    "topic": "tests.torture.topic_runner",
    "sink": "tests.torture.sink_runner",
    **dict.fromkeys(LOADS, "tests.torture.load_arena"),
    "cdc": "tests.torture.cdc_runner",
}


def main(arguments: Sequence[str]) -> int:
    options = _parse(arguments)
    print(f"torture: seed {options.seed}, {options.minutes:g} minutes, runners: {', '.join(options.kinds)}", flush=True)
    interrupted = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: interrupted.set())
    refused = enter_own_mounts()
    if refused is not None:
        print(f"torture: no disk that fills or turns read-only: {refused}", flush=True)
    FORKS.set_forkserver_preload(
        ["tests.torture.small_runner", *(_PRELOADED[kind] for kind in options.kinds), "pandas"]
    )
    with hold_home(options.home) as home:
        campaigns = _torture(home, options, interrupted, refused)
        if interrupted.is_set():
            shutil.rmtree(home)
            print("torture: interrupted; everything is stopped and removed, and there is no verdict", flush=True)
            return 130
        for campaign in campaigns:
            print(_table(campaign.arena.kind, campaign.tally), flush=True)
        return _judge(campaigns, home, options.seed)


def _torture(
    home: Path, options: argparse.Namespace, interrupted: threading.Event, refused: str | None
) -> list[Campaign]:
    campaigns: list[Campaign] = []
    is_good = False
    try:
        for kind in options.kinds:
            (home / kind).mkdir(mode=0o711)
            arena = _open_arena(kind, home / kind, options, refused)
            campaigns.append(Campaign(arena, options.seed, interrupted, _say))
        _run_all(campaigns, options.minutes * 60, interrupted)
        is_good = interrupted.is_set() or not any(campaign.tally.violations for campaign in campaigns)
    finally:
        for campaign in campaigns:
            campaign.arena.close(keep=not is_good)
        stop_servers(home)
        if not is_good:
            print(f"torture: all is kept in {home}", flush=True)
    return campaigns


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=sys.modules["tests.torture"].__doc__)
    parser.add_argument("--minutes", type=float, required=True, help="how long; the rest and the verdict come on top")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="repeats the schedule, not the timing")
    parser.add_argument("--home", type=Path, help="an empty folder to work in; default: a temporary one")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--mutant", choices=MUTANTS, default="", help="a fault on purpose of workers that load rows")
    return parser.parse_args(arguments)


def _open_arena(kind: str, home: Path, options: argparse.Namespace, refused: str | None) -> Arena:
    seed = options.seed
    match kind:
        case "small":
            return SmallArena(home, seed, Tally(), refused)
        case "table":
            return TableArena(home, seed, Tally(), refused)
        case "copy":
            return CopyArena(home, seed, Tally(), refused)
        case "whole":
            return WholeArena(home, seed, Tally())
        case "topic":
            return TopicArena(home, seed, Tally())
        case "cdc":
            return CdcArena(home, seed, Tally(), refused)
        case _ if kind in LOADS:
            from tests.torture.load_arena import LoadArena  # noqa: PLC0415  pyiceberg takes a second

            return LoadArena(home, seed, Tally(), refused, LOADS[kind], options.mutant)
        case _:
            return SinkArena(home, seed, Tally(), refused)


def _run_all(campaigns: Sequence[Campaign], duration_s: float, interrupted: threading.Event) -> None:
    begun = time.monotonic()
    with ThreadPoolExecutor(len(campaigns)) as pool:
        running = [pool.submit(campaign.run, duration_s) for campaign in campaigns]
        try:
            while not all(future.done() for future in running):
                time.sleep(PROGRESS_EVERY_S if not interrupted.is_set() else 0.1)
                said = "; ".join(campaign.progress() for campaign in campaigns)
                print(f"{time.monotonic() - begun:5.0f}/{duration_s:.0f} s  {said}", flush=True)
        finally:
            if any(future.done() and future.exception() for future in running):
                interrupted.set()
    for future in running:
        future.result()


def _say(line: str) -> None:
    print(line, flush=True)


def _table(kind: str, tally: Tally) -> str:
    injected = [
        (injection.value, tally.skipped.get(injection, str(tally.of(injection))))
        for injection in Injection
        if tally.of(injection) or injection in tally.skipped
    ]
    names = {injection.value for injection in Injection}
    others = sorted((name, str(count)) for name, count in tally.counts.items() if name not in names)
    return render_table(f"\n{kind} runners", [*injected, *others])


def _judge(campaigns: Sequence[Campaign], home: Path, seed: str) -> int:
    violations = [violation for campaign in campaigns for violation in campaign.tally.violations]
    if not violations:
        shutil.rmtree(home)
        print(f"\nverdict (seed {seed}): exactly once", flush=True)
        return 0
    print(f"\nverdict (seed {seed}): WRONG, {len(violations)} differences", flush=True)
    for violation in violations:
        print(f"  - {violation}", flush=True)
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
