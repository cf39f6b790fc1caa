"""Many runs in one process: what grows with each run, in the process and in the log.

The runs are the product's own, over its own log and storage. Reading is a few lines of pyarrow, so that a run takes
milliseconds.
"""

import gc
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, overload

from sqlalchemy import text

from benchmarks.long_log import log_bytes, vacuum
from benchmarks.memory import resident_mb
from benchmarks.tables import Options, Table, timed, verdict
from benchmarks.world import World
from gobblin_assets.spec.job_options import LogSpec
from gobblin_assets.spec.job_spec import JobSpec
from tests.support.lake import Lake
from tests.support.lake import World as LakeWorld

RUNS: Final = 10_000
RUNS_QUICK: Final = 300
GROWN_MB_MAX: Final = 20.0
DESCRIPTORS_MAX: Final = 0
LOG_MB_MAX: Final = 25.0

_PARTS: Final = 10
_MB: Final = 1_000_000
_URN: Final = "orders"


class _Rows(list[tuple[int, str]]):
    """``count`` numbered rows, made when they are asked for."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, asked: slice) -> list[tuple[int, str]]: ...
    @overload
    def __getitem__(self, asked: int) -> tuple[int, str]: ...  # type: ignore[override]  # as list has it
    def __getitem__(self, asked: slice | int) -> list[tuple[int, str]] | tuple[int, str]:
        if isinstance(asked, int):
            return asked, f"{_URN}-{asked}"
        return [(number, f"{_URN}-{number}") for number in range(*asked.indices(self._count))]


@dataclass(frozen=True)
class _EndlessLake(Lake):
    counts: list[int] = field(default_factory=lambda: [0])

    def source_rows(self, urn: str) -> list[tuple[int, str]]:  # noqa: ARG002  there is one
        return _Rows(self.counts[0])

    def job(self) -> JobSpec:
        # The runs end before publications would be old enough to fold.
        return super().job().model_copy(update={"log": LogSpec(fold_age_s=0.0)})


@dataclass(frozen=True)
class _Mark:
    """What the process and the log hold after ``runs`` runs."""

    runs: int
    part_s: float
    process_mb: float
    descriptors: int
    threads: int
    log_mb: float
    sequences: int


def measure(world: World, options: Options) -> list[Table]:
    """Measured once, whatever ``options.runs`` is: the parts show what grows."""
    runs = RUNS_QUICK if options.quick else RUNS
    with world.engine.connect() as connection:
        url = connection.engine.url.render_as_string(hide_password=False)
    lake = _EndlessLake(url, str(world.home / "many runs"), urns=(_URN,))
    Path(lake.root).mkdir(parents=True)
    lake_world = LakeWorld(lake)
    before = log_bytes(world)
    marks = []
    for part in range(1, _PARTS + 1):
        part_s = timed(lambda: _run(lake_world, lake, runs // _PARTS))
        marks.append(_look(world, part * runs // _PARTS, part_s, before))
    lake_world.close()
    first, last = marks[0], marks[-1]
    rows = tuple(
        (
            f"{each.runs:,}",
            f"{each.part_s / (runs // _PARTS) * 1e3:.1f} ms",
            f"{each.process_mb:.1f} MB",
            f"{each.descriptors}",
            f"{each.threads}",
            f"{each.log_mb:.1f} MB",
            f"{each.sequences:,}",
        )
        for each in marks
    )
    notes = (
        "Each run publishes one row. The log keeps 300 publications unfolded, and folds the others.",
        "The log is measured after VACUUM; until its history expires, each run leaves one row of history in the log.",
        verdict(f"The process, from {first.runs:,} to {last.runs:,} runs", last.process_mb - first.process_mb,
                GROWN_MB_MAX, "MB more"),
        verdict("Its descriptors", last.descriptors - first.descriptors, DESCRIPTORS_MAX, "more"),
        verdict(f"The log, after {last.runs:,} runs", last.log_mb, LOG_MB_MAX, "MB"),
    )  # fmt: skip
    columns = ("runs", "one run", "process", "descriptors", "threads", "log", "sequences in the log")
    return [Table(f"{runs:,} runs in one process", columns, rows, notes)]


def _run(world: LakeWorld, lake: _EndlessLake, runs: int) -> None:
    for _number in range(runs):
        lake.counts[0] += 1
        report = world.run()
        assert not report.failed, report
        # The test world keeps these lists; the product has no such lists.
        world.lines.clear()
        world.events.clear()


def _look(world: World, runs: int, part_s: float, before: int) -> _Mark:
    vacuum(world)
    gc.collect()
    with world.engine.connect() as connection:
        sequences = connection.execute(text("SELECT count(*) FROM gobblin.commit_sequence")).scalar_one()
    return _Mark(
        runs,
        part_s,
        resident_mb(),
        len(list(Path("/proc/self/fd").iterdir())),
        threading.active_count(),
        (log_bytes(world) - before) / _MB,
        int(sequences),
    )
