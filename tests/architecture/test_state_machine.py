"""One machine, written three times: EDGES in Python, guarded UPDATEs in SQL, and the tables' CHECK constraints."""

import re
from enum import StrEnum
from pathlib import Path

import pytest
from sqlalchemy import CheckConstraint, Table

from gobblin_assets.commit.machine import EDGES, SequenceState
from gobblin_assets.db import tables
from gobblin_assets.model.state import DatasetOutcome, WorkingState
from gobblin_assets.model.urn import Role

POSTGRES = Path(__file__).resolve().parents[2] / "gobblin_assets" / "commit" / "postgres"

_UPDATE = re.compile(r"UPDATE gobblin\.commit_sequence\b(.*?)\"\"\"", re.DOTALL)
_NEW_STATE = re.compile(r"\bstate = (?:'(\w+)'|CASE .*? THEN '(\w+)' ELSE state END)", re.DOTALL)
_GUARD = re.compile(r"\bstate (?:= '(\w+)'|IN \(([^)]*)\))")


def read_guarded_updates() -> set[tuple[str, str]]:
    """(from, to) of every UPDATE that sets a sequence's state."""
    found = set()
    for module in sorted(POSTGRES.glob("*.py")):
        for statement in _UPDATE.findall(module.read_text(encoding="utf-8")):
            assigned, _, condition = statement.partition("WHERE")
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


def test_each_edge_is_a_guarded_update_and_no_update_goes_elsewhere() -> None:
    edges = {(state.value, target.value) for (state, _event), target in EDGES.items()}
    assert read_guarded_updates() == edges


def test_what_counts_as_open_is_the_same_in_the_index() -> None:
    assert set(tables.OPEN_STATES) == {state.value for state in SequenceState if state.is_open}


@pytest.mark.parametrize(
    ("table", "column", "states"),
    [
        (tables.commit_sequence, "state", SequenceState),
        (tables.run_dataset, "outcome", DatasetOutcome),
        (tables.work_unit, "state", WorkingState),
        (tables.segment, "role", Role),
    ],
)
def test_a_column_takes_exactly_the_states_of_its_type(table: Table, column: str, states: type[StrEnum]) -> None:
    assert read_check(table, column) == {s.value for s in states}
