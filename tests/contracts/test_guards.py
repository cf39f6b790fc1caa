"""A test of the contract suites: if the simulated database lacks one of its guards, a promise in them breaks."""

import inspect
from collections.abc import Callable, Iterator
from itertools import product

import pytest

from tests.contracts import (
    test_commit_store,
    test_commit_store_claims,
    test_commit_store_cleaning,
    test_commit_store_finish,
    test_commit_store_folding,
    test_commit_store_handover,
    test_commit_store_lanes,
    test_commit_store_queries,
    test_dataset_store,
    test_lane_store,
    test_lease_store,
    test_run_store,
)
from tests.simulation.database import Guard, SimDatabase
from tests.support.commit_log import LogWorld, open_simulated

SUITES = (
    test_lease_store,
    test_commit_store,
    test_commit_store_handover,
    test_commit_store_finish,
    test_commit_store_queries,
    test_commit_store_cleaning,
    test_commit_store_claims,
    test_commit_store_folding,
    test_commit_store_lanes,
    test_lane_store,
    test_dataset_store,
    test_run_store,
)


def promises() -> Iterator[tuple[str, Callable[[LogWorld], None]]]:
    """Every test of the suites, once for each set of its parameters."""
    for suite in SUITES:
        for name, test in inspect.getmembers(suite, inspect.isfunction):
            if name.startswith("test_"):
                for arguments in _arguments_of(test):
                    yield name, lambda log, test=test, arguments=arguments: test(log, **arguments)


def _arguments_of(test: Callable[..., None]) -> Iterator[dict[str, object]]:
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    for values in product(*(list(mark.args[1]) for mark in marks)):
        yield {mark.args[0]: value for mark, value in zip(marks, values, strict=True)}


def find_broken(guards: frozenset[str]) -> str | None:
    """The first promise that does not hold without these guards."""
    for name, promise in promises():
        try:
            promise(open_simulated(SimDatabase(without=guards)))
        except (Exception, pytest.fail.Exception):  # noqa: BLE001  whatever it is, the change was noticed
            return name
    return None


def test_with_all_guards_every_promise_holds() -> None:
    assert len(list(promises())) > 100
    assert find_broken(frozenset()) is None


@pytest.mark.parametrize("guard", Guard)
def test_a_missing_guard_breaks_a_promise(guard: Guard) -> None:
    assert find_broken(frozenset({guard})) is not None


def test_an_unknown_guard_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="seal-checks-everything"):
        SimDatabase(without=frozenset({"seal-checks-everything"}))
