"""Columns that came to a table in the midst of its change log, with what earlier rows have in them.

``ALTER TABLE … ADD COLUMN … DEFAULT`` changes no row: Postgres keeps one value, which all rows have that were there.
Their changes in the log know nothing of the column.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import CorruptionError

_FACT: Final = "joined_columns"
"""Under this name, the source keeps them with the dataset."""


@dataclass(frozen=True, slots=True)
class JoinedColumn:
    """``text``: the value of rows whose last change stands before ``lsn`` and ``seq`` of the copy; Spark casts it."""

    name: str
    copy: int
    lsn: int
    seq: int
    text: str


def write_joined(columns: Iterable[JoinedColumn]) -> Mapping[str, object]:
    """The fact."""
    return {_FACT: [[each.name, each.copy, each.lsn, each.seq, each.text] for each in columns]}


def parse_joined(facts: Mapping[str, object]) -> tuple[JoinedColumn, ...]:
    """What ``write_joined`` wrote among the facts of a dataset; nothing if it is not there."""
    found = facts.get(_FACT, [])
    try:
        if not isinstance(found, list):
            raise TypeError(type(found).__name__)
        return tuple(
            JoinedColumn(str(name), int(copy), int(lsn), int(seq), str(text)) for name, copy, lsn, seq, text in found
        )
    except (TypeError, ValueError) as error:
        raise CorruptionError("what is recorded of a table's new columns can't be read", fact=str(found)) from error
