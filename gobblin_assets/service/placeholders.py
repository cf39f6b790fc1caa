"""Placeholders in the options of a template's job, and their substitution on the parsed tree.

    "${table}"                  the whole text is a placeholder: the value itself, a number or a list as such
    "daily_${table}"            within a text: the value as text
    - for_each: tables          a member of the list for each member of the parameter
      given: key                only of those that have this field (``without``: that lack it)
      make: {table: "${each.table}"}

A value is never looked at for placeholders, and never becomes the name of an option. An option whose placeholder has no
value is left out, and so is a group that has nothing else. There are no includes, variables and expressions.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from gobblin_assets.errors import RejectedError

JobTree = Mapping[str, Any]
"""Options of a job: plain values, of which texts may hold placeholders."""

NODE_WORDS: Final = ("connection", "root", "node")
FLOW_WORDS: Final = ("group", "name", "job")

_WRITTEN_BY_USERS: Final = frozenset({"flow.group", "flow.name"})

_PLACEHOLDER: Final = re.compile(r"\$\{([^${}]*)\}")
_FOR_EACH: Final = frozenset({"for_each", "given", "without", "make"})
_DEPTH_MAX: Final = 30

# Options that decide what code runs, what SQL is asked, and which places are reached.
_NOT_FOR_PARAMETERS: Final = frozenset({
    "casts", "check", "connection", "converters", "descriptor_file", "destination", "events", "function", "jars",
    "marks_schema", "marks_topic", "packages", "passphrase_env", "root", "sql", "uri", "url", "where",
})  # fmt: skip
_PLACES_NOT_FOR_PARAMETERS: Final = frozenset(
    {
        ("job",),
        ("kind",),
        ("source",),
        ("source", "type"),
        ("into", "type"),
        ("sink", "into", "type"),
        ("finder", "kind"),
    }
)

_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class FilledJob:
    """A job's options, and where their values come from: paths of options to paths of parameters, or of nodes."""

    options: dict[str, Any]
    origins: Mapping[str, str]

    def find_origin(self, option: str) -> str | None:
        """What an option's value comes from: its own, that of the group around it, or one below."""
        path = option
        while path:
            if path in self.origins:
                return self.origins[path]
            cut = max(path.rfind("."), path.rfind("["))
            path = path[: max(cut, 0)]
        return next(
            (origin for place, origin in self.origins.items() if place.startswith((f"{option}.", f"{option}["))), None
        )


def check_job_tree(job: JobTree, schema: Mapping[str, Any]) -> frozenset[str]:
    """Check the placeholders of a template's job. Returns what it is told of its nodes, such as ``to.root``.

    RejectedError names the option and the fix.
    """
    checked = _Checked(schema["properties"])
    checked.check(job, "job", None, 0)
    unused = sorted(schema["properties"].keys() - checked.used)
    if unused:
        raise RejectedError(
            "no placeholder of the job asks for it",
            field=f"parameters.properties.{unused[0]}",
            hint=f"Write ${{{unused[0]}}} where its value belongs, or take the parameter out.",
        )
    return frozenset(checked.needs)


class Fact(NamedTuple):
    """What the flow or a node gives. ``origin``: where people wrote it."""

    value: str
    origin: str


def fill_job(job: JobTree, values: Mapping[str, Any], facts: Mapping[str, Fact]) -> FilledJob:
    """The job's options. ``values``: of parameters; ``facts``: such as ``from.root`` and ``flow.name``."""
    origins: dict[str, str] = {}
    filled = _Filling(values, facts, origins).fill(job, "", None)
    return FilledJob(filled if isinstance(filled, dict) else {}, origins)


def _list_placeholders(text: str) -> list[str]:
    return _PLACEHOLDER.findall(text)


@dataclass(slots=True)
class _Checked:
    properties: Mapping[str, Any]
    used: set[str] = field(default_factory=set)
    needs: set[str] = field(default_factory=set)

    def check(self, tree: Any, place: str, each: Mapping[str, Any] | None, depth: int) -> None:
        if depth > _DEPTH_MAX:
            raise RejectedError("has too many groups within groups", field=place, hint="No job is so deep: correct it.")
        match tree:
            case Mapping():
                for name, inner in tree.items():
                    if not isinstance(name, str) or "$" in name:
                        raise RejectedError(
                            f"expected the name of an option, found {str(name)[:80]!a}",
                            field=place,
                            hint="Placeholders stand in values alone; write the name in quotes.",
                        )
                    self.check(inner, f"{place}.{name}", each, depth + 1)
            case list():
                for number, inner in enumerate(tree):
                    where = f"{place}[{number}]"
                    if isinstance(inner, Mapping) and "for_each" in inner:
                        self._check_each(inner, where, each, depth)
                    else:
                        self.check(inner, where, each, depth + 1)
            case str():
                self._check_text(tree, place, each)
            case _:
                pass

    def _check_each(self, member: Mapping[str, Any], place: str, each: Mapping[str, Any] | None, depth: int) -> None:
        if each is not None:
            raise RejectedError("stands within another one", field=f"{place}.for_each", hint="Use one level.")
        if unknown := sorted(map(str, member.keys() - _FOR_EACH)):
            raise RejectedError(
                "is not an option.", field=f"{place}.{unknown[0]}", hint="Beside for_each: given, without, make."
            )
        name, made = member["for_each"], member.get("make")
        schema = self.properties.get(name, {}) if isinstance(name, str) else {}
        fields = schema.get("items", {}).get("properties")
        if schema.get("type") != "array" or fields is None:
            raise RejectedError(
                f"expected a parameter that is a list of objects, found {str(name)[:80]!a}",
                field=f"{place}.for_each",
                hint="Write the parameter's name, without ${ and }.",
            )
        if not isinstance(made, Mapping):
            raise RejectedError(
                "expected a group of options", field=f"{place}.make", hint="Write what each member becomes."
            )
        for word in ("given", "without"):
            if word in member and member[word] not in fields:
                raise RejectedError(
                    f"expected a field of {name}, found {str(member[word])[:80]!a}",
                    field=f"{place}.{word}",
                    hint=f"Known: {', '.join(sorted(fields))}.",
                )
        self.used.add(name)
        self.check(made, f"{place}.make", fields, depth + 1)

    def _check_text(self, text: str, place: str, each: Mapping[str, Any] | None) -> None:
        if "${" in _PLACEHOLDER.sub("", text):
            raise RejectedError("${ begins no placeholder", field=place, hint="Write ${name}, and close the brace.")
        for name in _list_placeholders(text):
            schema = self._find_schema(name, place, each)
            if schema is None:
                if name in _WRITTEN_BY_USERS:
                    _require_free(place, name)
                continue
            _require_free(place, name)
            if schema.get("type") == "array":
                inner = schema.get("items", {}).get("type")
                if inner == "object":
                    raise RejectedError(
                        f"{name} is a list of objects: values never become options",
                        field=place,
                        hint=f"Write a member `for_each: {name}` with `make:`.",
                    )
                if text != f"${{{name}}}":
                    raise RejectedError(
                        f"{name} is a list, and stands in a text", field=place, hint="Let it stand alone."
                    )

    def _find_schema(self, name: str, place: str, each: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """The schema of a parameter; None for what the flow and its nodes give."""
        root, dot, word = name.partition(".")
        if root in {"from", "to", "flow"} and dot:
            self._require_word(root, word, name, place)
            return None
        fields = self.properties if root != "each" else (each or {})
        wanted = word if root == "each" else name
        found = fields.get(wanted)
        if found is not None:
            if root != "each":
                self.used.add(name)
            return dict(found)
        offered = [*fields, *(f"{end}.{each}" for end in ("from", "to") for each in NODE_WORDS)]
        offered += [f"flow.{each}" for each in FLOW_WORDS]
        close = difflib.get_close_matches(wanted, offered, n=1)
        raise RejectedError(
            f"${{{name[:80]}}} has no parameter",
            field=place,
            hint=f"Did you mean ${{{close[0]}}}?" if close else "Add it to the template's parameters.",
        )

    def _require_word(self, root: str, word: str, name: str, place: str) -> None:
        known = FLOW_WORDS if root == "flow" else NODE_WORDS
        if word in known:
            if root != "flow":
                self.needs.add(name)
            return
        if root == "flow" and word.lower().startswith("executionid"):
            raise RejectedError(
                f"${{{name}}} changes with each execution, and a job is one for all of them",
                field=place,
                hint="Take it out: publications are told apart by their sequence.",
            )
        raise RejectedError(
            f"${{{name[:80]}}} is not known",
            field=place,
            hint=f"Known: {', '.join(f'{root}.{each}' for each in known)}.",
        )


def _require_free(place: str, name: str) -> None:
    options = tuple(re.split(r"[.\[]", place)[1:])
    bound = next((part for part in options if part in _NOT_FOR_PARAMETERS), None)
    if options in _PLACES_NOT_FOR_PARAMETERS:
        bound = options[-1]
    if bound is not None:
        raise RejectedError(
            f"the parameter {name} stands where the job's {bound} is written",
            field=place,
            hint="SQL, code, places and connections stand in the template itself: write it there.",
        )


@dataclass(slots=True)
class _Filling:
    values: Mapping[str, Any]
    facts: Mapping[str, Fact]
    origins: dict[str, str]

    def fill(self, tree: Any, place: str, each: tuple[str, Mapping[str, Any]] | None) -> Any:
        match tree:
            case Mapping():
                made = {name: self.fill(inner, f"{place}.{name}".lstrip("."), each) for name, inner in tree.items()}
                kept = {name: value for name, value in made.items() if value is not _ABSENT}
                return kept if kept or not tree else _ABSENT
            case list():
                return self._fill_list(tree, place, each)
            case str():
                return self._fill_text(tree, place, each)
            case _:
                return tree

    def _fill_list(self, tree: list[Any], place: str, each: tuple[str, Mapping[str, Any]] | None) -> Any:
        made: list[Any] = []
        for inner in tree:
            if not (isinstance(inner, Mapping) and "for_each" in inner):
                value = self.fill(inner, f"{place}[{len(made)}]", each)
                made += [] if value is _ABSENT else [value]
                continue
            for number, item in _members(inner, self.values):
                where = f"{place}[{len(made)}]"
                origin = f"parameters.{inner['for_each']}[{number}]"
                value = self.fill(inner["make"], where, (origin, item))
                if value is not _ABSENT:
                    self.origins[where] = origin
                    made.append(value)
        return made if made or not tree else _ABSENT

    def _fill_text(self, text: str, place: str, each: tuple[str, Mapping[str, Any]] | None) -> Any:
        names = _list_placeholders(text)
        found = {name: self._find(name, each) for name in names}
        if any(value is _ABSENT for value, _origin in found.values()):
            return _ABSENT
        if names:
            self.origins[place] = found[names[0]][1]
        if len(names) == 1 and text == f"${{{names[0]}}}":
            return found[names[0]][0]
        return _PLACEHOLDER.sub(lambda match: _show(found[match[1]][0]), text)

    def _find(self, name: str, each: tuple[str, Mapping[str, Any]] | None) -> tuple[Any, str]:
        """The value, and where people wrote it."""
        if name in self.facts:
            return self.facts[name]
        if name.startswith("each.") and each is not None:
            origin, item = each
            word = name.removeprefix("each.")
            return item.get(word, _ABSENT), f"{origin}.{word}"
        return self.values.get(name, _ABSENT), f"parameters.{name}"


def _members(member: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, item in enumerate(values.get(member["for_each"], ())):
        if "given" in member and member["given"] not in item:
            continue
        if "without" in member and member["without"] in item:
            continue
        yield number, item


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
