"""The JSON schema of a component's attributes, made so that a validator names the key that is wrong.

`dg check yaml` and editors show a validator's own words. If no member of a choice (``anyOf``) fits, these are "not
valid under any of the given schemas". So the value's type selects the member, or the option that names one of several
groups of options. Then the error is that of the selected member.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

Schema = dict[str, Any]

_CHOICES: Final = ("anyOf", "oneOf")
_REFERENCE: Final = "#/$defs/"


class _PlainSchema(GenerateJsonSchema):
    """A schema in which an optional value has its type's rules, so that a validator's message is about that type."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return {"if": {"not": {"type": "null"}}, "then": self.generate_inner(schema["schema"])}


def describe_options(model: type[BaseModel], *, title: str) -> Schema:
    """The schema of the options of ``model``."""
    schema = model.model_json_schema(schema_generator=_PlainSchema)
    told: Schema = _tell_apart(schema, schema.get("$defs", {}))
    return {**told, "title": title}


def _tell_apart(found: Any, definitions: Mapping[str, Schema]) -> Any:
    """The same schema, each choice in it told apart where that is possible."""
    if isinstance(found, list):
        return [_tell_apart(each, definitions) for each in found]
    if not isinstance(found, dict):
        return found
    told = {name: _tell_apart(each, definitions) for name, each in found.items()}
    name = next((each for each in _CHOICES if isinstance(told.get(each), list)), None)
    if name is None:
        return told
    chosen = _choose_by_type(told.pop(name), definitions)
    told.pop("discriminator", None)
    return {**chosen, **told}


def _choose_by_type(options: Sequence[Schema], definitions: Mapping[str, Schema]) -> Schema:
    """``options``: told apart themselves."""
    by_type: dict[str, list[Schema]] = {}
    for kind, option in [pair for each in options for pair in _list_by_type(each, definitions)]:
        same = by_type.setdefault(kind, [])
        if option not in same:
            same.append(option)
    if "" in by_type:
        return {"anyOf": list(options)}
    rules = [
        {"if": {"type": kind}, "then": rule}
        for kind, same in by_type.items()
        if (rule := same[0] if len(same) == 1 else _choose_by_option(same, definitions)) != {"type": kind}
    ]
    kinds = list(by_type)
    return {"type": kinds[0] if len(kinds) == 1 else kinds, **({"allOf": rules} if rules else {})}


def _list_by_type(option: Schema, definitions: Mapping[str, Schema]) -> list[tuple[str, Schema]]:
    """The option's types, each with its rule; an empty type: it is not known."""
    if option.get("if") == {"not": {"type": "null"}} and "then" in option:
        return [("null", {"type": "null"}), *_list_by_type(option["then"], definitions)]
    kinds = _resolve(option, definitions).get("type", "")
    if isinstance(kinds, str):
        return [(kinds, option)]
    # A choice that was told apart by type before.
    rules = {each["if"]["type"]: each["then"] for each in option.get("allOf", ())}
    return [(kind, rules.get(kind, {"type": kind})) for kind in kinds]


def _choose_by_option(groups: Sequence[Schema], definitions: Mapping[str, Schema]) -> Schema:
    """Groups of options of which one, such as ``type``, has another value in each."""
    resolved = [_resolve(each, definitions) for each in groups]
    for name in resolved[0].get("properties", {}):
        properties = [each.get("properties", {}).get(name, {}) for each in resolved]
        values = [each.get("const") for each in properties]
        if None in values or len(set(values)) < len(values):
            continue
        rules = []
        for group, value, own in zip(groups, values, properties, strict=True):
            is_named = {"properties": {name: {"const": value}}}
            # Without the option, the group counts that has it by default.
            rules.append(
                {"if": is_named if own.get("default") == value else {**is_named, "required": [name]}, "then": group}
            )
        is_needed = all(name in each.get("required", ()) for each in resolved)
        needed = {"required": [name]} if is_needed else {}
        return {"type": "object", "properties": {name: {"enum": values}}, **needed, "allOf": rules}
    return {"anyOf": list(groups)}


def _resolve(option: Schema, definitions: Mapping[str, Schema]) -> Schema:
    reference = option.get("$ref", "")
    return definitions.get(reference.removeprefix(_REFERENCE), {}) if reference else option
