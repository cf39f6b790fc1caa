"""Copies from a disk to an object store, beside rclone: whole runs, and how many requests each takes.

Ours lists both sides, uploads, seals and publishes: each object appears by the completion of its upload, and is looked
at afterwards. rclone writes each small object by one request, and looks at it.
"""

import os
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.copies import judge_copies
from benchmarks.copy_jobs import describe_copy, run_command, run_copy
from benchmarks.copy_trees import KIB, MEMORY, MIB, Load, find_room, make_tree, open_place, require_whole
from benchmarks.gateway_store import BUCKET, GatewayStore, open_gateway_store
from benchmarks.peers.copy_tools import RCLONE, RCLONE_FAST, find_rclone, run_rclone
from benchmarks.peers.debian import Program
from benchmarks.tables import Options, Samples, Table, in_turns, verdict
from benchmarks.world import World

REQUESTS_MAX: Final = 3.0
PREFIX_OF_COPIES: Final = "copy"

_WARM: Final = "ours, in a warm process"
_COMMAND: Final = "ours, the command"
_LARGE_PARTS: Final = ("--s3-chunk-size", "16M", "--s3-upload-concurrency", "8")
_NOTES: Final = (
    "A store on this machine, in memory (versitygw), which shares the processors with the tools.",
    "Ours: a job's defaults. The command starts a process, as rclone does.",
    "Requests: of all kinds, as the store's access log has them, divided by the number of files.",
)

ToStore = Callable[[Path], None]


def measure(world: World, options: Options) -> list[Table]:
    small = Load("small files", 500 if options.quick else 5_000, 4 * KIB)
    # Four files: the source, and the parts and the whole objects of the store.
    large = Load("large files", 4, find_room(12, 64 * MIB if options.quick else 256 * MIB))
    with open_gateway_store(MEMORY) as store:
        return [_measure(world, store, load, options) for load in (small, large)]


def _measure(world: World, store: GatewayStore, load: Load, options: Options) -> Table:
    samples, requests, kinds = Samples(), Samples(), Counter[str]()
    copies, notes = _list_ways(world, store, load)
    with open_place(MEMORY) as source:
        make_tree(source, load)
        for name in in_turns(list(copies), options.runs):
            before = store.count_requests()
            begun = time.monotonic()
            copies[name](source)
            samples.add(name, time.monotonic() - begun)
            sent = store.count_requests() - before
            requests.add(name, sent.total() / load.file_count)
            kinds = sent if name == _WARM else kinds
            require_whole(store.tree(PREFIX_OF_COPIES), load)
            store.clear()
    verdicts = [line for name in (_WARM, _COMMAND) for line in judge_copies(name, samples, 1.0, None)]
    if load.file_bytes <= MIB:
        verdicts.append(verdict("Requests a file", requests.median(_WARM), REQUESTS_MAX, "requests"))
    of_kinds = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
    return Table(
        f"Copies to a store: {load.describe()}",
        ("tool", "median", "min", "max", "files/s", "GB/s", "requests a file"),
        tuple(
            samples.row(name, *load.describe_speed(samples.median(name)), f"{requests.median(name):.2f}")
            for name in copies
        ),
        (*_NOTES, *notes, f"Requests of ours: {of_kinds}.", *verdicts),
    )


def _list_ways(world: World, store: GatewayStore, load: Load) -> tuple[dict[str, ToStore], list[str]]:
    target = f"s3://{BUCKET}/{PREFIX_OF_COPIES}"
    ours: dict[str, ToStore] = {
        _WARM: lambda source: _forget(run_copy(world, describe_copy(source, target))),
        _COMMAND: lambda source: _forget(run_command(world, describe_copy(source, target))),
    }
    try:
        rclone = find_rclone(world.home / "rclone")
    except RuntimeError as error:
        return ours, [f"rclone is left out: {error}"]
    more = _LARGE_PARTS if load.file_bytes > MIB else ()
    ways = {RCLONE: (), RCLONE_FAST: (*RCLONE_FAST.split()[2:], *more)}
    peers = {name: partial(_run_rclone, rclone, store, words) for name, words in ways.items()}
    said = f"{rclone.version}. Its second line has also: {' '.join(more)}." if more else f"{rclone.version}."
    return {**ours, **peers}, [said]


def _run_rclone(program: Program, store: GatewayStore, words: tuple[str, ...], source: Path) -> None:
    target = f":s3:{BUCKET}/{PREFIX_OF_COPIES}"
    run_rclone(program, ["copy", *words, str(source), target], {**os.environ, **store.rclone_environment})


def _forget(_result: object) -> None:
    """What a run returns is no figure."""
