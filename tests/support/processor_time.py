"""The cost of the tests: processor seconds of each directory against its budget.

A pytest plugin. ``tests/budgets.json`` holds, for each directory, the number of its tests and the processor seconds
that they took, with their child processes; and for each slow file, its seconds by the clock. Of the directories that a
run tried whole, one at 110 % of its budget gives a warning, and one at 150 % and 20 s more fails it: the seconds of a
worker's servers count in the directory whose test happened to ask first. One without a budget gives a warning, too.
A machine's speed is that while the tests are at work: a piece of work that each worker does behind each file, too.
Thorough and rare tests have no budget, and what they take counts nowhere: a rare one comes in some runs.
``--record-budgets`` writes down the directories that the run tried whole, keeps what the file has of the others, and
drops files and directories that are gone. Servers that outlive their starter (Postgres) count where they were started,
as far as they can be read.
"""

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Generator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
BUDGETS: Final = ROOT / "tests" / "budgets.json"
WARN_FACTOR: Final = 1.1
FAIL_FACTOR: Final = 1.5
FAIL_MORE_S: Final = 20.0

_LONG_S: Final = 5.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PROCESSOR_S: Final = "processor_s"
_UNIT_S: Final = "unit_s"
_THOROUGH: Final = "thorough"
_UNJUDGED: Final = frozenset({_THOROUGH, "rare"})
_USUAL: Final = f"not {_THOROUGH}"
_LEAVING_OUT: Final = ("keyword", "deselect", "ignore", "ignore_glob", "lf")


def is_judged(keywords: Collection[str]) -> bool:
    """Whether a test with these keywords counts."""
    return _UNJUDGED.isdisjoint(keywords)


@dataclass
class Costs:
    """The costs of a run, by directory and by file."""

    tests: Counter[str] = field(default_factory=Counter)
    processor_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    clock_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    units_s: list[float] = field(default_factory=list)

    @property
    def unit_s(self) -> float:
        """The middle of what the fixed piece of work took beside the tests."""
        return median(self.units_s)

    def add(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        directory = str(Path(file).parent)
        # The last test of a file brings the seconds of all its tests, whatever it is itself.
        brought: dict[str, Any] = dict(report.user_properties)
        if report.when == "teardown" and _PROCESSOR_S in brought:
            self.processor_s[directory] += brought[_PROCESSOR_S]
            self.units_s.append(brought[_UNIT_S])
        if not is_judged(report.keywords):
            return
        self.clock_s[file] += report.duration
        if report.when == "teardown":
            self.tests[directory] += 1

    def to_json(
        self, unit_s: float, *, whole: AbstractSet[str], before: dict[str, Any] | None = None, root: Path = ROOT
    ) -> dict[str, Any]:
        """The budgets of the directories that are ``whole``, and ``before`` for the others of ``root``.

        What is kept was measured on a machine with another unit, so what is new is given in that unit.
        """
        old = before or {"directories": {}, "clock_s": {}}
        directories = {
            name: budget
            for name, budget in old["directories"].items()
            if name not in whole and Path(root, name).is_dir()
        }
        unit = old[_UNIT_S] if directories else round(unit_s, 4)
        for name in whole & self.tests.keys():
            spent = self.processor_s[name] * unit / unit_s
            directories[name] = {"tests": self.tests[name], _PROCESSOR_S: round(spent)}
        clock_s = {
            name: s
            for name, s in old["clock_s"].items()
            if str(Path(name).parent) not in whole and Path(root, name).is_file()
        }
        clock_s |= {name: round(s) for name, s in self.clock_s.items() if str(Path(name).parent) in whole}
        longest = sorted(((name, s) for name, s in clock_s.items() if s >= _LONG_S), key=lambda each: -each[1])
        return {
            _UNIT_S: unit,
            "directories": dict(sorted(directories.items())),
            "clock_s": dict(longest),
        }


@dataclass(frozen=True)
class Verdict:
    lines: list[str]
    failed: bool


def judge(costs: Costs, budgets: dict[str, Any], unit_s: float, whole: AbstractSet[str]) -> Verdict:
    """``unit_s``: of this machine beside its tests; a slower machine gets more seconds.

    ``whole``: the directories that are judged.
    """
    slower = max(1.0, unit_s / budgets[_UNIT_S])
    lines, failed = [], False
    for name in sorted(costs.tests.keys() & whole):
        spent, budget = costs.processor_s[name], budgets["directories"].get(name)
        if budget is None:
            lines.append(f"WARNING {name}: {spent:.0f} processor seconds, and no budget: --record-budgets gives it one")
            continue
        allowed = budget[_PROCESSOR_S] * slower
        said = f"{name}: {spent:.0f} of {allowed:.0f} processor seconds"
        if spent > FAIL_FACTOR * allowed + FAIL_MORE_S:
            failed = True
            lines.append(f"FAILED {said}: make its tests cheaper, or say why not and use --record-budgets")
        elif spent > WARN_FACTOR * allowed:
            lines.append(f"WARNING {said}")
        else:
            lines.append(said)
    return Verdict(lines, failed)


def list_whole(directories: Collection[str], arguments: Sequence[str], folder: Path, root: Path = ROOT) -> set[str]:
    """Those of the directories in ``root`` that arguments of pytest, given in ``folder``, name as a whole."""
    given = [Path(folder, argument).resolve() for argument in arguments]
    return {name for name in directories if any(Path(root, name).resolve().is_relative_to(each) for each in given)}


def measure_unit() -> float:
    """Processor seconds of a fixed piece of work in Python."""
    start = time.process_time()
    total = 0
    for i in range(400_000):
        total += i % 7
    return time.process_time() - start


def spent_by_tree() -> float:
    """Processor seconds of this process, of its ended children, and of all processes below it."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            fields = Path(entry.path, "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        children[int(fields[1])].append(int(entry.name))
        ticks[int(entry.name)] = sum(int(each) for each in fields[11:15])
    waiting, total = [os.getpid()], 0
    while waiting:
        pid = waiting.pop()
        total += ticks.get(pid, 0)
        waiting += children[pid]
    return total / _TICKS


class ProcessorTime:
    """Measures where tests run, and judges where their reports arrive."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._costs = Costs()
        self._looked_at = spent_by_tree()
        self._spent = 0.0
        self._ends_file = True
        self._is_worker = hasattr(config, "workerinput")
        self._verdict = Verdict([], failed=False)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        self._ends_file = nextitem is None or nextitem.path != item.path
        if not is_judged(item.keywords):
            self._spent += self._look()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        if call.when != "teardown":
            return report
        # A look takes some milliseconds, so one look for each file is enough.
        if not is_judged(item.keywords):
            self._look()
        elif self._ends_file:
            self._spent += self._look()
        if self._ends_file:
            report.user_properties += [(_PROCESSOR_S, self._spent), (_UNIT_S, measure_unit())]
            self._spent = 0.0
        return report

    def _look(self) -> float:
        """The processor seconds since the last look; those of a process that was not waited for are lost."""
        before, self._looked_at = self._looked_at, spent_by_tree()
        return max(0.0, self._looked_at - before)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not self._is_worker:
            self._costs.add(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._is_worker:
            return
        whole = self._list_whole(session)
        before = json.loads(BUDGETS.read_text(encoding="utf-8")) if BUDGETS.exists() else None
        if self._config.getoption("record_budgets") and self._costs.units_s:
            text = json.dumps(self._costs.to_json(self._costs.unit_s, whole=whole, before=before), indent=1)
            BUDGETS.write_text(f"{text}\n", encoding="utf-8")
        elif before is not None and self._costs.units_s:
            self._verdict = judge(self._costs, before, self._costs.unit_s, whole)
            if self._verdict.failed and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _list_whole(self, session: pytest.Session) -> set[str]:
        """Directories of which all tests of this run's share were tried; none where options left out some."""
        left_out = any(self._config.getoption(name, default=None) for name in _LEAVING_OUT)
        has_ended = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if left_out or self._config.getoption("markexpr") != _USUAL or not has_ended:
            return set()
        return list_whole(self._costs.tests, self._config.args, self._config.invocation_params.dir)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._verdict.lines:
            terminalreporter.section("processor time")
            for line in self._verdict.lines:
                terminalreporter.line(line)
