"""Files in YAML that a person wrote: read within bounds, and their faults in one line, with the fix."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from gobblin_assets.errors import RejectedError
from gobblin_assets.spec.doubled_keys import refuse_doubled_nodes

FILE_BYTES_MAX: Final = 8 << 20
VALUES_MAX: Final = 300_000
"""Of a file, each as often as an alias repeats it: a few lines of aliases can stand for more than a machine holds."""
DEPTH_MAX: Final = 100
"""Groups of options within groups. YAML's own reader would use up the stack at some depth."""

_FIELD: Final = "job file"
_WINDOWS: Final = (b"\xff\xfe", b"\xfe\xff")
# The reader in C takes a quarter of the time; it is in all wheels of PyYAML, and not in each build of it.
_Reader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_FIXES: Final = (
    ("mapping values are not allowed", 'Write a value with ": " in it in quotes, and a space behind each dash.'),
    ("undefined alias", "Write a value that begins with * in quotes."),
    ("scanning an alias", "Write a value that begins with * in quotes."),
    ("scanning a quoted scalar", "Close the quotes."),
    ("flow sequence", "Close the bracket, and write commas between its values."),
    ("flow mapping", "Close the brace, and write commas between its options."),
    ("did not find expected key", "Indent the options of a group by the same number of spaces."),
    ("did not find expected '-' indicator", "Indent the options of a group by the same number of spaces."),
    ("a single document", "Write one job in a file, without ---."),
    ("constructor for the tag", "Write the value in quotes, or without its tag."),
    ("unhashable key", "Write a value that begins with a brace in quotes."),
)


def read_yaml_file(path: Path) -> object:
    """The plain values of a file with one document. RejectedError names the file, the line and the fix."""
    return read_yaml(_read_text(path), path)


def read_yaml(text: str, path: Path) -> object:
    """The plain values of a text of ``path``. RejectedError for no YAML, a key that is there twice, and too much."""
    try:
        _require_bounded(text, path)
        loader = _Values(text)
        try:
            document = loader.get_single_node()
            if document is None:
                return None
            refuse_doubled_nodes(document, path)
            found: object = loader.construct_document(document)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise _explain(error, text, path) from None
    return found


class _Values(_Reader):  # type: ignore[misc]  # its class is chosen when this loads
    """A reader of plain values, which says where one is that Python does not have, such as a 30th of February."""


def _construct_place(kind: str) -> None:
    construct = _Reader.yaml_constructors[f"tag:yaml.org,2002:{kind}"]

    def construct_or_refuse(loader: Any, node: yaml.Node) -> object:
        try:
            found: object = construct(loader, node)
        except ValueError as error:
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from None
        return found

    _Values.add_constructor(f"tag:yaml.org,2002:{kind}", construct_or_refuse)


for _kind in ("timestamp", "int", "float"):
    _construct_place(_kind)


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        said = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise RejectedError(
            f"{path} can't be read: {said}", field=_FIELD, hint="Correct the path, or make the file."
        ) from error
    if len(content) > FILE_BYTES_MAX:
        raise RejectedError(
            f"{path} has more than {FILE_BYTES_MAX >> 20} MiB, which no job file has",
            field=_FIELD,
            hint="Give the path of a job's YAML, or divide the job into several jobs.",
        )
    if content.startswith(_WINDOWS):
        raise RejectedError(f"{path} is a text in UTF-16", field=_FIELD, hint="Save the file as UTF-8.")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RejectedError(
            f"{path} is no text in UTF-8: byte {error.start} is 0x{content[error.start]:02x}",
            field=_FIELD,
            hint="Give the path of a job's YAML, and save it as UTF-8.",
        ) from None


def _require_bounded(text: str, path: Path) -> None:
    """RejectedError for more values than VALUES_MAX, deeper groups than DEPTH_MAX, and a value that holds itself.

    Events alone are looked at: what they stand for may be too much to be made.
    """
    counts: dict[str, int] = {}
    opened: list[tuple[str | None, int]] = []
    count = 0
    for event in _list_events(text):
        match event:
            case yaml.CollectionStartEvent():
                opened.append((event.anchor, count))
                count += 1
            case yaml.CollectionEndEvent():
                anchor, before = opened.pop()
                counts |= {} if anchor is None else {anchor: count - before}
            case yaml.ScalarEvent():
                counts |= {} if event.anchor is None else {event.anchor: 1}
                count += 1
            case yaml.AliasEvent():
                _refuse_itself(event, opened, path)
                count += counts.get(str(event.anchor), 0)
            case _:
                pass
        if len(opened) > DEPTH_MAX:
            said = f"line {event.start_mark.line + 1} of {path} has groups within groups, more than {DEPTH_MAX} deep"
            raise RejectedError(said, field=_FIELD, hint="Is it a job's YAML? Close its brackets.")
        if count > VALUES_MAX:
            said = f"{path} has more than {VALUES_MAX:,} values (what an alias repeats counts each time)"
            raise RejectedError(said, field=_FIELD, hint="Divide the job into several jobs, or write `defaults:` once.")


def _list_events(text: str) -> Iterator[Any]:
    # Any: their marks are there, which the types of PyYAML leave open.
    yield from yaml.parse(text, _Reader)


def _refuse_itself(event: Any, opened: list[tuple[str | None, int]], path: Path) -> None:
    if event.anchor in [anchor for anchor, _count in opened]:
        said = f"line {event.start_mark.line + 1} of {path} repeats the group that it is in, without end"
        raise RejectedError(said, field=_FIELD, hint=f"Write *{event.anchor} outside of &{event.anchor}.")


def _explain(error: yaml.YAMLError, text: str, path: Path) -> RejectedError:
    """In the words of YAML's reader, with a fix of ours."""
    if not isinstance(error, yaml.MarkedYAMLError):
        reason = getattr(error, "reason", None) or str(error)
        return RejectedError(f"{path} is no YAML: {reason}", field=_FIELD, hint="Save the file as plain text.")
    said = ": ".join(each for each in (error.context, error.problem) if each)
    mark = error.problem_mark or error.context_mark
    where = str(path) if mark is None else f"line {mark.line + 1} of {path}"
    fix = next((fix for part, fix in _FIXES if part in said), "Correct it.")
    if "start any token" in said and mark is not None:
        line = text.splitlines()[mark.line]
        fix = "Indent with spaces, not with tabs." if "\t" in line[: mark.column + 1] else "Write the value in quotes."
    return RejectedError(f"{where} is no YAML: {said}", field=_FIELD, hint=fix)
