"""What a run of the tests says about its cost, and what it writes down of it."""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support import processor_time
from tests.support.processor_time import Costs, ProcessorTime, judge, list_whole

pytest_plugins = ["pytester"]

SOURCES = """
import pytest

from tests.unit.test_processor_time import spend

def test_first():
    spend(2)

@pytest.mark.{first}
def test_second():
    spend(6)

@pytest.mark.{last}
def test_third():
    spend(4)
"""

TICK_S = 0.02

SPENT_S: Counter[str] = Counter()


def spend(s: int) -> None:
    """What the tests above take, by a clock of their own: seconds of a processor depend on who else is there."""
    SPENT_S["all"] += s


BUDGETS: dict[str, Any] = {
    "unit_s": 0.01,
    "directories": {
        "tests/crash": {"tests": 10, "processor_s": 100},
        "tests/gone": {"tests": 10, "processor_s": 100},
        "tests/unit": {"tests": 10, "processor_s": 100},
    },
    "clock_s": {
        "tests/crash/test_gone.py": 70,
        "tests/crash/test_kills.py": 60,
        "tests/gone/test_a.py": 50,
        "tests/unit/test_a.py": 40,
    },
}


def make_costs(**spent: float) -> Costs:
    """Of one test in each directory of ``tests``."""
    costs = Costs()
    for name, s in spent.items():
        costs.tests[f"tests/{name}"] += 1
        costs.processor_s[f"tests/{name}"] += s
        costs.clock_s[f"tests/{name}/test_b.py"] += s
    return costs


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("tests/crash/test_kills.py", "tests/unit/test_b.py", "tests/documents/test_b.py"):
        Path(tmp_path, name).parent.mkdir(parents=True, exist_ok=True)
        Path(tmp_path, name).touch()
    return tmp_path


def test_a_directory_is_judged_by_its_budget_however_many_tests_it_has() -> None:
    dear = judge(make_costs(unit=171), BUDGETS, 0.01, {"tests/unit"})
    assert dear.failed
    (line,) = dear.lines
    assert line.startswith("FAILED tests/unit: 171 of 100 processor seconds: make its tests cheaper, or say why not")
    high = judge(make_costs(unit=111, crash=100), BUDGETS, 0.01, {"tests/unit", "tests/crash"})
    assert not high.failed
    assert high.lines == [
        "tests/crash: 100 of 100 processor seconds",
        "WARNING tests/unit: 111 of 100 processor seconds",
    ]


class Reports:
    """Measures as a worker of a run does, and keeps the reports."""

    def __init__(self) -> None:
        self.costs = Costs()

    def pytest_configure(self, config: pytest.Config) -> None:
        config.workerinput = {}  # type: ignore[attr-defined]  # as xdist has it
        config.pluginmanager.register(ProcessorTime(config))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.costs.add(report)


@pytest.mark.parametrize(
    ("first", "last", "spent"), [("rare", "usual", 6), ("usual", "rare", 8), ("rare", "thorough", 2)]
)
def test_what_rare_and_thorough_tests_take_counts_nowhere(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, first: str, last: str, spent: int
) -> None:
    monkeypatch.setattr(processor_time, "spent_by_tree", SPENT_S.total)
    pytester.makepyfile(test_costs=SOURCES.format(first=first, last=last))
    reports = Reports()
    pytester.inline_run("-p", "no:xdist", "-p", "no:randomly", plugins=[reports])
    (directory,) = reports.costs.processor_s
    assert reports.costs.processor_s[directory] == spent
    assert reports.costs.unit_s > 0
    assert sum(reports.costs.tests.values()) == 3 - (first != "usual") - (last != "usual")


def test_the_work_of_a_process_and_of_its_children_is_seen() -> None:
    before = processor_time.spent_by_tree()
    own = time.process_time()
    while time.process_time() < own + 0.1:
        pass
    between = processor_time.spent_by_tree()
    subprocess.run([sys.executable, "-c", "for i in range(3_000_000): i"], check=True)
    assert between - before >= 0.1 - TICK_S
    assert processor_time.spent_by_tree() - between >= TICK_S


def test_a_slower_machine_has_more_seconds_and_a_faster_one_as_many() -> None:
    assert judge(make_costs(unit=160), BUDGETS, 0.02, {"tests/unit"}).lines == [
        "tests/unit: 160 of 200 processor seconds"
    ]
    assert judge(make_costs(unit=171), BUDGETS, 0.005, {"tests/unit"}).failed


def test_a_directory_without_a_budget_is_named_and_one_that_was_tried_in_part_is_not_judged() -> None:
    verdict = judge(make_costs(documents=7, unit=999), BUDGETS, 0.01, {"tests/documents"})
    assert not verdict.failed
    assert verdict.lines == [
        "WARNING tests/documents: 7 processor seconds, and no budget: --record-budgets gives it one"
    ]


def test_a_directory_is_whole_if_the_arguments_name_it_or_a_folder_of_it(root: Path) -> None:
    names = {"tests/crash", "tests/unit", "tests/documents"}
    assert list_whole(names, ["tests"], root, root) == names
    assert list_whole(names, ["unit", "crash/test_kills.py"], root / "tests", root) == {"tests/unit"}
    assert list_whole(names, ["tests/unit/test_b.py", "tests/crash/test_kills.py::test_a"], root, root) == set()


def test_a_recording_of_some_directories_keeps_the_others_and_drops_what_is_gone(root: Path) -> None:
    costs = make_costs(unit=60, documents=4, crash=1)
    recorded = costs.to_json(0.02, whole={"tests/unit", "tests/documents"}, before=BUDGETS, root=root)
    assert recorded == {
        "unit_s": 0.01,
        "directories": {
            "tests/crash": {"tests": 10, "processor_s": 100},
            "tests/documents": {"tests": 1, "processor_s": 2},
            "tests/unit": {"tests": 1, "processor_s": 30},
        },
        "clock_s": {"tests/crash/test_kills.py": 60, "tests/unit/test_b.py": 60},
    }


def test_a_recording_of_everything_is_in_the_unit_of_its_machine(root: Path) -> None:
    costs = make_costs(unit=60, crash=9)
    recorded = costs.to_json(0.02, whole={"tests/unit", "tests/crash"}, before=BUDGETS, root=root)
    assert recorded["unit_s"] == 0.02
    assert recorded["directories"]["tests/unit"] == {"tests": 1, "processor_s": 60}
    assert recorded == costs.to_json(0.02, whole={"tests/unit", "tests/crash"}, root=root)
