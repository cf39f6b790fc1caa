"""The protocol knows no kind of step: only a kind's own module asks which one it is."""

import ast
from functools import cache
from pathlib import Path

import pytest

from gobblin_assets.commit.step_kinds import find_provider, get_kind
from gobblin_assets.destinations.step_table import STEP_PLACES

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "gobblin_assets"
FOLDERS = ("gobblin_assets/destinations/files/", "gobblin_assets/destinations/fixed_names/")
OF_KINDS = (*FOLDERS, "gobblin_assets/destinations/step_table.py")
"""What knows kinds of steps: the folder of each place of files, and the table of their kinds."""

SAME_WORDS = {"ensure_directory": "gobblin_assets/jobs/copy/difference.py"}
"""By the name of a kind: a module that means something else by it, here what a plan says of a directory."""


@cache
def parse_modules() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


@cache
def step_classes() -> set[str]:
    """The classes of steps: ``CommitStep``, and those that have it above them."""
    found = {"CommitStep"}
    classes = [
        (node.name, {name for base in node.bases for name in names_in(base)})
        for tree in parse_modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    while more := {name for name, bases in classes if bases & found} - found:
        found |= more
    return found


def names_in(node: ast.AST) -> set[str]:
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return found | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def asks_for_a_kind(node: ast.AST) -> bool:
    """``isinstance``, a class pattern, or the name of a kind, which would be there to be compared."""
    match node:
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, types]):
            return bool(names_in(types) & step_classes())
        case ast.MatchClass(cls=cls):
            return bool(names_in(cls) & step_classes())
        case ast.Constant(value=str() as text):
            return text in STEP_PLACES
        case _:
            return False


def test_no_module_asks_for_the_kind_of_a_step_but_the_kind_s_own() -> None:
    found = {
        f"{name}:{getattr(node, 'lineno', 0)}"
        for name, tree in parse_modules().items()
        if not name.startswith(OF_KINDS)
        for node in ast.walk(tree)
        if asks_for_a_kind(node) and not (isinstance(node, ast.Constant) and SAME_WORDS.get(str(node.value)) == name)
    }
    assert found == set()


@pytest.mark.parametrize("name", STEP_PLACES)
def test_what_the_table_names_is_there(name: str) -> None:
    assert get_kind(name).name == name
    assert find_provider(name) is None
    assert STEP_PLACES[name].replace(".", "/").startswith(FOLDERS)


def test_the_table_has_all_kinds_of_its_folders() -> None:
    """Each class of a step there has a name of its own, which the log keeps."""
    found = {
        text.value
        for path, tree in parse_modules().items()
        if path.startswith(FOLDERS)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "StepKind"
        for text in ast.walk(node)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
    }
    assert found <= STEP_PLACES.keys()


def test_a_check_would_be_seen() -> None:
    for text in (
        "isinstance(step, RenameFile | int)",
        "step.kind == 'rename_file'",
        "isinstance(step, steps.RenameDirectory)",
        "match step:\n    case RenameDirectory():\n        pass",
    ):
        assert any(asks_for_a_kind(node) for node in ast.walk(ast.parse(text))), text
