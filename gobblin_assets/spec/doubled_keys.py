"""Keys that a text of a person says twice in one mapping. PyYAML, Dagster and ``json`` silently take the last one."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from gobblin_assets.errors import RejectedError


class DoubledKeyError(ValueError):
    """A key stands twice in one object of JSON."""


def refuse_doubled_keys(text: str, path: Path) -> None:
    """``refuse_doubled_nodes`` for a file that somebody else reads; it may have several documents."""
    for document in yaml.compose_all(text, yaml.SafeLoader):
        refuse_doubled_nodes(document, path)


def each_key_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, as ``object_pairs_hook`` of ``json.loads``. DoubledKeyError names the key."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise DoubledKeyError(f"{key!a} stands twice in one object")
        found[key] = value
    return found


def refuse_doubled_nodes(document: yaml.Node, path: Path) -> None:
    """RejectedError for a key that stands in one mapping twice. It names the key, the file and both lines.

    A key beside a merged mapping (``<<``) that has it too is no double: YAML defines which one counts.
    """
    for field, first, second in _find_doubled(document, "", set()):
        raise RejectedError(
            f"{path} says it twice, in line {first} and in line {second}: only the second would count",
            field=field,
            hint="Join both, or remove one of them.",
        )


def _find_doubled(node: yaml.Node, above: str, seen: set[int]) -> Iterator[tuple[str, int, int]]:
    """The path of each doubled key and the lines, from 1, of both. ``seen``: nodes that anchors name again."""
    if id(node) in seen:
        return
    seen.add(id(node))
    match node:
        case yaml.SequenceNode():
            for index, item in enumerate(node.value):
                yield from _find_doubled(item, f"{above}[{index}]", seen)
        case yaml.MappingNode():
            lines: dict[tuple[str, str], int] = {}
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    continue
                field = f"{above}.{key.value}" if above else key.value
                line, identity = key.start_mark.line + 1, (key.tag, key.value)
                if identity in lines:
                    yield field, lines[identity], line
                lines[identity] = line
                yield from _find_doubled(value, field, seen)
        case _:
            return
