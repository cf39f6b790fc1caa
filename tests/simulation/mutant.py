"""What a mutant is, and the ways to make one: a guard left out, a function replaced, a statement changed."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from sqlalchemy import text

from tests.simulation import world
from tests.simulation.guards import Guard

Change = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Mutant:
    """``suite`` holds pytest's arguments; empty: the simulated world must notice."""

    name: str
    change: Change
    suite: tuple[str, ...] = ()


def without(*guards_off: Guard) -> Change:
    return lambda: mock.patch.object(world, "guards_off", frozenset(guards_off))


def patched(target: Any, name: str, new: Any) -> Change:
    return lambda: mock.patch.object(target, name, new)


def with_sql(module: Any, name: str, old: str, new: str) -> Change:
    """Replace a part of a statement. If the statement no longer has this part, that is an error."""

    def change() -> AbstractContextManager[Any]:
        statement = str(getattr(module, name))
        if old not in statement:
            raise ValueError(f"{module.__name__}.{name} no longer has {old!r}: mend the mutant")
        return mock.patch.object(module, name, text(statement.replace(old, new)))

    return change
