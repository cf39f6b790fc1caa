"""Measured figures as Markdown tables: each a median, with its smallest and largest beside it."""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Options:
    """``runs``: how often everything is measured. ``quick``: small sizes, to see that all of it works."""

    runs: int
    quick: bool


@dataclass(frozen=True, slots=True)
class Table:
    """``rows`` hold one text for each of ``columns``. ``notes`` say what was measured, and which figure is missed."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def write(self) -> str:
        lines = [f"### {self.title}", ""]
        lines += [_row(self.columns), _row(["---"] + ["---:"] * (len(self.columns) - 1))]
        lines += [_row(row) for row in self.rows]
        if self.notes:
            lines += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines) + "\n"


@dataclass(slots=True)
class Samples:
    """Measured values by name, in the order in which the names first came; ``row`` shows them as seconds."""

    by_name: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        self.by_name.setdefault(name, []).append(value)

    def add_all(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.add(name, value)

    def median(self, name: str) -> float:
        return statistics.median(self.by_name[name])

    def row(self, name: str, *more: str) -> tuple[str, ...]:
        values = self.by_name[name]
        return (name, seconds(self.median(name)), seconds(min(values)), seconds(max(values)), *more)


@dataclass(slots=True)
class Laps:
    """The seconds between the moments of one run, by name; laps of the same name add up."""

    last: float = field(default_factory=time.monotonic)
    spent: dict[str, float] = field(default_factory=dict)

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.spent[name] = self.spent.get(name, 0.0) + now - self.last
        self.last = now


def in_turns(names: Sequence[str], runs: int) -> Iterator[str]:
    """Each name once a run.

    Each run begins one name later, and every second run goes backwards, so that no name always follows the same other
    name. Before each name the disks are synced, so that no measure pays for another's writes.
    """
    for run in range(runs):
        order = (*names[run % len(names) :], *names[: run % len(names)])
        for name in order if run % 2 == 0 else reversed(order):
            os.sync()
            yield name


def timed(function: Callable[[], object]) -> float:
    begun = time.monotonic()
    function()
    return time.monotonic() - begun


def seconds(value: float) -> str:
    return f"{value:.3f} s"


def verdict(name: str, found: float, allowed: float, unit: str = "s") -> str:
    """One line for the notes: the figure, what is allowed, and whether it is met."""
    met = "met" if found <= allowed else "**missed**"
    return f"{name}: {found:.3f} {unit}, allowed {allowed:.3f} {unit}: {met}."


def verdict_at_least(name: str, found: float, needed: float, unit: str) -> str:
    """The same for a figure that should be large."""
    met = "met" if found >= needed else "**missed**"
    return f"{name}: {found:.3f} {unit}, needed {needed:.3f} {unit}: {met}."


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
