"""The graph of the product's modules, with every way in which one leads to another, and its cycles.

    python -m tests.architecture.import_graph     prints the cycles, without and with the edges of registries

import-linter sees imports, those in functions too. It sees no text that names a module which is imported by it.
"""

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from tests.architecture.sources import PACKAGE, list_packages, parse_package


class EdgeKind(StrEnum):
    TOP = "when the module is imported"
    INNER = "in a function"
    TEXT = "by a text"


@dataclass(frozen=True, slots=True)
class Edge:
    """``importer`` leads to ``imported``; both are names of our modules."""

    importer: str
    imported: str
    kind: EdgeKind
    line: int


@cache
def find_edges() -> tuple[Edge, ...]:
    """Those of the product."""
    modules = parse_package()
    return tuple(edge for name in modules for edge in list_edges(name, modules, list_packages()))


def list_edges(name: str, modules: Mapping[str, ast.Module], packages: Iterable[str]) -> list[Edge]:
    """What the module ``name`` leads to. ``packages``: the modules that hold others."""
    found = {
        *_walk_imports(name, modules[name], modules, EdgeKind.TOP),
        *_read_texts(name, modules[name], modules, frozenset(packages)),
    }
    return sorted((each for each in found if each.imported != name), key=lambda each: (each.line, each.imported))


def _walk_imports(name: str, node: ast.AST, known: Iterable[str], kind: EdgeKind) -> Iterator[Edge]:
    for inner in ast.iter_child_nodes(node):
        match inner:
            case ast.Import() | ast.ImportFrom():
                yield from (Edge(name, each, kind, inner.lineno) for each in _names_imported(inner, known))
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _walk_imports(name, inner, known, EdgeKind.INNER)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                # A surface says there what it imports by texts.
                yield from _walk_imports(name, inner, known, EdgeKind.TEXT)
            case _:
                yield from _walk_imports(name, inner, known, kind)


def _names_imported(node: ast.Import | ast.ImportFrom, known: Iterable[str]) -> Iterator[str]:
    """``from package import module`` leads to the module, ``from module import name`` too."""
    match node:
        case ast.ImportFrom(module=str(module)):
            found = [f"{module}.{each.name}" for each in node.names]
            yield from (each if each in known else module for each in found if each in known or module in known)
        case ast.Import():
            yield from (each.name for each in node.names if each.name in known)


def _read_texts(name: str, tree: ast.Module, known: Iterable[str], packages: frozenset[str]) -> Iterator[Edge]:
    """Texts that name a module, and those that do so behind a beginning that is written once, ``f"{__name__}.{…}"``.

    The name of a package alone is a group of entry points, a logger, a key: as a module, nobody needs it by a text.
    """
    texts = list(_list_texts(tree))
    beginnings = {"", *_list_beginnings(name, tree)}
    for text, line in texts:
        module, colon, _ = text.partition(":")
        for beginning in beginnings:
            full = beginning + module
            if full in known and (colon or beginning or full not in packages):
                yield Edge(name, full, EdgeKind.TEXT, line)


def _list_texts(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Without docstrings, which are statements of their own."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value, node.lineno


def _list_beginnings(name: str, tree: ast.Module) -> Iterator[str]:
    parent = name if name in list_packages() else name.rpartition(".")[0]
    own = {"__name__": name, "__package__": parent}
    for node in ast.walk(tree):
        match node:
            case ast.JoinedStr(values=[ast.FormattedValue(value=ast.Name(id=variable)), ast.Constant(value="."), *_]):
                if variable in own:
                    yield f"{own[variable]}."
            case ast.JoinedStr(values=[ast.Constant(value=str() as text), *_]) if text.startswith(f"{PACKAGE}."):
                yield text


def find_loads(tree: ast.AST) -> list[int]:
    """The lines that import by a text."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] in {"__import__", "import_module", "resolve_name"}
    ]


def find_cycles(edges: Iterable[Edge]) -> list[list[str]]:
    """The modules that lead to each other, by cycles, the largest first (Tarjan's components of more than one)."""
    after: dict[str, set[str]] = defaultdict(set)
    for edge in edges:
        after[edge.importer].add(edge.imported)
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_ones: list[str] = []
    cycles: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        open_ones.append(module)
        for each in sorted(after[module]):
            if each not in order:
                visit(each)
            if each in open_ones:
                lowest[module] = min(lowest[module], lowest[each])
        if lowest[module] == order[module]:
            start = open_ones.index(module)
            component = open_ones[start:]
            del open_ones[start:]
            if len(component) > 1:
                cycles.append(sorted(component))

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 10_000)
    try:
        for module in sorted(after):
            if module not in order:
                visit(module)
    finally:
        sys.setrecursionlimit(limit)
    return sorted(cycles, key=lambda each: (-len(each), each))


def _tell() -> None:
    edges = find_edges()
    counted = Counter(edge.kind for edge in edges)
    print(", ".join(f"{counted[kind]} edges {kind}" for kind in EdgeKind))
    for title, kinds in (
        ("imports", {EdgeKind.TOP, EdgeKind.INNER}),
        ("imports and texts", set(EdgeKind)),
    ):
        cycles = find_cycles(each for each in edges if each.kind in kinds)
        print(f"by {title}: {len(cycles)} cycles, of {[len(each) for each in cycles]} modules")
        for cycle in cycles:
            print("  ", *(each.removeprefix(f"{PACKAGE}.") for each in cycle))


if __name__ == "__main__":
    _tell()
