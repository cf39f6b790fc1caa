"""The machine of a sequence is written once: statements and constraints are made from it, and say the same."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest
from sqlalchemy import CheckConstraint, Index, Table, TextClause

import gobblin_assets.commit.postgres as adapter
from gobblin_assets.db import tables
from gobblin_assets.model.sequence_state import (
    EDGES,
    INITIAL_STATE,
    OPEN_STATES,
    OVER_STATES,
    UNFINISHED_STATES,
    UNSEALED_STATES,
    SequenceState,
)
from gobblin_assets.model.state import DatasetOutcome, WorkingState
from gobblin_assets.model.urn import Role
from gobblin_assets.service.flow_store import FlowState
from gobblin_assets.service.postgres import tables as service_tables
from gobblin_assets.service.statuses import ExecutionStatus

PACKAGE = Path(__file__).resolve().parents[2] / "gobblin_assets"

_UPDATE = re.compile(r"UPDATE gobblin\.commit_sequence\b(.*)", re.DOTALL)
_NEW_STATE = re.compile(r"\bstate = (?:'(\w+)'|CASE .*? THEN '(\w+)' ELSE state END)", re.DOTALL)
_GUARD = re.compile(r"\bstate (?:= '(\w+)'|IN \(([^)]*)\))")
_SEVERAL_BY_HAND = re.compile(r"\bIN \(\s*'(?:" + "|".join(SequenceState) + r")'")


def list_statements() -> Iterator[str]:
    """Every statement of the log's adapter, as it is sent."""
    for module in pkgutil.iter_modules(adapter.__path__, f"{adapter.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            yield from (
                str(each) for each in (value if isinstance(value, tuple) else (value,)) if isinstance(each, TextClause)
            )


def read_guarded_updates() -> set[tuple[str, str]]:
    """(from, to) of every UPDATE that sets a sequence's state."""
    found = set()
    for statement in list_statements():
        update = _UPDATE.search(statement)
        if update is None:
            continue
        assigned, _, condition = update[1].partition("WHERE")
        new = _NEW_STATE.search(assigned)
        if new is None:
            continue
        guard = _GUARD.search(condition)
        assert guard is not None, f"unguarded: {statement}"
        olds = re.findall(r"\w+", guard[1] or guard[2])
        found |= {(old, new[1] or new[2]) for old in olds}
    return found


def read_check(table: Table, name: str) -> set[str]:
    (check,) = (
        str(constraint.sqltext)
        for constraint in table.constraints
        if isinstance(constraint, CheckConstraint) and str(constraint.name) in (name, f"{table.name}_{name}_check")
    )
    return set(re.findall(r"'(\w+)'", check))


def read_condition(name: str) -> set[str]:
    """The states for which a partial index of sequences holds."""
    (index,) = (each for each in tables.commit_sequence.indexes if isinstance(each, Index) and each.name == name)
    return set(re.findall(r"'(\w+)'", str(index.dialect_options["postgresql"]["where"])))


def test_each_edge_is_a_guarded_update_and_no_update_goes_elsewhere() -> None:
    edges = {(state.value, target.value) for (state, _event), target in EDGES.items()}
    assert read_guarded_updates() == edges


def test_no_statement_names_a_transition_s_states_by_hand() -> None:
    """Neither what an UPDATE sets nor its guard, and no list of several states."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if "migrations" in path.parts:
            continue
        source = path.read_text(encoding="utf-8")
        found += [f"{path.name}: {match[0]}" for match in _SEVERAL_BY_HAND.finditer(source)]
        for statement in re.findall(r"UPDATE gobblin\.commit_sequence\b.*?\"\"\"", source, re.DOTALL):
            assigned, _, _condition = statement.partition("WHERE")
            if _NEW_STATE.search(assigned):
                found.append(f"{path.name}: {statement}")
    assert found == []


def test_tables_and_indexes_have_the_states_of_the_machine() -> None:
    assert read_condition("commit_sequence_one_open") == set(OPEN_STATES)
    assert read_condition("commit_sequence_unfinished") == set(UNFINISHED_STATES)
    assert read_check(tables.past_sequence, "state") == set(OVER_STATES)
    assert read_check(tables.commit_sequence, "sealed") == set(UNSEALED_STATES)


def test_the_groups_of_states_follow_from_the_edges() -> None:
    assert OVER_STATES == (SequenceState.DONE, SequenceState.ABORTED)
    assert tuple(state for state in SequenceState if state.is_open) == OPEN_STATES
    assert INITIAL_STATE not in EDGES.values()


@pytest.mark.parametrize(
    ("table", "column", "states"),
    [
        (tables.commit_sequence, "state", SequenceState),
        (tables.run_dataset, "outcome", DatasetOutcome),
        (tables.work_unit, "state", WorkingState),
        (tables.segment, "role", Role),
        (service_tables.flow, "state", FlowState),
        (service_tables.flow_execution, "status", ExecutionStatus),
        (service_tables.job_execution, "status", ExecutionStatus),
    ],
)
def test_a_column_takes_exactly_the_states_of_its_type(table: Table, column: str, states: type[StrEnum]) -> None:
    assert read_check(table, column) == {s.value for s in states}
