"""Each run of the tests tries a share of the cases, another seed another share; `make proof` tries all of them.

The process that the user started draws a seed, or takes it from ``GOBBLIN_TEST_SEED``, and passes it on through the
environment, so that xdist's workers collect the same tests. Pytest's header shows the seed, and so does the report of
every failed test that had a share.

Three things have a share: the cases of a test that is marked ``rotating``, or ``rare`` where each case is expensive,
or ``rotating(of=3)`` for a third instead of a twelfth; the histories of a test that asks for the fixture ``share``; and
expensive tests that are marked ``turns`` with the same name, of which each run tries one, or with ``of=3`` a third. A
file's tests take turns by ``pytestmark = pytest.mark.turns(of=3)``, but for those that are marked ``every_run``. Those
that are marked ``core``, which say what the file is there for, take turns among themselves: each run tries a third of
them, and at least one. Of the others of such a file, a run may try none. Where tests are dear (``DEAR``), those of a
file without a mark take turns, too.
"""

import os
import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import pytest

SEED_VARIABLE: Final = "GOBBLIN_TEST_SEED"
SHARES: Final = 12
OFTEN_SHARES: Final = 3
RARE_SHARES: Final = 36
CORE_SHARES: Final = 3
DEAR: Final = MappingProxyType({"tests/contracts": 2, "tests/crash": 2, "tests/integration": 2})
"""Directories whose tests take turns without a mark, each file's for itself: of so many parts a run tries one."""

TURN_SEEDS: Final = RARE_SHARES
"""A turn lasts for so many seeds. So a test has its turn with each of the shares of its cases."""

_SEED_MAX: Final = 999_999
_THOROUGH: Final = "thorough"


@dataclass(frozen=True)
class Share:
    """One of ``of`` parts, chosen by the seed. The parts are disjoint, and all of them together are everything."""

    seed: int
    of: int = SHARES

    def numbers(self, count: int, name: str, *, at_least_one: bool = False) -> frozenset[int]:
        """Of the numbers below ``count``, in an order that depends only on ``name``, each ``of``-th.

        Where the first of them stands depends on ``name`` too: single cases of many tests don't all come in one run.
        ``at_least_one``: fewer numbers than parts make fewer parts.
        """
        chance = random.Random(name)
        order = list(range(count))
        chance.shuffle(order)
        of = min(self.of, count) if at_least_one and count else self.of
        return frozenset(order[(self.seed + chance.randrange(of)) % of :: of])


EVERYTHING: Final = Share(0, of=1)


def read_seed() -> int:
    """The seed of this run. UsageError for a given seed that is no number."""
    given = os.environ[SEED_VARIABLE]
    if not given.isdecimal():
        raise pytest.UsageError(f"{SEED_VARIABLE}: expected a number from 0, found {given!r}")
    return int(given)


def cross(firsts: Sequence[Any], seconds: Sequence[Any]) -> list[Any]:
    """Pairs as parameters: each of ``seconds`` with one of ``firsts`` in every run, and with the others rotating."""
    return [
        pytest.param(first, second, marks=[] if number == position % len(firsts) else [pytest.mark.rotating])
        for position, second in enumerate(seconds)
        for number, first in enumerate(firsts)
    ]


def rotating(*values: Any) -> Any:
    """One case of a test's parameters, tried only in the runs whose share has it."""
    return pytest.param(*values, marks=pytest.mark.rotating)


def often(*values: Any) -> Any:
    """The same with a larger share."""
    return pytest.param(*values, marks=pytest.mark.rotating(of=OFTEN_SHARES))


def rare(*values: Any) -> Any:
    """The same with a smaller share."""
    return pytest.param(*values, marks=pytest.mark.rare)


def thorough(*values: Any) -> Any:
    """One case of a test's parameters that only ``make proof`` tries."""
    return pytest.param(*values, marks=pytest.mark.thorough)


class Shares:
    """The pytest plugin."""

    def __init__(self, config: pytest.Config) -> None:
        self._is_given = SEED_VARIABLE in os.environ
        if not self._is_given:
            os.environ[SEED_VARIABLE] = str(random.SystemRandom().randint(0, _SEED_MAX))
        self._is_thorough = config.getoption("markexpr") == _THOROUGH
        self._hint = f"{SEED_VARIABLE}={read_seed()} repeats this run's share of the histories and rotating cases"

    def pytest_unconfigure(self) -> None:
        if not self._is_given:
            os.environ.pop(SEED_VARIABLE, None)

    def pytest_report_header(self) -> str:
        return self._hint

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Rotating and rare tests outside of this run's share become thorough; in a thorough run, all of them do."""
        functions: defaultdict[str, list[pytest.Item]] = defaultdict(list)
        turns: defaultdict[_Turns, defaultdict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
        for item in items:
            function = item.nodeid.partition("[")[0]
            functions[function].append(item)
            turn = _find_turns(item)
            if turn is not None:
                turns[turn][function].append(item)
        for name, items_of_name in functions.items():
            rare_ones = [item for item in items_of_name if item.get_closest_marker("rare") is not None]
            others = [item for item in items_of_name if item not in rare_ones]
            by_size: defaultdict[int, list[pytest.Item]] = defaultdict(list)
            for item in others:
                by_size[_count_shares(item)].append(item)
            every = by_size.pop(1, [])
            for of, cases in by_size.items():
                self._leave(cases, self._choose(cases, name, of=of, at_least_one=not every and of == min(by_size)))
            self._leave(rare_ones, Share(read_seed(), of=RARE_SHARES).numbers(len(rare_ones), f"the rare of {name}"))
        for turn, takers in turns.items():
            share = Share(read_seed() // TURN_SEEDS, of=turn.of or len(takers))
            kept = share.numbers(len(takers), f"the turns of {turn.name}", at_least_one=not _has_core(turn, turns))
            for number, function in enumerate(sorted(takers)):
                cases = takers[function]
                self._leave(cases, frozenset(range(len(cases)) if number in kept else ()))

    def _leave(self, cases: list[pytest.Item], kept: frozenset[int]) -> None:
        for number, item in enumerate(cases):
            if self._is_thorough or number not in kept:
                item.add_marker(pytest.mark.thorough)

    @staticmethod
    def _choose(cases: list[pytest.Item], name: str, *, of: int, at_least_one: bool) -> frozenset[int]:
        """A test whose cases all rotate has at least one of them in each run."""
        return Share(read_seed(), of=of).numbers(len(cases), name, at_least_one=at_least_one)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[Any]:
        report = yield
        has_share = any(item.get_closest_marker(name) for name in ("rotating", "rare", "turns", "core"))
        if report.failed and (has_share or "share" in getattr(item, "fixturenames", ())):
            report.sections.append(("share", self._hint))
        return report


@dataclass(frozen=True)
class _Turns:
    """The tests of one ``name``; each run tries one of ``of`` parts, or one test where ``of`` is None."""

    name: str
    of: int | None


def _find_turns(item: pytest.Item) -> _Turns | None:
    """With which others a test takes turns: with those of its file where the mark has no name."""
    file = item.nodeid.partition("::")[0]
    if item.get_closest_marker("core") is not None and item.get_closest_marker(_THOROUGH) is None:
        return _Turns(_name_core(file), CORE_SHARES)
    if any(item.get_closest_marker(name) for name in ("every_run", _THOROUGH)):
        return None
    mark = item.get_closest_marker("turns")
    if mark is None:
        of = DEAR.get(file.rpartition("/")[0])
        return None if of is None else _Turns(file, of)
    name = mark.args[0] if mark.args else file
    return _Turns(str(name), mark.kwargs.get("of"))


def _has_core(turn: _Turns, turns: Collection[_Turns]) -> bool:
    """Whether each run tries something of the file anyway."""
    return _Turns(_name_core(turn.name), CORE_SHARES) in turns


def _name_core(file: str) -> str:
    return f"the core of {file}"


def _count_shares(item: pytest.Item) -> int:
    """Of how many shares a case is in one; 1 for a case of every run. The smallest share that a mark gives counts."""
    return max((mark.kwargs.get("of", SHARES) for mark in item.iter_markers("rotating")), default=1)
