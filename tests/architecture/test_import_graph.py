"""Where one module leads to another, it says so by an import, and no module leads back to itself.

An import that is made late stands in a function, with its reason, where mypy and import-linter see it. Texts that name
modules are for registries and entry points. Their edges lead from a table of kinds to each kind, which imports what the
table stands beside: so they close cycles, which are counted apart (``python -m tests.architecture.import_graph``).
"""

import ast

import pytest

from tests.architecture.import_graph import EdgeKind, find_cycles, find_edges, find_loaded, find_loads, list_edges
from tests.architecture.sources import PACKAGE, parse_package

_NAMES = "public names, each imported when it is first used"
_COMMANDS = "commands, each imported when it is called"
_KINDS = "a table of kinds"
_KIND = "a kind, which every process that reads a job file imports: what opens connections is imported when it is used"
_PROCESS = "the module that another process runs"

# Modules whose texts name our modules.
REGISTRIES = {
    "": _NAMES,
    "cli": _COMMANDS,
    "cli.dagster_process": _PROCESS,
    "cli.sequences": _COMMANDS,
    "cli.services": _COMMANDS,
    "commit.step_kinds": "finds the table of the steps of destinations, which are above it",
    "dagster": _NAMES,
    "dagster.resources.connections": _KINDS,
    "destinations.iceberg.iceberg_kind": _KIND,
    "destinations.kafka.topics_kind": _KIND,
    "destinations.postgres.tables_kind": _KIND,
    "destinations.step_table": _KINDS,
    "events.sinks": _KINDS,
    "fs.registry": _KINDS,
    "jobs.copy.converters.chain": _KINDS,
    "jobs.copy.finders": _KINDS,
    "jobs.copy.transfer.crews": _PROCESS,
    "jobs.programs": _KINDS,
    "service.compilers": _KINDS,
    "service.spec_executors.wire_kinds": _KINDS,
    "sources.jdbc.connection": _KINDS,
    "sources.jdbc.jdbc_kind": _KIND,
    "sources.kafka.kafka_kind": _KIND,
    "sources.postgres_log.postgres_log_kind": _KIND,
    "spec.destination_kind": _KINDS,
    "spec.job_kinds": _KINDS,
    "spec.source_spec": _KINDS,
}

# Modules that import what a text names.
LOADERS = {
    "": _NAMES,
    "cli.lazy_commands": _COMMANDS,
    "commit.step_kinds": "the kinds of steps of destinations",
    "dagster": _NAMES,
    "destinations.rows_place": "the place that a kind of destination names",
    "extensions": "kinds by tables and entry points",
    "rows.converters": "the function that a job names",
    "sources.environment": "the connection that a kind of source names",
}

# By their modules, with the reason why they are better together.
CYCLES: dict[tuple[str, ...], str] = {}


def shorten(module: str) -> str:
    return module.removeprefix(PACKAGE).removeprefix(".")


def test_only_registries_name_modules_by_texts() -> None:
    found = {shorten(edge.importer) for edge in find_edges() if edge.kind is EdgeKind.TEXT}
    assert found - REGISTRIES.keys() == set(), "import it in a function, with the reason: # noqa: PLC0415  …"
    assert REGISTRIES.keys() - found == set(), "it names none any more: take it out"


def test_only_registries_import_by_texts() -> None:
    found = {shorten(name) for name, tree in parse_package().items() if find_loads(tree)}
    assert found - LOADERS.keys() == set(), "import it in a function: # noqa: PLC0415  …"
    assert LOADERS.keys() - found == set(), "it imports by none any more: take it out"


def test_no_module_leads_back_to_itself() -> None:
    plugs = {edge for edge in find_edges() if edge.kind is EdgeKind.TEXT}
    cycles = {tuple(map(shorten, cycle)) for cycle in find_cycles(set(find_edges()) - plugs)}
    assert cycles == CYCLES.keys(), "break it, or name it above with its reason; take out one that is gone"


def test_an_import_in_a_function_spares_something() -> None:
    loaded = find_loaded(find_edges())
    found = [
        f"{shorten(edge.importer)}:{edge.line}: {shorten(edge.imported)}"
        for edge in find_edges()
        if edge.kind is EdgeKind.INNER and edge.imported in loaded[edge.importer]
    ]
    assert found == [], "the module imports it anyway: import it at the top"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("from gobblin_assets import b", EdgeKind.TOP),
        ("import gobblin_assets.b", EdgeKind.TOP),
        ("from gobblin_assets.b import name", EdgeKind.TOP),
        ("if True:\n    from gobblin_assets.b import name", EdgeKind.TOP),
        ("def f():\n    from gobblin_assets.b import name", EdgeKind.INNER),
        ("class C:\n    async def f(self):\n        import gobblin_assets.b", EdgeKind.INNER),
        ("if TYPE_CHECKING:\n    from gobblin_assets.b import name", EdgeKind.TEXT),
        ("import_module('gobblin_assets.b')", EdgeKind.TEXT),
        ("KINDS = {'b': 'gobblin_assets.b:KIND'}", EdgeKind.TEXT),
        ("LATE = 'gobblin_assets.b'", EdgeKind.TEXT),
        ("import_module(f'{__package__}.{name}')\nload('b')", EdgeKind.TEXT),
        ("import_module(f'gobblin_assets.{name}')\nload('b')", EdgeKind.TEXT),
    ],
)
def test_what_leads_from_one_module_to_another_is_seen(text: str, kind: EdgeKind) -> None:
    edges = list_edges({"gobblin_assets.a": ast.parse(text), "gobblin_assets.b": ast.parse("")})
    assert {(edge.importer, edge.imported, edge.kind) for edge in edges} == {
        ("gobblin_assets.a", "gobblin_assets.b", kind)
    }


@pytest.mark.parametrize("text", ['"""As gobblin_assets.b."""', "'gobblin_assets.b'", "log('gobblin_assets.pack')"])
def test_prose_and_names_of_groups_lead_nowhere(text: str) -> None:
    modules = {f"gobblin_assets.{name}": ast.parse("") for name in ("b", "pack")}
    assert list_edges({**modules, "gobblin_assets.a": ast.parse(text)}, ["gobblin_assets.pack"]) == []


def test_cycles_are_found() -> None:
    texts = {"a": "def f():\n    from gobblin_assets import b", "b": "from gobblin_assets import c", "d": ""}
    modules = {**texts, "c": "import gobblin_assets.a\nimport gobblin_assets.d"}
    edges = list_edges({f"gobblin_assets.{name}": ast.parse(text) for name, text in modules.items()})
    assert find_cycles(edges) == [["gobblin_assets.a", "gobblin_assets.b", "gobblin_assets.c"]]
    assert find_loaded(edges)["gobblin_assets.b"] == {
        "gobblin_assets",
        *(f"gobblin_assets.{name}" for name in ("a", "b", "c", "d")),
    }


@pytest.mark.parametrize(
    "text", ["import_module(NAME)", "importlib.import_module('a')", "__import__('a')", "pkgutil.resolve_name('a:b')"]
)
def test_imports_by_texts_are_found(text: str) -> None:
    assert find_loads(ast.parse(text)) == [1]
