"""Columns by name, without Spark: found as Spark finds them, or refused with the names that there are."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.column_names import find_alike, name_key

COLUMNS_SHOWN_MAX: Final = 40


def find_column(names: Iterable[str], wanted: str) -> str | None:
    """The name among ``names`` that ``wanted`` means: itself, else the only one that Spark takes for the same name."""
    known = list(names)
    if wanted in known:
        return wanted
    alike = [name for name in known if name_key(name) == name_key(wanted)]
    return alike[0] if len(alike) == 1 else None


def require_column(frame_columns: Sequence[str], wanted: str, *, label: str, field: str) -> str:
    """``find_column``, or a RejectedError that begins with ``label`` and lists what there is."""
    found = find_column(frame_columns, wanted)
    if found is None:
        close = difflib.get_close_matches(wanted, frame_columns, n=1)
        guess = f"Did you mean {close[0]!r}? " if close else ""
        raise RejectedError(
            f"{label}: there is no column {wanted!r}", field=field, hint=f"{guess}Available: {show(frame_columns)}."
        )
    return found


def require_distinct_columns(names: Sequence[str], *, label: str, field: str) -> None:
    """Refuse names that Spark can't tell apart: it ignores case, and Parquet files can't hold both."""
    alike = find_alike(names)
    if alike is not None:
        raise RejectedError(
            f"{label}: two columns would be called {alike[1]!r} (the other is {alike[0]!r})",
            field=field,
            hint=f"Rename or drop one of them. The columns would be: {show(names)}.",
        )


def require_distinct_fields(schema: Mapping[str, Any], *, label: str, field: str) -> None:
    """``require_distinct_columns`` for the columns and for the fields of every struct below them.

    ``schema``: Spark's JSON of it. Spark writes a struct with fields that it can't tell apart, and then can't read the
    file.
    """
    require_distinct_columns([each["name"] for each in schema["fields"]], label=label, field=field)
    for column in schema["fields"]:
        _require_distinct_below(column["type"], f"{label}, column {column['name']!r}", field)


def _require_distinct_below(data_type: Any, label: str, field: str) -> None:
    match data_type:
        case {"type": "struct"}:
            require_distinct_fields(data_type, label=label, field=field)
        case {"type": "array", "elementType": element}:
            _require_distinct_below(element, label, field)
        case {"type": "map", "keyType": key, "valueType": value}:
            _require_distinct_below(key, label, field)
            _require_distinct_below(value, label, field)
        case _:
            pass


def show(names: Sequence[str]) -> str:
    """A list of names that stays readable."""
    shown = ", ".join(names[:COLUMNS_SHOWN_MAX])
    return shown if len(names) <= COLUMNS_SHOWN_MAX else f"{shown}, and {len(names) - COLUMNS_SHOWN_MAX} more"
