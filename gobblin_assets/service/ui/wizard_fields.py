"""Fields of a form that are made from the JSON Schema of a template's parameters, and the parameters that a form gives.

A field's name is the path that errors have for its parameter, such as ``datasets[0].table``. So what is wrong is shown
where it was typed. What can't be read as the type of its parameter stays a text, which the compiler refuses.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

ROWS_MAX: Final = 1_000

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

_ITEM: Final = re.compile(r'\s*(?:"((?:[^"]|"")*)"\s*(?=[,\n]|\Z)|([^,\n]*))(?:[,\n]|\Z)')
"""One value of a list: in quotes, where a quote is doubled, or as it is up to the next comma or the end of the line."""

_PLAIN_ITEM: Final = re.compile(r'[^\s",]([^,\n]*[^\s,])?')


class FieldKind(StrEnum):
    """The control that a field is typed in."""

    TEXT = "text"
    NUMBER = "number"
    DATE = "date"
    CHOICE = "choice"
    LIST = "list"
    YES_NO = "yes_no"


@dataclass(frozen=True, slots=True)
class WizardField:
    """A parameter that is one value, or a list of values. ``step``: of numbers; "any" for those with a fraction.

    ``suggests``: the word of what its value may be chosen from.
    """

    name: str
    label: str
    kind: FieldKind
    value: str
    description: str
    is_required: bool
    choices: tuple[str, ...] = ()
    minimum: str = ""
    maximum: str = ""
    step: str = ""
    suggests: str = ""


@dataclass(frozen=True, slots=True)
class WizardRows:
    """A parameter that is a list of objects: the fields of each."""

    name: str
    label: str
    description: str
    rows: tuple[tuple[WizardField, ...], ...]
    can_grow: bool


def plan_fields(
    schema: Mapping[str, Any], values: Mapping[str, Any], *, adds_to: str = ""
) -> list[WizardField | WizardRows]:
    """The fields for a schema, required ones first, with these values. ``adds_to``: the list that gets one more row."""
    required = schema.get("required", ())
    properties = sorted(schema["properties"].items(), key=lambda each: each[0] not in required)
    found: list[WizardField | WizardRows] = []
    for name, each in properties:
        if is_table(each):
            found.append(_plan_rows(name, each, values.get(name), grows=adds_to == name))
        else:
            found.append(_plan_field(name, name, each, values.get(name), is_required=name in required))
    return found


def is_table(schema: Mapping[str, Any]) -> bool:
    """Whether the parameter is a list of objects."""
    return schema.get("type") == "array" and schema.get("items", {}).get("type") == "object"


def read_form(
    schema: Mapping[str, Any], form: Mapping[str, str], stored: Mapping[str, Any] = _NOTHING
) -> dict[str, Any]:
    """The parameters that a form gives. What was left empty is left out.

    ``stored``: those that the flow has. What the form did not ask for stays, and all, if there is nothing to ask for.
    """
    properties = schema["properties"]
    found = {name: value for name, value in stored.items() if not properties or not _is_sent(name, form)}
    for name, each in properties.items():
        value = (
            _read_rows(name, each["items"], form, stored.get(name))
            if is_table(each)
            else _read_value(each, form.get(name, ""))
        )
        if value not in (None, []):
            found[name] = value
    return found


def _is_sent(name: str, form: Mapping[str, str]) -> bool:
    """Whether the form had a field for the parameter: browsers send those that are empty too."""
    return any(each == name or each.startswith(f"{name}[") for each in form)


def _plan_rows(name: str, schema: Mapping[str, Any], value: object, *, grows: bool) -> WizardRows:
    rows = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []
    if grows or not rows:
        rows.append({})
    items = schema["items"]
    required = items.get("required", ())
    properties = sorted(items.get("properties", {}).items(), key=lambda each: each[0] not in required)
    return WizardRows(
        name,
        _read_label(name),
        schema.get("description", ""),
        tuple(
            tuple(
                _plan_field(
                    f"{name}[{number}].{inner}",
                    inner,
                    each,
                    row.get(inner) if isinstance(row, Mapping) else None,
                    is_required=inner in required,
                )
                for inner, each in properties
            )
            for number, row in enumerate(rows)
        ),
        can_grow=len(rows) < min(schema.get("maxItems", ROWS_MAX), ROWS_MAX),
    )


def _plan_field(name: str, word: str, schema: Mapping[str, Any], value: object, *, is_required: bool) -> WizardField:
    given = schema.get("default") if value is None else value
    kind = _find_kind(schema)
    return WizardField(
        name=name,
        label=_read_label(word),
        kind=kind,
        value=_show_value(given),
        description=schema.get("description", ""),
        is_required=is_required,
        choices=tuple(str(each) for each in schema.get("enum", ())),
        minimum=str(schema.get("minimum", "")),
        maximum=str(schema.get("maximum", "")),
        step="1" if schema.get("type") == "integer" else "any",
        suggests=str(schema.get("x-suggest", "")),
    )


def _find_kind(schema: Mapping[str, Any]) -> FieldKind:
    if "enum" in schema:
        return FieldKind.CHOICE
    match schema.get("type"):
        case "array":
            return FieldKind.LIST
        case "boolean":
            return FieldKind.YES_NO
        case "integer" | "number":
            return FieldKind.NUMBER
        case _:
            return FieldKind.DATE if schema.get("format") == "date" else FieldKind.TEXT


def _read_label(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _show_value(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return ", ".join(_show_item(_show_value(each)) for each in value)
        case _:
            return str(value)


def _show_item(text: str) -> str:
    """A value of a list, in quotes where it would be read as something else without."""
    return text if _PLAIN_ITEM.fullmatch(text) else '"' + text.replace('"', '""') + '"'


def _list_items(text: str) -> Iterator[str]:
    """The values of a list as a person types them; between two commas without anything else is none."""
    for found in _ITEM.finditer(text):
        quoted, plain = found.groups()
        if quoted is not None:
            yield quoted.replace('""', '"')
        elif plain.strip():
            yield plain.strip()


def _read_rows(name: str, items: Mapping[str, Any], form: Mapping[str, str], stored: object) -> list[dict[str, Any]]:
    """Rows in the order of their numbers, without those where nothing was typed.

    What the form did not ask for in a row is as in the stored one of its number.
    """
    known = stored if isinstance(stored, Sequence) else ()
    pattern = re.compile(rf"{re.escape(name)}\[(\d{{1,4}})\]\.\w+")
    numbers = {int(found[1]) for each in form if (found := pattern.fullmatch(each))}
    rows = []
    for number in sorted(numbers)[:ROWS_MAX]:
        row = {
            inner: value
            for inner, each in items.get("properties", {}).items()
            if (value := _read_value(each, form.get(f"{name}[{number}].{inner}", ""))) not in (None, [])
        }
        if row:
            before = known[number] if number < len(known) and isinstance(known[number], Mapping) else {}
            rows.append({k: v for k, v in before.items() if f"{name}[{number}].{k}" not in form} | row)
    return rows


def _read_value(schema: Mapping[str, Any], text: str) -> Any:
    if schema.get("type") == "array":
        return [_read_scalar(schema.get("items", {}), item) for item in _list_items(text)]
    text = text.strip()
    return None if not text else _read_scalar(schema, text)


def _read_scalar(schema: Mapping[str, Any], text: str) -> Any:
    try:
        match schema.get("type"):
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case "boolean":
                return {"true": True, "false": False}.get(text, text)
            case _:
                return text
    except ValueError:
        return text
