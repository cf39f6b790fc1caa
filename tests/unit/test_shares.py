"""Which cases of the tests a run has: those of consecutive seeds are all of them."""

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.shares import DEAR, OFTEN_SHARES, SEED_VARIABLE, SHARES, TURN_SEEDS, Share, Shares


@pytest.mark.parametrize("of", [OFTEN_SHARES, SHARES])
@pytest.mark.parametrize("count", [1, 2, 11, 40])
def test_as_many_consecutive_seeds_as_there_are_shares_try_each_case_once(count: int, of: int) -> None:
    shares = [Share(seed, of=of).numbers(count, "a test") for seed in range(5, 5 + of)]

    assert sorted(number for share in shares for number in share) == list(range(count))


def test_a_test_of_few_cases_has_one_in_each_run() -> None:
    assert all(len(Share(seed).numbers(2, "a test", at_least_one=True)) == 1 for seed in range(SHARES))


class Collected:
    """What the plugin asks of a collected test, and whether it was left out. ``marks``: the closest first."""

    def __init__(self, nodeid: str, *marks: pytest.MarkDecorator) -> None:
        self.nodeid = nodeid
        self.is_left = False
        self._marks = [each.mark for each in marks]

    def iter_markers(self, name: str) -> Iterator[pytest.Mark]:
        return (mark for mark in self._marks if mark.name == name)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next(self.iter_markers(name), None)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.is_left |= mark.name == "thorough"


def list_kept(
    tests: Mapping[str, tuple[pytest.MarkDecorator, ...]], seed: int, monkeypatch: pytest.MonkeyPatch
) -> set[str]:
    monkeypatch.setenv(SEED_VARIABLE, str(seed))
    items: list[Any] = [Collected(name, *marks) for name, marks in tests.items()]
    plugin = Shares(SimpleNamespace(getoption=lambda _name: ""))  # type: ignore[arg-type]  # all that it asks
    plugin.pytest_collection_modifyitems(items)
    return {item.nodeid for item in items if not item.is_left}


def test_the_tests_of_a_file_take_turns_in_as_many_runs_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    of_file, of_name = pytest.mark.turns(of=3), pytest.mark.turns("a name")
    takers = {f"tests/test_a.py::test_{number}": (of_file,) for number in range(7)}
    tests = {
        **takers,
        "tests/test_a.py::test_kept": (pytest.mark.every_run, of_file),
        "tests/test_a.py::test_cases[1]": (of_name, of_file),
        "tests/test_a.py::test_cases[2]": (of_name, of_file),
        "tests/test_b.py::test_of_the_name": (of_name,),
        "tests/test_b.py::test_alone": (of_file,),
        "tests/test_a.py::test_thorough": (pytest.mark.thorough, of_file),
    }
    runs = [list_kept(tests, seed, monkeypatch) for seed in range(0, 6 * TURN_SEEDS, TURN_SEEDS)]
    assert sorted(name for run in runs[:3] for name in run & takers.keys()) == sorted(takers)
    for run in runs:
        assert 2 <= len(run & takers.keys()) <= 3
        assert {"tests/test_a.py::test_kept", "tests/test_b.py::test_alone"} <= run
        cases = {name for name in run if "test_cases" in name}
        assert len(cases) == (0 if "tests/test_b.py::test_of_the_name" in run else 2)
    assert len({"tests/test_b.py::test_of_the_name" in run for run in runs}) == 2


@pytest.mark.parametrize("directory", ["tests/unit", *DEAR])
def test_tests_without_a_mark_take_turns_where_they_are_dear(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tests = {f"{directory}/test_a.py::test_{number}[{case}]": () for number in range(5) for case in range(2)}
    kept = f"{directory}/test_a.py::test_kept", f"{directory}/test_alone.py::test_a"
    marked = {kept[0]: (pytest.mark.every_run,), kept[1]: (), **tests}
    of = DEAR.get(directory, 1)
    runs = [list_kept(marked, seed * TURN_SEEDS, monkeypatch) for seed in range(of)]
    assert all(run >= {*kept} for run in runs)
    assert sorted(name for run in runs for name in run & tests.keys()) == sorted(tests)


@pytest.mark.parametrize(("count", "kept"), [(1, {1}), (2, {1}), (3, {1}), (7, {2, 3})])
def test_of_the_core_of_a_file_each_run_tries_a_third_and_at_least_one(
    count: int, kept: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    of_file = pytest.mark.turns(of=6)
    core = {f"tests/test_a.py::test_{number}": (pytest.mark.core, of_file) for number in range(count)}
    tests = {**core, **{f"tests/test_a.py::test_other_{number}": (of_file,) for number in range(6)}}
    runs = [list_kept(tests, seed * TURN_SEEDS, monkeypatch) for seed in range(min(3, count))]
    assert {len(run & core.keys()) for run in runs} == kept
    assert sorted(name for run in runs for name in run & core.keys()) == sorted(core)


def test_beside_a_core_few_others_have_their_run_among_as_many_as_the_file_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_file = pytest.mark.turns(of=6)
    others = {f"tests/test_a.py::test_{number}": (of_file,) for number in range(2)}
    tests = {**others, "tests/test_a.py::test_core": (pytest.mark.core, of_file)}
    runs = [list_kept(tests, seed * TURN_SEEDS, monkeypatch) for seed in range(6)]
    assert sorted(name for run in runs for name in run & others.keys()) == sorted(others)


def test_each_case_of_a_test_that_takes_turns_has_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for mark in (pytest.mark.rotating(of=OFTEN_SHARES), pytest.mark.rotating, pytest.mark.rare):
        of_file = pytest.mark.turns(of=3)
        marks = {f"test_a.py::test_{name}[{case}]": (mark, of_file) for name in "abc" for case in range(4)}
        runs = [list_kept(marks, seed, monkeypatch) for seed in range(3 * TURN_SEEDS)]
        assert set().union(*runs) == marks.keys()
