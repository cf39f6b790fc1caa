"""A destination of rows is one folder and one registration: nothing outside of its folder knows which one it is."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_assets.commit.step_kinds import get_kind
from gobblin_assets.commit.steps import StepKind
from gobblin_assets.spec.destination_kind import DESTINATION_KINDS, DestinationKind, IntoSpec

PRODUCT = Path(__file__).resolve().parents[2] / "gobblin_assets"
KINDS = [DESTINATION_KINDS.get(name) for name in sorted(DESTINATION_KINDS.built_in)]
ALLOWED = {"tickets/wire_topics.py": "topics of tickets and reports, by the clients that topics of rows have"}
"""Files outside of the destinations' folders that may import from one."""

PLACES = ("TablesPlace", "TopicsPlace", "IcebergPlace", "TablesSpec", "TopicsSpec", "IcebergSpec")


def test_no_place_outside_of_a_destination_asks_which_one_it_is() -> None:
    found = [
        f"{path.relative_to(PRODUCT)}:{line}: {what}"
        for path in sorted(PRODUCT.rglob("*.py"))
        if path.relative_to(PRODUCT).parts[:2] not in [("destinations", kind.name) for kind in KINDS]
        and str(path.relative_to(PRODUCT)) not in ALLOWED
        for line, what in find_questions(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


def find_questions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Imports from a kind's folder, checks of a place's class, and comparisons of a type of ``into``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(
            f"destinations.{kind.name}" in (node.module or "") for kind in KINDS
        ):
            yield node.lineno, f"imports from {node.module}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            names = {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}
            yield from ((node.lineno, f"asks for a {name}") for name in names.intersection(PLACES))
        if isinstance(node, ast.Compare) and ast.unparse(node.left).endswith("into.type"):
            yield node.lineno, f"compares {ast.unparse(node.left)}"


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(place, TablesPlace)",
        "isinstance(into, A | TopicsSpec)",
        "job.into.type == 'kafka'",
        "from gobblin_assets.destinations.iceberg.iceberg_kind import ICEBERG",
    ],
)
def test_such_questions_are_found(text: str) -> None:
    assert list(find_questions(ast.parse(text)))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.name))
def test_what_a_kind_names_is_there(kind: DestinationKind) -> None:
    assert issubclass(kind.spec, IntoSpec)
    assert kind.of_datasets < kind.spec.model_fields.keys()
    module, _, name = kind.place.partition(":")
    assert callable(getattr(importlib.import_module(module), name))
    for step, place in kind.steps.items():
        found: StepKind = getattr(importlib.import_module(place.partition(":")[0]), place.partition(":")[2])
        assert (found.name, get_kind(step)) == (step, found)
        assert place.startswith(f"gobblin_assets.destinations.{kind.name}.")
