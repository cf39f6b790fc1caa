"""A source is one folder and one registration: nothing outside of a source's folder knows which one it is."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_assets.dagster.resources.connections import resource_class
from gobblin_assets.sources.connection import LogConnection, SourceConnection
from gobblin_assets.sources.environment import connection_class
from gobblin_assets.spec.source_kind import SourceKind
from gobblin_assets.spec.source_spec import SOURCES

PRODUCT = Path(__file__).resolve().parents[2] / "gobblin_assets"
NAMES = ("jdbc", "kafka", "postgres_log", "spark_stream")
KINDS = [kind for name in NAMES if isinstance(kind := SOURCES.get(name), SourceKind)]

# Sources may know each other: the log of Postgres and its tables are reached, typed and copied alike.
ALLOWED = {
    "dagster/resources/__init__.py": "names the resources for people's Python",
    "dagster/resources/kinds.py": "the kinds' resources, which Dagster's users write",
    "jobs/ingest/foreach_batches.py": "the function of the kind, to which programs hand rows over",
    "tickets/wire_topics.py": "topics of tickets and reports, by the clients that topics of rows have",
}
"""Files outside of the sources' folders that may import from one."""


def test_no_place_outside_of_a_source_asks_which_one_it_is() -> None:
    found = [
        f"{path.relative_to(PRODUCT)}:{line}: {what}"
        for path in sorted(PRODUCT.rglob("*.py"))
        if path.relative_to(PRODUCT).parts[:2] not in [("sources", kind.name) for kind in KINDS]
        and str(path.relative_to(PRODUCT)) not in ALLOWED
        for line, what in find_questions(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


def find_questions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Comparisons with the name of a kind, and imports from its folder."""
    names = {kind.name for kind in KINDS}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare | ast.Match):
            values = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
            yield from ((node.lineno, f"compares with {value!r}") for value in values if value in names)
        if isinstance(node, ast.ImportFrom) and any(f"sources.{name}" in (node.module or "") for name in names):
            yield node.lineno, f"imports from {node.module}"


@pytest.mark.parametrize(
    "text",
    ["x.type == 'kafka'", "match x:\n  case 'jdbc': pass", "from gobblin_assets.sources.kafka.kafka_kind import KAFKA"],
)
def test_such_questions_are_found(text: str) -> None:
    assert list(find_questions(ast.parse(text)))


@pytest.mark.parametrize("kind", [each for each in KINDS if each.connection], ids=lambda kind: str(kind.name))
def test_what_a_kind_names_is_there(kind: SourceKind) -> None:
    fields, resource = connection_class(kind), resource_class(kind)
    assert issubclass(fields, LogConnection if kind.is_log else SourceConnection)
    assert {fields.ADDRESS, *fields.SECRETS} <= fields.model_fields.keys()
    assert resource.FIELDS is fields
    assert kind.name == resource.KIND
    # What people write in Python has the fields that variables have, with the same values where nothing is said.
    written = {name: resource.model_fields[name].get_default(call_default_factory=True) for name in fields.model_fields}
    assert written == {name: each.get_default(call_default_factory=True) for name, each in fields.model_fields.items()}
