"""Avro schemas as JSON: completed with their references, and put into an envelope that shows how decoding went.

Spark's ``from_avro`` resolves a writer's schema to a reader's by Avro's own rules. For a record that does not fit, it
gives a row of NULLs, which may be a good record as well; and it ignores the bytes behind a record. So both schemas are
wrapped into a record that has a constant ``END`` after the value, and ``END`` is appended to the bytes. If ``END`` is
read back unchanged, the bytes were exactly one value. A record's encoding is the encodings of its fields, so the
envelope itself has no bytes.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.spec.doubled_keys import DoubledKeyError, each_key_once

END: Final = b"gobblin\n"
VALUE_FIELD: Final = "gobblin_value"
END_FIELD: Final = "gobblin_end"
DEPTH_MAX: Final = 200

_PRIMITIVE: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})


def make_whole(text: str, references: Mapping[str, str], *, label: str, field: str) -> Any:
    """The schema with each referenced type inserted where it is first named; all names are full ones.

    ``references`` are schema texts by reference name. RejectedError, beginning with ``label``, for a schema that
    is not Avro's JSON or that names a type which nothing defines.
    """

    def refuse(said: str) -> RejectedError:
        return RejectedError(
            f"{label} is broken: {said}", field=field, hint="Register a schema that Avro accepts, or give `schema`."
        )

    definitions: dict[str, Any] = {}
    for reference in references.values():
        _collect(_parse(reference, refuse), "", definitions, 0)
    return _Whole(definitions, refuse).emit(_parse(text, refuse), "", 0)


def wrap(schema: Any) -> str:
    """The schema of the envelope around a value of ``schema``, which must be whole."""
    fields = [
        {"name": VALUE_FIELD, "type": schema},
        {"name": END_FIELD, "type": {"type": "fixed", "name": "gobblin_mark", "size": len(END)}},
    ]
    return json.dumps({"type": "record", "name": "gobblin_envelope", "fields": fields})


def is_record(schema: Any) -> bool:
    """Whether a value is a record, or a record or null: its fields become columns."""
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch not in ("null", {"type": "null"})]
        return len(branches) == 1 and is_record(branches[0])
    return isinstance(schema, dict) and schema.get("type") in ("record", "error")


def find_recursive(schema: Any, above: tuple[str, ...] = ()) -> str | None:
    """The full name of a record that contains itself, in a whole schema. No Spark type can hold such a record."""
    match schema:
        case str():
            return schema if schema in above else None
        case list():
            parts = schema
        case {"type": "record" | "error", "name": name, "fields": fields}:
            above, parts = (*above, str(name)), [each["type"] for each in fields]
        case {"items": part} | {"values": part}:
            parts = [part]
        case _:
            parts = []
    return next((found for part in parts if (found := find_recursive(part, above)) is not None), None)


def _parse(text: str, refuse: Callable[[str], RejectedError]) -> Any:
    try:
        return json.loads(text, object_pairs_hook=each_key_once)
    except DoubledKeyError as error:
        raise refuse(str(error)) from None
    except (ValueError, RecursionError):
        if text.strip() in _PRIMITIVE:
            # Older tools register such a schema without quotes.
            return text.strip()
        raise refuse("it is not JSON") from None


def _full_name(name: object, namespace: object, enclosing: str) -> str:
    """Avro's rule: a name with dots is a full name; a namespace that is given is used, else the enclosing one."""
    text = str(name)
    if "." in text:
        return text
    space = enclosing if namespace is None else str(namespace)
    return f"{space}.{text}" if space else text


def _collect(node: Any, namespace: str, definitions: dict[str, Any], depth: int) -> None:
    """Every named type of a schema, with the namespace that it stands in."""
    if depth > DEPTH_MAX:
        return
    if isinstance(node, list):
        for branch in node:
            _collect(branch, namespace, definitions, depth + 1)
    elif isinstance(node, dict):
        kind = node.get("type")
        if kind in _NAMED and "name" in node:
            full = _full_name(node["name"], node.get("namespace"), namespace)
            definitions.setdefault(full, {**node, "name": full})
            namespace = full.rpartition(".")[0]
            for each in node.get("fields") or ():
                _collect(each.get("type") if isinstance(each, dict) else None, namespace, definitions, depth + 1)
        else:
            for part in (kind, node.get("items"), node.get("values")):
                _collect(part, namespace, definitions, depth + 1)


class _Whole:
    """One schema while it is completed: Avro wants a type defined where it is first named, and only there."""

    def __init__(self, definitions: Mapping[str, Any], refuse: Callable[[str], RejectedError]) -> None:
        self._definitions = definitions
        self._refuse = refuse
        self._defined: set[str] = set()

    def emit(self, node: Any, namespace: str, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise self._refuse(f"it is nested more than {DEPTH_MAX} deep")
        match node:
            case str():
                return self._emit_name(node, namespace, depth)
            case list():
                return [self.emit(branch, namespace, depth + 1) for branch in node]
            case {"type": str() as kind} if kind in _NAMED:
                return self._emit_named(node, namespace, depth)
            case {"type": "array", "items": items}:
                return {**node, "items": self.emit(items, namespace, depth + 1)}
            case {"type": "map", "values": values}:
                return {**node, "values": self.emit(values, namespace, depth + 1)}
            case {"type": "array" | "map" as kind}:
                raise self._refuse(f"{'an array without items' if kind == 'array' else 'a map without values'}")
            case {"type": str() as name} if name in _PRIMITIVE:
                return node
            case {"type": inner}:
                return self.emit(inner, namespace, depth + 1)
            case _:
                raise self._refuse(f"{json.dumps(node)[:100]} is no type")

    def _emit_name(self, name: str, namespace: str, depth: int) -> Any:
        if name in _PRIMITIVE:
            return name
        for full in (_full_name(name, None, namespace), name):
            if full in self._defined:
                return full
            if full in self._definitions:
                return self._emit_named(self._definitions[full], "", depth)
        raise self._refuse(f"the type {name!r} is defined nowhere in it, nor in its references")

    def _emit_named(self, node: Mapping[str, Any], namespace: str, depth: int) -> Any:
        if not node.get("name"):
            raise self._refuse(f"a {node['type']} without a name")
        full = _full_name(node["name"], node.get("namespace"), namespace)
        if full in self._defined:
            # This definition stands inside a type that was inserted after the name was needed elsewhere.
            return full
        self._defined.add(full)
        named = {key: value for key, value in node.items() if key != "namespace"} | {"name": full}
        inner = full.rpartition(".")[0]
        if "." not in full:
            # Otherwise Avro would take the enclosing type's namespace.
            named["namespace"] = ""
        if node["type"] in ("enum", "fixed"):
            return named
        fields = node.get("fields")
        if not isinstance(fields, list):
            raise self._refuse(f"the record {full!r} has no list of fields")
        named["fields"] = [self._emit_field(each, full, inner, depth) for each in fields]
        return named

    def _emit_field(self, node: Any, record: str, namespace: str, depth: int) -> Any:
        if not isinstance(node, dict) or "name" not in node or "type" not in node:
            raise self._refuse(f"a field of {record!r} lacks its name or type")
        return {**node, "type": self.emit(node["type"], namespace, depth + 1)}
