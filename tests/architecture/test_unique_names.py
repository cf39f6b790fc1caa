"""A name of the product stands for one thing: no two modules define a public class or function of one name.

Commands, jobs and other functions that a decorator hands over are not counted: what calls them asks for their text.
"""

import ast
from collections import defaultdict
from collections.abc import Mapping

from tests.architecture.sources import PACKAGE, is_handed_over, parse_package


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
    assert shared == {}


def test_a_name_of_two_modules_would_be_seen() -> None:
    one, other, command = map(
        ast.parse,
        ("class Plan: ...\ndef _own(): ...", "def Plan(): ...\ndef _own(): ...", "@x.command()\ndef Plan(): ..."),
    )
    assert find_shared({"one": one, "other": other, "command": command}) == {"Plan": ["one", "other"]}
