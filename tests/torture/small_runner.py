"""A small runner: the product's own run, recovery and operations over a lake of numbered rows."""

import json
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.commit.store import CommitStepStore
from gobblin_assets.errors import GobblinError
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.sequence_state import SequenceState
from tests.support import lake_rows
from tests.support.lake import Lake
from tests.torture import children
from tests.torture.runner_process import FORKS, Ending, Lines, Process, end_of, live
from tests.torture.schedule import Action, Injection, RunnerPlan

# A refresh writes all of a dataset again; with files of three rows, as in the crash tests, this would be most work.
ROWS_PER_FILE: Final = 40
_NICENESS: Final = 5
_OPERATE_S_MAX: Final = 3.0
_POLL_S: Final = 0.05


@dataclass(frozen=True)
class TortureLake(Lake):
    """A destination whose sources grow while they are read."""

    def source_rows(self, urn: str) -> list[tuple[int, str]]:
        """Whole lines only: the last one may still be incomplete."""
        path = self.source_of(urn)
        whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
        return [(number, value) for number, value in map(json.loads, whole.decode("utf-8").splitlines())]


def start_small_runner(plan: RunnerPlan, lake: Lake, logs: Path) -> Process:
    own = replace(lake, lease_wait_s=plan.lease_wait_s, policy=plan.policy, bad_units=plan.bad_units)
    return children.start(FORKS.Process(target=_work, args=(plan, own, logs)))


def _work(plan: RunnerPlan, lake: Lake, logs: Path) -> None:
    lake_rows.ROWS_PER_FILE = ROWS_PER_FILE
    # There are many small runners: without this, whole runners beside them would hardly get processor time.
    os.nice(_NICENESS)
    live(plan, logs, lambda: _act(plan, lake))


def _act(plan: RunnerPlan, lake: Lake) -> Ending:
    world = lake.open_world()
    world.lines = Lines()
    if plan.action in (Action.APPEND, Action.REFRESH):
        mode = Mode.APPEND if plan.action is Action.APPEND else Mode.REFRESH
        urns = [lake.urns[number] for number in plan.datasets]
        return end_of(world.run(mode=mode, urns=urns, news_only=plan.news_only), lake.acknowledged)
    return operate(plan, world.stores.commits, world.operations())


def operate(plan: RunnerPlan, commits: CommitStepStore, operations: LogOperations) -> Ending:
    """Operate on the log like a sensor or a person, without a run."""
    match plan.action:
        case Action.ABANDON:
            return _deal_with(commits, operations, (SequenceState.PREPARED, SequenceState.BLOCKED), abandon=True)
        case Action.RESUME:
            return _deal_with(commits, operations, (SequenceState.BLOCKED,), abandon=False)
        case _:
            done = operations.recover_due(None, on_publication=lambda _publication: None)
            if done.failures:
                return Ending.FAILED
            return Ending.COMMITTED if done.published else Ending.NOTHING


def _deal_with(
    commits: CommitStepStore, operations: LogOperations, states: tuple[SequenceState, ...], *, abandon: bool
) -> Ending:
    """Wait a little for a sequence in one of these states whose owner is dead, and handle it as a person would."""
    deadline = time.monotonic() + _OPERATE_S_MAX
    while time.monotonic() < deadline:
        for sequence in commits.list_open(None, limit=10):
            if sequence.state not in states:
                continue
            try:
                if abandon:
                    operations.abandon(sequence.sequence_id, reason=Injection.ABANDONMENT)
                else:
                    operations.resume(sequence.sequence_id)
            except GobblinError as error:
                # Its owner is alive, or was faster.
                print(f"{type(error).__name__}: {error}", flush=True)
            else:
                return Ending.COMMITTED
        time.sleep(_POLL_S)
    return Ending.NOTHING
