"""Each run of the tests tries a share of the cases, another seed another share; `make proof` tries all of them.

The process that the user started draws a seed, or takes it from ``GOBBLIN_TEST_SEED``, and passes it on through the
environment, so that xdist's workers collect the same tests. Pytest's header shows the seed, and so does the report of
every failed test that had a share.

Two things have a share: the cases of a test that is marked ``rotating``, and the histories of a test that asks for the
fixture ``share``.
"""

import os
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest

SEED_VARIABLE: Final = "GOBBLIN_TEST_SEED"
SHARES: Final = 3

_SEED_MAX: Final = 999_999
_THOROUGH: Final = "thorough"


@dataclass(frozen=True)
class Share:
    """One of ``of`` parts, chosen by the seed. The parts are disjoint, and all of them together are everything."""

    seed: int
    of: int = SHARES

    def numbers(self, count: int, name: str) -> frozenset[int]:
        """Of the numbers below ``count``, in an order that depends only on ``name``, each ``of``-th."""
        order = list(range(count))
        random.Random(name).shuffle(order)
        return frozenset(order[self.seed % self.of :: self.of])


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
        """Rotating tests outside of this run's share become thorough; in a thorough run, all of them do."""
        functions: defaultdict[str, list[pytest.Item]] = defaultdict(list)
        for item in items:
            if item.get_closest_marker("rotating") is not None:
                functions[item.nodeid.partition("[")[0]].append(item)
        for name, cases in functions.items():
            kept = frozenset() if self._is_thorough else Share(read_seed()).numbers(len(cases), name)
            for number, item in enumerate(cases):
                if number not in kept:
                    item.add_marker(pytest.mark.thorough)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[Any]:
        report = yield
        if report.failed and (item.get_closest_marker("rotating") or "share" in getattr(item, "fixturenames", ())):
            report.sections.append(("share", self._hint))
        return report
