"""The product's sources, each parsed once for all tests of this directory."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "gobblin_assets"
_MIGRATIONS = (f"{PACKAGE}.db.migrations", f"{PACKAGE}.service.postgres.migrations")

# Decorators that leave a function to its callers. Any other one hands it to somebody: click, pydantic, Dagster.
_PLAIN_DECORATORS = {
    "abstractmethod",
    "cache",
    "cached_property",
    "classmethod",
    "contextmanager",
    "dataclass",
    "final",
    "lru_cache",
    "overload",
    "override",
    "property",
    "runtime_checkable",
    "staticmethod",
    "total_ordering",
    "wraps",
}


@cache
def read_package() -> Mapping[str, str]:
    """The modules of gobblin_assets by dotted name, migrations aside: Alembic finds those by their files."""
    texts = read_tree(ROOT / PACKAGE)
    return {name: text for name, text in texts.items() if not name.startswith(_MIGRATIONS)}


@cache
def parse_package() -> Mapping[str, ast.Module]:
    return {name: ast.parse(text) for name, text in read_package().items()}


@cache
def list_packages() -> frozenset[str]:
    """The modules that hold others."""
    return frozenset(module_name(path.relative_to(ROOT)) for path in (ROOT / PACKAGE).rglob("__init__.py"))


def read_tree(folder: Path) -> dict[str, str]:
    """What lies below ``folder``, by the names under which it is imported."""
    return {
        module_name(path.relative_to(folder.parent)): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*.py"))
    }


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def names_of(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module or a class defines; imports define none."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield statement.name
        case ast.Assign():
            for target in statement.targets:
                yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.If() | ast.Try():
            for inner in statement.body:
                yield from names_of(inner)
        case _:
            return


def is_handed_over(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    return any(_decorator_name(each) not in _PLAIN_DECORATORS for each in statement.decorator_list)


def _decorator_name(decorator: ast.expr) -> str:
    match decorator:
        case ast.Call(func=inner):
            return _decorator_name(inner)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ast.unparse(decorator)
