"""The protocol knows no kind of step: only a kind's own module asks which one it is."""

import ast
from functools import cache
from pathlib import Path

from gobblin_assets.commit import rename_steps

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "gobblin_assets"
OF_KINDS = {"gobblin_assets/commit/rename_steps.py"}

STEP_NAMES = {"CommitStep", "RenameFile", "RenameDirectory"}
KIND_NAMES = {kind.name for kind in rename_steps.KINDS}


@cache
def parse_modules() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def names_in(node: ast.AST) -> set[str]:
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return found | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def asks_for_a_kind(node: ast.AST) -> bool:
    """``isinstance``, a class pattern, or the name of a kind, which would be there to be compared."""
    match node:
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, types]):
            return bool(names_in(types) & STEP_NAMES)
        case ast.MatchClass(cls=cls):
            return bool(names_in(cls) & STEP_NAMES)
        case ast.Constant(value=str() as text):
            return text in KIND_NAMES
        case _:
            return False


def test_no_module_asks_for_the_kind_of_a_step_but_the_kind_s_own() -> None:
    found = {
        f"{name}:{getattr(node, 'lineno', 0)}"
        for name, tree in parse_modules().items()
        if name not in OF_KINDS
        for node in ast.walk(tree)
        if asks_for_a_kind(node)
    }
    assert found == set()


def test_in_the_protocol_only_the_registry_knows_the_built_in_kinds() -> None:
    users = {
        name
        for name, tree in parse_modules().items()
        if name.startswith("gobblin_assets/commit/")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == rename_steps.__name__
    }
    assert users == {"gobblin_assets/commit/step_kinds.py"}


def test_a_check_would_be_seen() -> None:
    for text in (
        "isinstance(step, RenameFile | int)",
        "step.kind == 'rename_file'",
        "isinstance(step, steps.RenameDirectory)",
        "match step:\n    case RenameDirectory():\n        pass",
    ):
        assert any(asks_for_a_kind(node) for node in ast.walk(ast.parse(text))), text
