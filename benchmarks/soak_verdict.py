"""The verdict on a soak, from its samples: medians of the last quarter beside those of the second one."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.table import Table

from demo.stage import console

Sample = Mapping[str, Any]
"""As ``Sampler`` writes it."""

SERVERS: Final = ("log", "source")

_EXECUTIONS, _IDS, _RUNS, _WEEK = (
    "executions keep their statuses",
    "ids stay known",
    "Dagster keeps its runs, and ticks of sensors for a day or more",
    "what no Dagster takes reports of stays for a week",
)
KEPT: Final[Mapping[str, str]] = {
    **dict.fromkeys(("gobblin_service.flow_execution", "gobblin_service.job_execution"), _EXECUTIONS),
    **dict.fromkeys(("gobblin.job_ticket", "gobblin.past_sequence"), _IDS),
    **dict.fromkeys(("public.event_logs", "public.job_ticks", "public.run_tags", "public.runs"), _RUNS),
}
"""Tables that grow with the work by their rules, and why: their bytes for an execution are bounded, not their sizes."""

KEPT_FOR_A_WEEK: Final = (
    *("gobblin.commit_sequence", "gobblin.segment", "gobblin.attempt", "gobblin.work_unit", "gobblin.ledger"),
    *("gobblin.run", "gobblin.run_dataset", "gobblin.planned_interval", "gobblin.planned_move"),
)
"""The same, of a log that no Dagster looks at."""

_MB: Final = 1_000_000
_SAMPLES_MIN: Final = 4
_KEPT_BYTES_MAX: Final = 16_000.0
_COUNTS: Final = ("open_executions", "outbox", "inbox", "slots", "reports", "open_sequences")
_OWN_MEMORY, _FILES, _THREADS, _CONNECTIONS = "MB of its own", "open files", "threads", "connections"
_SIZE, _DEAD, _WRITTEN_AHEAD, _RETAINED = "MB", "dead rows", "MB of log files", "MB kept for slots"
_FOLDER, _COUNT = "files", "count"


@dataclass(frozen=True, slots=True)
class GrowthBound:
    """Growth up to this much, or up to this share of the size before, is none."""

    least: float
    share: float

    def allows(self, before: float, after: float) -> bool:
        return after - before <= max(self.least, self.share * before)


BOUNDS: Final[Mapping[str, GrowthBound]] = {
    _OWN_MEMORY: GrowthBound(4.0, 0.03),
    _FILES: GrowthBound(3, 0.1),
    _THREADS: GrowthBound(2, 0.1),
    _CONNECTIONS: GrowthBound(2, 0.1),
    _SIZE: GrowthBound(0.5, 0.1),
    _DEAD: GrowthBound(1_000, 0.5),
    _WRITTEN_AHEAD: GrowthBound(32.0, 0.1),
    _RETAINED: GrowthBound(1.0, 0.1),
    _FOLDER: GrowthBound(20, 0.1),
    _COUNT: GrowthBound(20, 0.1),
}

Sized = tuple[str, str]
"""Of a size: whose it is, and what."""


@dataclass(frozen=True, slots=True)
class ComparedSize:
    """The medians of two windows."""

    whose: str
    what: str
    before: float
    after: float

    @property
    def has_grown(self) -> bool:
        return not BOUNDS[self.what].allows(self.before, self.after)

    @property
    def is_shown(self) -> bool:
        return self.has_grown or max(self.before, self.after) >= BOUNDS[self.what].least


def judge_growth(home: Path) -> bool:
    """Whether nothing has grown. Prints what was compared."""
    lines = (home / "samples.jsonl").read_text(encoding="utf-8").splitlines()
    samples: list[Sample] = [json.loads(line) for line in lines]
    minutes = samples[-1]["minute"]
    before = [each for each in samples if minutes / 4 <= each["minute"] < minutes / 2]
    after = [each for each in samples if each["minute"] >= minutes * 3 / 4]
    if min(len(before), len(after)) < _SAMPLES_MIN:
        console.print(f"{len(samples)} samples are too few for a verdict")
        return False
    found = compare_windows(before, after)
    _show(found, minutes)
    _show_work(samples)
    kept_well = _judge_kept(before, after)
    grown = [each for each in found if each.has_grown]
    for each in grown:
        console.print(f"[red]has grown: {each.whose}, {each.what}: {each.before:,.1f} to {each.after:,.1f}[/red]")
    console.print(f"{len(found)} sizes were compared, {len(grown)} have grown")
    return kept_well and not grown


def compare_windows(before: Sequence[Sample], after: Sequence[Sample]) -> list[ComparedSize]:
    """Of what is in most samples of both: what ends before can't grow. A table that comes later begins with 0."""
    sizes = [_gather(before), _gather(after)]
    found = []
    for key, last in sizes[1].items():
        first = sizes[0].get(key, [])
        if key[1] in {_SIZE, _DEAD}:
            first = [*first, *([0.0] * (len(before) - len(first)))]
        if 2 * len(first) >= len(before) and 2 * len(last) >= len(after):
            found.append(ComparedSize(*key, median(first), median(last)))
    return found


def _gather(samples: Sequence[Sample]) -> dict[Sized, list[float]]:
    found: dict[Sized, list[float]] = defaultdict(list)
    for sample in samples:
        for whose, what, size in _list_sizes(sample):
            found[whose, what].append(size)
    return found


def _list_sizes(sample: Sample) -> Iterator[tuple[str, str, float]]:
    for each in sample["processes"]:
        whose = f"{each['machine']}: {each['role']} ({each['pid']})"
        yield whose, _OWN_MEMORY, each["uss"] / _MB
        # Those of a server are its backends'.
        if "count" not in each:
            yield whose, _FILES, each["files"]
            yield whose, _THREADS, each["threads"]
    for server in SERVERS:
        whose, found = f"Postgres of the {server}", sample[server]
        yield whose, _CONNECTIONS, sum(found["connections"].values())
        yield whose, _WRITTEN_AHEAD, found["log_files"][1] / _MB
        for name, size in found["retained"].items():
            yield f"slot {name}", _RETAINED, size / _MB
        for name, (size, _live, dead, *_changes) in found["tables"].items():
            if _find_reason(sample, name) is None:
                yield f"table {name}", _SIZE, size / _MB
                yield f"table {name}", _DEAD, dead
    for name in ("home", "said", "scratch"):
        if name in sample["folders"]:
            yield f"folder {name}", _FOLDER, sample["folders"][name][0]
    for name in _COUNTS:
        yield name, _COUNT, sample["counts"][name]


def _show(found: Sequence[ComparedSize], minutes: float) -> None:
    title = f"minutes {minutes / 4:.0f} to {minutes / 2:.0f}, and the last {minutes / 4:.0f}: medians"
    table = Table("whose", "what", title=title, title_justify="left")
    for name in ("before", "after"):
        table.add_column(name, justify="right")
    for each in found:
        if each.is_shown:
            table.add_row(each.whose, each.what, f"{each.before:,.1f}", f"{each.after:,.1f}")
    console.print(table)


def _show_work(samples: Sequence[Sample]) -> None:
    first, last = samples[0], samples[-1]
    minutes = last["minute"] - first["minute"]
    used = sum(last["cpu_s"].values()) - sum(first["cpu_s"].values())
    late = [each["late_s_max"] for each in samples if each["fired"]]
    counts = last["counts"]
    console.print(
        f"{minutes:.0f} minutes, {counts['executions']} executions ({counts['failed_executions']} failed,"
        f" {counts['retries']} tickets sent again), {100 * used / (60 * minutes):.0f} % of a processor;"
        f" the latest slot of a minute: median {median(late):.1f} s, at most {max(late):.1f} s"
    )
    for server in SERVERS:
        for name in sorted(last[server]["databases"]):
            sizes = [each[server]["databases"].get(name, 0) / _MB for each in (first, last)]
            console.print(f"database {name} of the {server}: {sizes[0]:.1f} MB to {sizes[1]:.1f} MB")
    for name in ("lake", "mirror"):
        sizes = [f"{each['folders'][name][0]:,}" for each in (first, last)]
        console.print(f"files of the {name}, which grows with its sources: {sizes[0]} to {sizes[1]}")


def _judge_kept(before: Sequence[Sample], after: Sequence[Sample]) -> bool:
    """Whether what is kept is small for each execution."""
    first, last = before[0], after[-1]
    executions = max(1, last["counts"]["executions"] - first["counts"]["executions"])
    is_small = True
    for name, (size, *_numbers) in sorted(last["log"]["tables"].items()):
        if reason := _find_reason(last, name):
            each_bytes = (size - first["log"]["tables"].get(name, [0])[0]) / executions
            is_small &= each_bytes <= _KEPT_BYTES_MAX
            console.print(f"table {name}: {each_bytes:,.0f} bytes more for each execution: {reason}")
    return is_small


def _find_reason(sample: Sample, name: str) -> str | None:
    """Why a table grows by its rules. ``name``: with its database."""
    table = name.partition(".")[2]
    if table in KEPT_FOR_A_WEEK and "dagster" not in sample["cpu_s"]:
        return _WEEK
    return KEPT.get(table)
