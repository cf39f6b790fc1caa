"""Parameters of templates: their schemas, and the values that a flow gives.

A schema is a JSON Schema of an object whose properties are texts, numbers, truth values, lists of these, or lists of
objects of these. ``x-suggest`` says what pages offer of what is there where a flow begins: tables, topics, paths,
publications, datasets; of a table columns, primary_key, watermark_column, partitions, start; of a dataset jobs.
``x-from: datasets`` says of a list of objects that a hop behind another one gets it from there: the datasets that this
one publishes, each with its ``dataset``, its ``job``, and by what its files are found (``by``).

One flow's parameters serve all its templates: each takes those that it has, and one that none has is refused.
"""

import datetime as dt
import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError
from jsonschema.exceptions import ValidationError as Mismatch
from jsonschema.protocols import Validator

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.wording import CONTROLS

TEXT_LENGTH_MAX: Final = 1_000
VALUES_MAX: Final = 100_000

FROM_DATASETS: Final = "datasets"
"""The value of ``x-from``."""

_FROM_FIELDS: Final = ("dataset", "job", "by")
_NEEDED_FIELDS: Final = ("dataset", "job")

NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_RESERVED: Final = frozenset({"from", "to", "flow", "each"})
_SCALARS: Final = frozenset({"string", "integer", "number", "boolean"})
_DEFINITIONS: Final = "#/$defs/"
_PARTS_MAX: Final = 10_000
_DEPTH_MAX: Final = 30
_DATES: Final = frozenset({"date", "date-time"})
_BEGIN: Final = "^(?:"
_END: Final = ")$"
_REFUSED_WORDS: Final = MappingProxyType(
    {
        "$id": "Take it out: a schema has no address.",
        "$schema": "Take it out: it is JSON Schema 2020-12.",
        "$dynamicRef": "Write the schema itself.",
        "$dynamicAnchor": "Take it out.",
        "$anchor": "Take it out.",
        "x-secret": "Put the secret into a variable of the executor: flows hold none.",
    }
)
_SAID: Final = MappingProxyType(
    {
        "string": "a text",
        "integer": "a whole number",
        "number": "a number",
        "boolean": "true or false",
        "array": "a list",
        "object": "a group of values",
    }
)

Schema = Mapping[str, Any]


def read_schema(written: Mapping[str, Any]) -> Schema:
    """The checked schema of a template's parameters, without references. RejectedError names the place and the fix."""
    if not written:
        return MappingProxyType({"type": "object", "properties": {}})
    definitions = written.get("$defs")
    schema: dict[str, Any] = _Inlining(definitions if isinstance(definitions, Mapping) else {}).inline(
        written, "parameters", 0
    )
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        place = _join("parameters", error.path)
        raise RejectedError(f"is no JSON Schema: {error.message[:200]}", field=place, hint="Correct it.") from None
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), Mapping):
        raise RejectedError(
            "expected type: object, and properties", field="parameters", hint="Write `type: object` and `properties:`."
        )
    for name, property_schema in schema["properties"].items():
        _check_name(name, "parameters.properties")
        if name in _RESERVED:
            raise RejectedError(
                f"{name!r} has another meaning in placeholders",
                field=f"parameters.properties.{name}",
                hint="Choose another name.",
            )
        _check_parameter(property_schema, f"parameters.properties.{name}")
        _check_origin(property_schema, f"parameters.properties.{name}")
    return schema


def leave_out_given(schema: Schema) -> dict[str, Any]:
    """The schema without the parameters that a hop gets from the one before it."""
    properties = {name: each for name, each in schema["properties"].items() if "x-from" not in each}
    required = [name for name in schema.get("required", ()) if name in properties]
    return {**schema, "properties": properties, "required": required}


def _check_origin(schema: Schema, place: str) -> None:
    if "x-from" not in schema:
        return
    if schema["x-from"] != FROM_DATASETS:
        raise RejectedError(
            f"expected {FROM_DATASETS}, found {str(schema['x-from'])[:80]!a}",
            field=f"{place}.x-from",
            hint="A hop gives the next one its datasets.",
        )
    fields = schema.get("items", {}).get("properties", {})
    missing = [name for name in _FROM_FIELDS if name not in fields]
    if missing:
        raise RejectedError(
            f"expected a list of objects that have {', '.join(_FROM_FIELDS)}; found none with {missing[0]}",
            field=f"{place}.items.properties",
            hint="Add it: the hop before gives each of its datasets these.",
        )
    optional = [name for name in _NEEDED_FIELDS if name not in schema["items"].get("required", ())]
    if optional or "default" in schema:
        raise RejectedError(
            f"expected {' and '.join(_NEEDED_FIELDS)} in each member" if optional else "expected no default",
            field=f"{place}.items.required" if optional else f"{place}.default",
            hint=f"Write `required: [{', '.join(_NEEDED_FIELDS)}]`." if optional else "Leave it out.",
        )


def make_validator(schema: Schema) -> Validator:
    """Checks values by the schema, dates among them."""
    checker = FormatChecker(())
    checker.checks("date", ValueError)(_is_date)
    checker.checks("date-time", ValueError)(_is_time)
    return Draft202012Validator(_anchor(schema), format_checker=checker)


def _anchor(schema: Any) -> Any:
    """The schema with patterns that fit whole texts: ``^a|b$`` would fit each text that begins with an a."""
    if isinstance(schema, list):
        return [_anchor(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        name: f"{_BEGIN}{each}{_END}" if name == "pattern" and isinstance(each, str) else _anchor(each)
        for name, each in schema.items()
    }


def _is_date(value: object) -> bool:
    # What is no text is refused by its type.
    return not isinstance(value, str) or (len(value) == len("2026-01-31") and bool(dt.date.fromisoformat(value)))


def _is_time(value: object) -> bool:
    return not isinstance(value, str) or bool(dt.datetime.fromisoformat(value))


def check_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values as JSON has them; dates become texts. RejectedError for controls, and for more than the bounds."""
    count = [0]
    return {
        _require_text(name, "parameters"): _check_value(value, f"parameters.{name}", count, 0)
        for name, value in given.items()
    }


def check_known(given: Mapping[str, Any], schemas: Sequence[Schema]) -> None:
    """RejectedError with the nearest name for a parameter that no schema has."""
    known = {name for schema in schemas for name in schema["properties"]}
    for name, value in given.items():
        _require_known(name, known, "parameters")
        fields = {
            each
            for schema in schemas
            if name in schema["properties"]
            for each in schema["properties"][name].get("items", {}).get("properties", {})
        }
        if not fields or not isinstance(value, list):
            continue
        for number, item in enumerate(value):
            for inner in item if isinstance(item, Mapping) else ():
                _require_known(inner, fields, f"parameters.{name}[{number}]")


def fill_in(given: Mapping[str, Any], schema: Schema, validator: Validator) -> dict[str, Any]:
    """The values of one template's parameters, with defaults. RejectedError for one that is missing or does not fit."""
    values = {name: _take(given[name], each) for name, each in schema["properties"].items() if name in given}
    if mismatch := min(validator.iter_errors(values), key=_order, default=None):
        raise _explain(mismatch)
    return _with_defaults(values, schema["properties"])


def read_texts(texts: Mapping[str, str], schemas: Sequence[Schema]) -> dict[str, Any]:
    """Values of parameters that came as texts, by what the schemas expect; others stay texts, to be refused later."""
    known: dict[str, Schema] = {}
    for schema in schemas:
        known |= schema["properties"]
    return {name: _read_text(text, known.get(name, {})) for name, text in texts.items()}


def _read_text(text: str, schema: Schema) -> Any:
    if schema.get("type", "string") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


@dataclass(slots=True)
class _Inlining:
    """A schema as it is written anew, with what its references name in place of them."""

    definitions: Mapping[str, Any]
    count: int = 0

    def inline(self, written: Any, place: str, depth: int) -> Any:
        self.count += 1
        if self.count > _PARTS_MAX or depth > _DEPTH_MAX:
            raise RejectedError(
                f"expected at most {_PARTS_MAX:,} parts and {_DEPTH_MAX} groups within groups, found more",
                field="parameters",
                hint="Make it shorter. Does a definition name itself?",
            )
        if isinstance(written, list):
            return [self.inline(each, f"{place}[{number}]", depth + 1) for number, each in enumerate(written)]
        if not isinstance(written, Mapping):
            return written
        for word, fix in _REFUSED_WORDS.items():
            if word in written and not place.endswith(".properties"):
                raise RejectedError("is not for parameters", field=f"{place}.{word}", hint=fix)
        if "$ref" in written:
            beside = {name: each for name, each in written.items() if name != "$ref"}
            return self.inline({**self._find(written["$ref"], place), **beside}, place, depth + 1)
        return {
            name: self.inline(each, f"{place}.{name}", depth + 1)
            for name, each in written.items()
            if name != "$defs" or depth
        }

    def _find(self, target: object, place: str) -> Mapping[str, Any]:
        found = None
        if isinstance(target, str) and target.startswith(_DEFINITIONS):
            found = self.definitions.get(target.removeprefix(_DEFINITIONS))
        if not isinstance(found, Mapping):
            raise RejectedError(
                f"expected a reference to {_DEFINITIONS}<name>, found {str(target)[:80]!a}",
                field=f"{place}.$ref",
                hint="Write the schema below $defs of the parameters: nothing is fetched.",
            )
        return found


def _check_name(name: object, place: str) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise RejectedError(
            f"expected a name of letters, digits and underscores, found {str(name)[:80]!a}",
            field=place,
            hint="Rename it; at most 64 characters, a letter first.",
        )


def _check_parameter(schema: object, place: str) -> None:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if isinstance(schema, Mapping) and kind == "array" and isinstance(schema.get("items"), Mapping):
        items = schema["items"]
        if items.get("type") != "object":
            _check_scalar(items, f"{place}.items")
            return
        for name, inner in items.get("properties", {}).items():
            _check_name(name, f"{place}.items.properties")
            nested = inner.get("items") if isinstance(inner, Mapping) and inner.get("type") == "array" else inner
            _check_scalar(nested, f"{place}.items.properties.{name}")
        return
    _check_scalar(schema, place)


def _check_scalar(schema: object, place: str) -> None:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if not isinstance(schema, Mapping) or kind not in _SCALARS:
        raise RejectedError(
            f"expected a type of string, integer, number, boolean, or array with items; found {str(kind)[:80]!a}",
            field=f"{place}.type",
            hint="A group of values is written as a list of objects, for `for_each`.",
        )
    if kind != "string" or "enum" in schema or "const" in schema or schema.get("format") in _DATES:
        return
    pattern = schema.get("pattern")
    if not isinstance(pattern, str) or not (pattern.startswith("^") and pattern.endswith("$")):
        raise RejectedError(
            "a text needs a pattern from ^ to $, an enum, or the format date",
            field=f"{place}.pattern",
            hint="Write what the text may be, such as '^[A-Za-z0-9_]{1,100}$'.",
        )
    try:
        re.compile(pattern)
    except re.error as error:
        raise RejectedError(f"is no pattern: {error}", field=f"{place}.pattern", hint="Correct it.") from None


def _check_value(value: object, place: str, count: list[int], depth: int) -> Any:
    count[0] += 1
    if depth > _DEPTH_MAX:
        raise RejectedError(
            "has too many groups within groups", field="parameters", hint="No template asks for so many."
        )
    if count[0] > VALUES_MAX:
        raise RejectedError(
            f"expected at most {VALUES_MAX:,} values", field="parameters", hint="Divide the flow into several flows."
        )
    match value:
        case bool() | int() | None:
            return value
        case float():
            if value != value or value in {float("inf"), float("-inf")}:  # noqa: PLR0124  NaN is not itself
                raise RejectedError("expected a number, found none", field=place, hint="Write it in digits.")
            return value
        case str():
            return _require_text(value, place)
        case dt.date():
            return value.isoformat()
        case list() | tuple():
            return [_check_value(each, f"{place}[{number}]", count, depth + 1) for number, each in enumerate(value)]
        case Mapping():
            return {
                _require_text(name, place): _check_value(each, f"{place}.{name}", count, depth + 1)
                for name, each in value.items()
            }
        case _:
            raise RejectedError(
                f"expected a value of JSON, found one of the type {type(value).__name__}",
                field=place,
                hint="Write it as a text.",
            )


def _require_text(text: object, place: str) -> str:
    if not isinstance(text, str):
        raise RejectedError(f"expected a name, found {text!a}", field=place, hint="Write it in quotes.")
    if len(text) > TEXT_LENGTH_MAX:
        raise RejectedError(
            f"expected at most {TEXT_LENGTH_MAX:,} characters, found {len(text):,}",
            field=place[:200],
            hint="Shorten it.",
        )
    if CONTROLS.search(text):
        raise RejectedError(
            f"expected no control characters, found {text[:80]!a}", field=ascii(place)[1:-1], hint="Take them out."
        )
    return text


def _require_known(name: str, known: set[str], place: str) -> None:
    if name in known:
        return
    close = difflib.get_close_matches(name, known, n=1)
    listed = f"Known: {', '.join(sorted(known))}." if known else "The flow's templates have no parameters: take it out."
    raise RejectedError(
        "is not a parameter of the flow's templates",
        field=f"{place}.{name}",
        hint=f"Did you mean {close[0]!r}?" if close else listed,
    )


def _take(value: Any, schema: Schema) -> Any:
    """The value without the fields of list members that only other templates have."""
    fields = schema.get("items", {}).get("properties") if schema.get("type") == "array" else None
    if fields is None or not isinstance(value, list):
        return value
    return [
        {name: each for name, each in item.items() if name in fields} if isinstance(item, Mapping) else item
        for item in value
    ]


def _with_defaults(values: Mapping[str, Any], properties: Mapping[str, Schema]) -> dict[str, Any]:
    filled: dict[str, Any] = {}
    for name, schema in properties.items():
        if name in values:
            fields = schema.get("items", {}).get("properties", {})
            value = values[name]
            filled[name] = [_with_defaults(item, fields) for item in value] if fields else value
        elif "default" in schema:
            filled[name] = schema["default"]
    return filled


def _order(mismatch: Mismatch) -> tuple[str, ...]:
    return (*map(str, mismatch.absolute_path), str(mismatch.validator), mismatch.message)


def _join(place: str, path: Iterator[str | int] | Sequence[str | int]) -> str:
    for part in path:
        place += f"[{part}]" if isinstance(part, int) else f".{part}"
    return place


def _explain(mismatch: Mismatch) -> RejectedError:
    place = _join("parameters", mismatch.absolute_path)
    schema = mismatch.schema if isinstance(mismatch.schema, Mapping) else {}
    expected: Any = mismatch.validator_value
    value: Any = mismatch.instance
    described = str(schema.get("description", ""))
    found = _show(value)
    match mismatch.validator:
        case "required":
            missing = next(name for name in expected if name not in value)
            wanted = schema.get("properties", {}).get(missing, {}).get("description", "")
            return RejectedError("is missing", field=f"{place}.{missing}", hint=f"Add it. {wanted}".strip())
        case "dependentRequired":
            name, missing = next(
                (name, each)
                for name, wanted in expected.items()
                if name in value
                for each in wanted
                if each not in value
            )
            return RejectedError(
                f"is missing, and {name} needs it", field=f"{place}.{missing}", hint=f"Add it, or take {name} out."
            )
        case "type":
            wanted = _SAID.get(str(expected), str(expected))
            return RejectedError(f"expected {wanted}; found {found}", field=place, hint=f"Write {wanted}.")
        case "enum":
            words = [str(each) for each in expected]
            close = difflib.get_close_matches(str(value), words, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else "Write one of these."
            return RejectedError(f"expected {' or '.join(words)}; found {found}", field=place, hint=hint)
        case "pattern":
            pattern = str(expected).removeprefix(_BEGIN).removesuffix(_END)
            return RejectedError(
                f"expected a text like {pattern}; found {found}",
                field=place,
                hint=described or "Correct it.",
            )
        case "format":
            return RejectedError(f"expected a date; found {found}", field=place, hint="Write it as 2026-01-31.")
        case _:
            return RejectedError(mismatch.message[:300], field=place, hint=described or "Correct it.")


def _show(value: object) -> str:
    match value:
        case Mapping():
            return "a group of values"
        case list():
            return f"a list of {len(value)}"
        case None:
            return "nothing"
        case _:
            return ascii(value)[:80]
