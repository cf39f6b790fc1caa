"""A small runner: the product's own run, recovery and operations over a destination of numbered rows."""

import json
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Final

from sqlalchemy import make_url

from gobblin_assets import failpoints
from gobblin_assets.commit.machine import SequenceState
from gobblin_assets.errors import GobblinError
from gobblin_assets.ingest.job_spec import JobSpec
from gobblin_assets.ingest.run_values import RunReport
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.state import DatasetOutcome
from tests.support import lake as lake_of_tests
from tests.support.lake import Lake, World
from tests.torture.isolation import die_with_parent
from tests.torture.schedule import Action, Injection, RunnerPlan

# A refresh writes all of a dataset again; files of three rows, as in the crash tests, would be most of the work.
ROWS_PER_FILE: Final = 40
_OPERATE_S_MAX: Final = 3.0
_POLL_S: Final = 0.05


class Ending(IntEnum):
    """Exit codes. A signal ends a runner with a negative one."""

    COMMITTED = 0
    FAILED = 1  # by one of the families of errors
    NOTHING = 10  # everything was busy, or there was nothing to do
    CRASHED = 70  # by anything else, which the product must never let through


@dataclass(frozen=True)
class TortureLake(Lake):
    """A destination with a job of its own, whose sources grow while they are read."""

    name: str = "torture"

    def job(self) -> JobSpec:
        return super().job().model_copy(update={"job": self.name})

    def source_rows(self, urn: str) -> list[tuple[int, str]]:
        """Whole lines only: the last one may still be on its way."""
        path = self.source_of(urn)
        whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
        return [(number, value) for number, value in map(json.loads, whole.decode("utf-8").splitlines())]


class _Lines(list[str]):
    """What a run says, kept in its log as it is said."""

    def append(self, line: str) -> None:
        print(line, flush=True)


def name_runner(directory: Path, number: int, suffix: str) -> Path:
    return directory / f"{number:06d}.{suffix}"


# Children are forked from a process that has imported everything and has no threads.
FORKS = multiprocessing.get_context("forkserver")


def start_runner(
    plan: RunnerPlan, lake: TortureLake, proxy: Path | None, logs: Path
) -> "multiprocessing.process.BaseProcess":
    """``proxy``: the socket directory to go through."""
    url = make_url(lake.database_url)
    if proxy is not None:
        url = url.update_query_dict({"host": str(proxy)})
    own = replace(
        lake,
        database_url=url.render_as_string(hide_password=False),
        lease_wait_s=plan.lease_wait_s,
        policy=plan.policy,
        bad_units=plan.bad_units,
    )
    process = FORKS.Process(target=_work, args=(plan, own, logs))
    process.start()
    return process


def _work(plan: RunnerPlan, lake: TortureLake, logs: Path) -> None:
    die_with_parent()
    lake_of_tests.ROWS_PER_FILE = ROWS_PER_FILE
    with name_runner(logs, plan.number, "log").open("ab", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    print(plan, flush=True)
    if plan.failpoint:
        failpoints.arm(plan.failpoint, str(name_runner(logs, plan.number, "points")))
    try:
        ending = _act(plan, lake)
    except GobblinError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        ending = Ending.FAILED
    except Exception:  # noqa: BLE001  what is not of the families is what we look for
        traceback.print_exc()
        ending = Ending.CRASHED
    sys.stdout.flush()
    os._exit(ending)


def _act(plan: RunnerPlan, lake: TortureLake) -> Ending:
    world = World(lake, lines=_Lines())
    urns = [lake.urns[number] for number in plan.datasets]
    match plan.action:
        case Action.APPEND | Action.REFRESH:
            mode = Mode.APPEND if plan.action is Action.APPEND else Mode.REFRESH
            return _end_of(world.run(mode=mode, urns=urns), lake)
        case Action.RECOVER:
            done = world.operations().recover_due(None, on_publication=lambda _publication: None)
            if done.failures:
                return Ending.FAILED
            return Ending.COMMITTED if done.published else Ending.NOTHING
        case Action.ABANDON:
            return _operate(world, (SequenceState.PREPARED, SequenceState.BLOCKED), abandon=True)
        case Action.RESUME:
            return _operate(world, (SequenceState.BLOCKED,), abandon=False)


def _end_of(report: RunReport, lake: Lake) -> Ending:
    published = [dataset.publication for dataset in report.datasets if dataset.publication is not None]
    acknowledge(lake, (str(publication.sequence_id) for publication in published))
    for dataset in report.datasets:
        print(dataset.urn, dataset.outcome, dataset.error_family, dataset.error, flush=True)
    if report.failed:
        return Ending.FAILED
    outcomes = {dataset.outcome for dataset in report.datasets}
    return Ending.NOTHING if outcomes <= {DatasetOutcome.SKIPPED} else Ending.COMMITTED


def acknowledge(lake: Lake, sequences: Iterable[str]) -> None:
    """Put down what this process was told to be published: the log must say so for ever."""
    with Path(lake.directory, "acknowledged.log").open("a", encoding="ascii") as out:
        out.write("".join(f"{sequence}\n" for sequence in sequences))


def _operate(world: World, states: tuple[SequenceState, ...], *, abandon: bool) -> Ending:
    """Wait a little for a sequence in one of these states whose owner is dead, and deal with it as a person would."""
    deadline = time.monotonic() + _OPERATE_S_MAX
    while time.monotonic() < deadline:
        for sequence in world.stores.commits.list_open(None, limit=10):
            if sequence.state not in states:
                continue
            try:
                if abandon:
                    world.operations().abandon(sequence.sequence_id, reason=Injection.ABANDONMENT)
                else:
                    world.operations().resume(sequence.sequence_id)
            except GobblinError as error:
                # Its owner lives, or was faster.
                print(f"{type(error).__name__}: {error}", flush=True)
            else:
                return Ending.COMMITTED
        time.sleep(_POLL_S)
    return Ending.NOTHING
