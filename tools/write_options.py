"""``python tools/write_options.py > docs/OPTIONS.md``: every option of a job, from the models that read job files."""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from gobblin_assets.jobs.copy.copy_spec import CopySpec
from gobblin_assets.spec.job_spec import JobSpec

Schema = Mapping[str, Any]

_HEAD: Final = """# Options of a job: reference

For whoever writes a job file and looks up an option, its type or its default. A group of options has the heading under
which it is written in a job: `datasets.watermark` is the mapping `watermark` of a dataset. An option that a job does
not have is refused, with the likely spelling. [TABLES.md](TABLES.md) shows a job that grows, [COPIES.md](COPIES.md) one
that copies files. `python tools/write_options.py > docs/OPTIONS.md` writes this page from the models that read job
files.
"""
_JOBS: Final = (
    ("A job that reads rows", "", JobSpec, "Tables, topics and change logs: a job without `kind`."),
    ("A job of the kind distcp", "copies: ", CopySpec, "Copies of trees of files."),
)
_TYPES: Final = {
    "string": "text",
    "integer": "number",
    "number": "number",
    "boolean": "true or false",
    "object": "mapping",
    "array": "list",
    "null": "null",
}
_BOUNDS: Final = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤"}


class OptionsPage:
    """The tables of all groups of options. ``places``: the heading of each group, by the title of its model."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}
        self.definitions: Schema = {}

    def write_job(self, title: str, prefix: str, model: type[BaseModel], text: str) -> Iterator[str]:
        schema = model.model_json_schema()
        self.definitions = schema["$defs"]
        yield f"\n## {title}\n\n{text}\n"
        waiting: list[tuple[str, Schema]] = [("", schema)]
        for path, group in waiting:
            if path:
                said = _one_line(group.get("description", ""))
                yield f"\n### {self.places[group['title']]}\n" + (f"\n{said}\n" if said else "")
            yield "\n| option | value | default | what it is |\n|---|---|---|---|\n"
            for name, option in group["properties"].items():
                own = f"{path}.{name}" if path else name
                for kind, inner in self._list_groups(option):
                    if inner["title"] not in self.places:
                        self.places[inner["title"]] = f"{prefix}{own}{f' of the type {kind}' if kind else ''}"
                        waiting.append((own, inner))
                default = "*required*" if name in group.get("required", ()) else _write_default(name, option)
                value = self._write_type(option)
                yield f"| `{name}` | {value} | {default} | {_one_line(option.get('description', ''))} |\n"

    def _list_groups(self, option: Schema) -> Iterator[tuple[str, Schema]]:
        """The groups of options that an option's value may be, each with the word by which it is chosen, if any."""
        found = self._resolve(option)
        for each in _list_choices(found):
            yield from self._list_groups(each)
        if "items" in found:
            yield from self._list_groups(found["items"])
        if "properties" in found:
            yield found["properties"].get("type", {}).get("const", ""), found

    def _write_type(self, option: Schema) -> str:
        found = self._resolve(option)
        if choices := _list_choices(found):
            kinds = [self._write_type(each) for each in choices]
            return " or ".join(dict.fromkeys(each for each in kinds if each != "null"))
        if "enum" in found:
            return ", ".join(f"`{each}`" for each in found["enum"])
        if "const" in found:
            return f"`{found['const']}`"
        if "items" in found:
            return f"list of {self._write_type(found['items'])}"
        if "properties" in found:
            place = self.places[found["title"]]
            return f"[{place}](#{_slug(place)})"
        bounds = [f"{sign} {found[key]:,}" for key, sign in _BOUNDS.items() if key in found]
        return " ".join([_TYPES.get(found.get("type", ""), "value"), *bounds])

    def _resolve(self, option: Schema) -> Schema:
        reference = option.get("$ref", "")
        found: Schema = self.definitions[reference.rpartition("/")[2]] if reference else option
        return found


def _list_choices(found: Schema) -> list[Schema]:
    return [*found.get("anyOf", ()), *found.get("oneOf", ())]


def _write_default(name: str, option: Schema) -> str:
    default = option.get("default")
    if default in (None, [], {}) or isinstance(default, dict):
        return ""
    if name == "umask":
        return f'`"{default:03o}"`'
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _slug(heading: str) -> str:
    """The name by which GitHub links to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _one_line(text: str) -> str:
    """As a cell of a table has it."""
    return re.sub(r"``(.+?)``", r"`\1`", " ".join(text.split())).replace("|", "\\|")


def main() -> None:
    page = OptionsPage()
    sys.stdout.write(_HEAD + "".join(part for job in _JOBS for part in page.write_job(*job)))


if __name__ == "__main__":
    main()
