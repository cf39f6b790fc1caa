"""A name of the product stands for one thing: no two modules define a public class or function of one name.

Commands, jobs and other functions that a decorator hands over are not counted: what calls them asks for their text.
"""

import ast
from collections import defaultdict
from collections.abc import Mapping

from tests.architecture.sources import PACKAGE, is_handed_over, parse_package

_OF_CONNECTIONS = "what the module of each kind of connection has, by the same name"
_TO_BE_RENAMED = "one of them is to get a name of its own"

EXCEPTIONS = {
    "Driver": _TO_BE_RENAMED,
    "Reading": _TO_BE_RENAMED,
    "connection_from_environment": _OF_CONNECTIONS,
    "decide_mode": _TO_BE_RENAMED,
    "list_capabilities": _OF_CONNECTIONS,
    "require_no_written_secret": _OF_CONNECTIONS,
}


def find_shared(modules: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    places: dict[str, list[str]] = defaultdict(list)
    for module, tree in modules.items():
        for statement in tree.body:
            if (
                isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and not statement.name.startswith("_")
                and not is_handed_over(statement)
            ):
                places[statement.name].append(module.removeprefix(f"{PACKAGE}."))
    return {name: found for name, found in places.items() if len(found) > 1}


def test_public_names_are_unique_across_modules() -> None:
    shared = find_shared(parse_package())
    assert {name: places for name, places in shared.items() if name not in EXCEPTIONS} == {}
    assert EXCEPTIONS.keys() - shared.keys() == set(), "it is unique now: take out the exception"


def test_a_name_of_two_modules_would_be_seen() -> None:
    one, other, command = map(
        ast.parse,
        ("class Plan: ...\ndef _own(): ...", "def Plan(): ...\ndef _own(): ...", "@x.command()\ndef Plan(): ..."),
    )
    assert find_shared({"one": one, "other": other, "command": command}) == {"Plan": ["one", "other"]}
