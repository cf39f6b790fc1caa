"""Starts runners by the schedule, and carries out their fates: kills them, stops them, wakes them up."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg

from tests.torture import children
from tests.torture.observer import Connection
from tests.torture.runner_process import Ending, Process, log_of, points_of
from tests.torture.schedule import LEASE_TTL_S, READS, Action, Injection, RunnerPlan
from tests.torture.tally import Tally

# Sleepers cost only memory and connections. Above this number the longest sleeper is woken, whatever its plan was.
ASLEEP_MAX: Final = 16
# Ten tries of several transactions, with Postgres away: far longer than any living runner takes.
RUNNER_S_MAX: Final = 240.0
_TICK_S: Final = 0.01


@dataclass
class _Runner:
    plan: RunnerPlan
    process: Process
    started_at: float
    signalled: Injection | None = None
    stopped_at: float | None = None
    is_awake: bool = False
    is_told_to_end: bool = False
    held: dict[int, int] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        assert self.process.pid, "a runner that never started"
        return self.process.pid

    def is_due(self, after_s: float | None, now: float) -> bool:
        return after_s is not None and now - self.started_at >= after_s

    def send(self, number: signal.Signals) -> None:
        # Process ids repeat within minutes of this; a foreign process must never be signalled.
        if children.exit_code(self.process) is None and self.is_ours():
            os.kill(self.pid, number)

    def is_ours(self) -> bool:
        try:
            return b"multiprocessing.forkserver" in Path(f"/proc/{self.pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return False

    def is_stopped(self) -> bool:
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return False
        return text.rpartition(")")[2].split()[0] == "T"


class Runners:
    """All runners of one kind. One thread calls ``step`` again and again; ``step`` never waits.

    ``plan`` gives the fate of the n-th runner, ``start`` its process; at most ``at_work_max`` work at once; it
    may be changed.
    """

    def __init__(
        self,
        plan: Callable[[int], RunnerPlan],
        start: Callable[[RunnerPlan], Process],
        connect: Callable[[], Connection],
        logs: Path,
        tally: Tally,
        *,
        at_work_max: int,
    ) -> None:
        self.logs = logs
        self._plan = plan
        self._start = start
        self._connect = connect
        self._tally = tally
        self.at_work_max = at_work_max
        self._runners: list[_Runner] = []
        self._next = 0
        self._is_held = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody is started meanwhile, by the schedule."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False

    def step(self, *, more: bool) -> None:
        """Look after all runners; with ``more``, start the next of the schedule if there is room."""
        now = time.monotonic()
        for runner in list(self._runners):
            self._look_after(runner, now)
        asleep = [runner for runner in self._runners if runner.stopped_at is not None and not runner.is_awake]
        if len(asleep) > ASLEEP_MAX:
            longest = min(asleep, key=lambda runner: runner.stopped_at or now)
            if now - (longest.stopped_at or now) > LEASE_TTL_S:
                self._wake(longest)
        if more and not self._is_held and len(self._runners) - len(asleep) < self.at_work_max:
            self._start_next(now)
        time.sleep(_TICK_S)

    def wake_everybody(self) -> None:
        """Wake all runners whose leases ran out, also those that were to sleep until the torture is over."""
        now = time.monotonic()
        for runner in self._runners:
            if runner.stopped_at is not None and not runner.is_awake and now - runner.stopped_at > LEASE_TTL_S:
                self._wake(runner)

    def is_over(self) -> bool:
        return not self._runners

    def kill_everybody(self) -> None:
        """Kill all runners, because the torture itself is being ended."""
        for runner in self._runners:
            runner.send(signal.SIGKILL)
            children.join(runner.process, 10)
        self._runners.clear()

    def describe(self) -> str:
        return "; ".join(str(runner.plan) for runner in self._runners)

    def _start_next(self, now: float) -> None:
        plan = self._plan(self._next)
        self._next += 1
        working = {
            number
            for runner in self._runners
            if runner.plan.lake == plan.lake and runner.plan.action in READS
            for number in runner.plan.datasets
        }
        if plan.action in READS and working & set(plan.datasets):
            self._tally.add(Injection.TWO_AT_ONCE)
        self._runners.append(_Runner(plan, self._start(plan), now))
        self._tally.add("runs")
        self._tally.add(f"runs: {plan.action}")

    def _look_after(self, runner: _Runner, now: float) -> None:
        if children.exit_code(runner.process) is not None:
            self._settle(runner)
        elif runner.stopped_at is not None and not runner.is_awake:
            # Without a lease it is no zombie, and may block all others, for example while it starts Spark.
            sleep_s = runner.plan.wake_after_s if runner.held else LEASE_TTL_S
            if sleep_s is not None and now - runner.stopped_at >= sleep_s:
                self._wake(runner)
        elif not runner.is_awake and runner.is_stopped():
            runner.stopped_at = now
            runner.held = self._leases_of(runner.pid)
        elif runner.signalled is None and runner.is_due(runner.plan.signal_after_s, now):
            runner.signalled = Injection(runner.plan.fate)
            kill = runner.signalled is Injection.KILL_AT_RANDOM
            runner.send(signal.SIGKILL if kill else signal.SIGSTOP)
        elif not runner.is_told_to_end and self._has_begun(runner) and runner.is_due(runner.plan.end_after_s, now):
            runner.is_told_to_end = True
            runner.send(signal.SIGTERM)
        elif now - runner.started_at > RUNNER_S_MAX + (runner.plan.wake_after_s or 0):
            self._tally.violate(f"runner {runner.plan.number} did not end within {RUNNER_S_MAX:.0f} s: {runner.plan}")
            runner.send(signal.SIGKILL)
            children.join(runner.process, 10)
            self._runners.remove(runner)

    def _has_begun(self, runner: _Runner) -> bool:
        """Whether it hears SIGTERM. On a machine that is slow at the moment, a start takes long."""
        return log_of(self.logs, runner.plan).exists()

    def _wake(self, runner: _Runner) -> None:
        """Wake a runner. It counts as a zombie only if it held a lease when it stopped, since it slept past it."""
        now = time.monotonic()
        if runner.held:
            self._tally.add(runner.plan.fate)
            self._tally.add("zombies woken")
            if runner.plan.wake_after_s is None:
                self._tally.add("zombies woken at the very end")
            fences = self._fences()
            if any(fences.get(dataset, 0) > fence for dataset, fence in runner.held.items()):
                self._tally.add("zombies replaced before they woke")
        else:
            self._tally.add("stopped without a lease")
        runner.is_awake = True
        runner.started_at = now
        runner.send(signal.SIGCONT)

    def _settle(self, runner: _Runner) -> None:
        self._runners.remove(runner)
        reached = self._reached(runner.plan)
        plan, code = runner.plan, children.exit_code(runner.process)
        if plan.fate in (Injection.ACKNOWLEDGEMENT_LOST, Injection.ERROR_AFTER_EFFECT) and reached:
            self._tally.add(plan.fate)
        if plan.bad_units and "this WorkUnit can't be read" in self._log_of(plan):
            self._tally.add(Injection.SOURCE_FAILED)
        if plan.action is Action.ABANDON and code == Ending.COMMITTED:
            self._tally.add(Injection.ABANDONMENT)
        if plan.action is Action.RESUME and code == Ending.COMMITTED:
            self._tally.add("blocked sequences that a runner resumed")
        if runner.is_told_to_end and code in (Ending.COMMITTED, Ending.NOTHING):
            self._tally.add(Injection.STREAM_ENDED)
        match code:
            case Ending.COMMITTED:
                self._tally.add("runs that committed")
            case Ending.NOTHING:
                self._tally.add("runs that found nothing to do")
            case Ending.FAILED:
                self._tally.add("runs that failed")
            case -9 if "=kill" in reached or runner.signalled is Injection.KILL_AT_RANDOM:
                self._tally.add("runs that were killed")
                self._tally.add(plan.fate)
            case _:
                self._tally.violate(
                    f"runner {plan.number} ended with {code}, not by a family of errors: see its log in {self.logs}"
                )

    def _reached(self, plan: RunnerPlan) -> str:
        points = points_of(self.logs, plan)
        return points.read_text(encoding="utf-8") if points.exists() else ""

    def _log_of(self, plan: RunnerPlan) -> str:
        log = log_of(self.logs, plan)
        return log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""

    def _leases_of(self, pid: int) -> dict[int, int]:
        query = "SELECT lane_id, fence FROM gobblin.lease WHERE owner ~ %s"
        return self._ask(query, [f":{re.escape(str(pid))}$"])

    def _fences(self) -> dict[int, int]:
        return self._ask("SELECT lane_id, fence FROM gobblin.lease", [])

    def _ask(self, query: str, arguments: list[str]) -> dict[int, int]:
        """Empty while Postgres is away: unknown leases are not counted."""
        try:
            with self._connect() as connection:
                rows = connection.execute(query.encode(), arguments or None).fetchall()
        except psycopg.Error:
            return {}
        return {int(str(dataset)): int(str(fence)) for dataset, fence in rows}
