"""A runner's process: forked, logged, killed with its parent, and ended with an exit code for its result."""

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from enum import IntEnum
from pathlib import Path

from gobblin_assets import failpoints
from gobblin_assets.errors import GobblinError
from gobblin_assets.run.run_values import RunReport
from tests.torture.isolation import die_with_parent
from tests.torture.schedule import RunnerPlan

# Children are forked from a process that has imported all modules and has no threads.
FORKS = multiprocessing.get_context("forkserver")
Process = multiprocessing.process.BaseProcess


class Ending(IntEnum):
    """Exit codes. A runner that a signal ended has a negative one."""

    COMMITTED = 0
    FAILED = 1  # by one of the families of errors
    NOTHING = 10  # all was busy, or there were no rows
    CRASHED = 70  # by any other exception, which the product must never raise


class Lines(list[str]):
    """A run's lines, written to its log at once."""

    def append(self, line: str) -> None:
        print(line, flush=True)


def log_of(logs: Path, plan: RunnerPlan) -> Path:
    return logs / f"{plan.number:06d}.log"


def points_of(logs: Path, plan: RunnerPlan) -> Path:
    """The file of the armed failpoints that the runner reached."""
    return logs / f"{plan.number:06d}.points"


def live(plan: RunnerPlan, logs: Path, act: Callable[[], Ending]) -> None:
    """The whole life of a runner's process. Never returns."""
    die_with_parent()
    with log_of(logs, plan).open("ab", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    print(plan, flush=True)
    if plan.failpoint:
        failpoints.arm(plan.failpoint, str(points_of(logs, plan)))
    try:
        ending = act()
    except GobblinError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        ending = Ending.FAILED
    except Exception:  # noqa: BLE001  what is not of the families is what we look for
        traceback.print_exc()
        ending = Ending.CRASHED
    sys.stdout.flush()
    os._exit(ending)


def end_of(report: RunReport, acknowledged: Path) -> Ending:
    """A run's result, after its acknowledged publications are written down."""
    published = [dataset.publication for dataset in report.datasets if dataset.publication is not None]
    acknowledge(acknowledged, (str(publication.sequence_id) for publication in published))
    for dataset in report.datasets:
        print(dataset.urn, dataset.outcome, dataset.error_family, dataset.error, flush=True)
    if report.failed:
        return Ending.FAILED
    # Nobody counts the rows of copies.
    is_news = any(each.publication and (each.publication.row_count or not each.has_rows) for each in report.datasets)
    return Ending.COMMITTED if is_news else Ending.NOTHING


def acknowledge(acknowledged: Path, sequences: Iterable[str]) -> None:
    with acknowledged.open("a", encoding="ascii") as out:
        out.write("".join(f"{sequence}\n" for sequence in sequences))
