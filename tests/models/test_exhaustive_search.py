"""The search finds every state of small models that are counted by hand."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.models.exhaustive_search import search


@dataclass(frozen=True)
class Counters:
    """Each process counts to ``limit`` on its own; the world is what was last counted, or a change from outside."""

    processes: int
    limit: int
    changes: int = 0
    fault_at: tuple[int, int] | None = None

    @property
    def start(self) -> int:
        return 0

    @property
    def idle(self) -> int:
        return 0

    def list_moves(self, world: int, process: int) -> Iterator[tuple[int, int]]:
        if process < self.limit:
            yield world, process + 1

    def list_changes(self, world: int) -> Iterator[int]:
        if world < self.changes:
            yield world + 1

    def find_fault(self, world: int, process: int) -> str | None:
        return "found" if (world, process) == self.fault_at else None


@pytest.mark.parametrize(
    ("model", "states", "depth"),
    [
        (Counters(processes=1, limit=3), 4, 4),
        (Counters(processes=2, limit=3), 10, 7),
        (Counters(processes=3, limit=3), 20, 10),
        (Counters(processes=2, limit=3, changes=4), 50, 11),
    ],
)
def test_processes_that_are_alike_are_counted_once(model: Counters, states: int, depth: int) -> None:
    found = search(model)
    assert (found.states, found.depth, found.fault) == (states, depth, None)


def test_a_fault_is_found_after_the_fewest_moves() -> None:
    found = search(Counters(processes=2, limit=3, changes=4, fault_at=(2, 3)))
    assert (found.fault, found.depth) == ("found", 5)
    assert len(found.trace) == 6
    assert found.trace[0] == "0  |  0  |  0"
    assert found.trace[-1] == "2  |  0  |  3"
