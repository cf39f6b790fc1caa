"""The graph of the product's modules, with every way in which one leads to another, and its cycles.

    python -m tests.architecture.import_graph     prints the cycles, without and with the edges of registries

import-linter sees imports, those in functions too. It sees no text that names a module which is imported by it.
"""

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
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
    return tuple(list_edges(parse_package(), list_packages()))


def list_edges(modules: Mapping[str, ast.Module], packages: Collection[str] = ()) -> list[Edge]:
    """What the modules lead to among themselves, in the order of their lines. ``packages``: those that hold others."""
    found: list[Edge] = []
    for name, tree in modules.items():
        edges = {*_walk_imports(name, tree, modules, EdgeKind.TOP), *_read_texts(name, tree, modules, packages)}
        found += sorted((each for each in edges if each.imported != name), key=lambda each: (each.line, each.imported))
    return found


def _walk_imports(name: str, node: ast.AST, known: Collection[str], kind: EdgeKind) -> Iterator[Edge]:
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


def _names_imported(node: ast.Import | ast.ImportFrom, known: Collection[str]) -> Iterator[str]:
    """``from package import module`` leads to the module, ``from module import name`` too."""
    match node:
        case ast.ImportFrom(module=str(module)):
            found = [f"{module}.{each.name}" for each in node.names]
            yield from (each if each in known else module for each in found if each in known or module in known)
        case ast.Import():
            yield from (each.name for each in node.names if each.name in known)


def _read_texts(name: str, tree: ast.Module, known: Collection[str], packages: Collection[str]) -> Iterator[Edge]:
    """Texts that name a module, and those that do so behind a beginning that is written once, ``f"{__name__}.{…}"``.

    The name of a package alone is a group of entry points, a logger, a key: as a module, nobody needs it by a text.
    """
    beginnings = {"", *_list_beginnings(name, tree, packages)}
    for text, line in _list_texts(tree):
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


def _list_beginnings(name: str, tree: ast.Module, packages: Collection[str]) -> Iterator[str]:
    parent = name if name in packages else name.rpartition(".")[0]
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


def find_loaded(edges: Iterable[Edge]) -> dict[str, set[str]]:
    """What is imported with each module: what it imports at once, what that imports, and the packages of all of it."""
    at_once: dict[str, set[str]] = defaultdict(set)
    for edge in edges:
        if edge.kind is EdgeKind.TOP:
            at_once[edge.importer].add(edge.imported)
    loaded: dict[str, set[str]] = {}
    for module in {edge.importer for edge in edges}:
        found: set[str] = set()
        waiting = {module, *_packages_of(module)}
        while waiting:
            each = waiting.pop()
            found.add(each)
            waiting |= {*at_once[each], *(parent for one in at_once[each] for parent in _packages_of(one))} - found
        loaded[module] = found
    return loaded


def _packages_of(module: str) -> Iterator[str]:
    while module := module.rpartition(".")[0]:
        yield module


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
