"""Samples of rows that failed a policy: their positions, their keys, and the columns that the policy looks at.

Values are masked unless ``quality.samples`` says otherwise, since samples go to events, logs and the commit log.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gobblin_assets.spec.job_spec import DatasetSpec, RowPolicySpec

SAMPLES_MAX: Final = 3
COLUMNS_MAX: Final = 8
VALUE_LENGTH_MAX: Final = 100

FAILED_COLUMN: Final = "failed_policies"
"""Names the policies that a row failed; ``row_quality`` says where it is."""

_MASK: Final = "•••"


@dataclass(frozen=True, slots=True)
class RowFailures:
    """How many rows of a task failed a policy, and up to three of them as texts."""

    count: int
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownValue:
    """A value of a sample: its type as Spark writes it; ``size`` in ``unit``, where the type has sizes.

    ``text`` is None where values are masked: then the text was never taken out of the row.
    """

    type_text: str
    is_null: bool
    size: int | None = None
    text: str | None = None


def choose_columns(spec: DatasetSpec, policies: Iterable[RowPolicySpec], names: Sequence[str]) -> list[str]:
    """Primary key, watermark, then the columns of the checks: those of ``names``, in that order, each once."""
    watermark = spec.watermark
    wanted = [*spec.primary_key]
    if watermark is not None:
        wanted += [watermark.column, *([] if watermark.key_column is None else [watermark.key_column])]
    checks = [policy.check for policy in policies]
    spoken_of = [name for name in names if any(_speaks_of(check, name) for check in checks)]
    known = set(names)
    return list(dict.fromkeys([*(name for name in wanted if name in known), *spoken_of]))[:COLUMNS_MAX]


def unit_of(type_text: str) -> str | None:
    """The unit in which values of the type have a size; None: they have no size."""
    if type_text == "string":
        return "characters"
    if type_text == "binary":
        return "bytes"
    return "elements" if type_text.startswith(("array<", "map<")) else None


def write_sample(values: Mapping[str, ShownValue], failed: Sequence[str] = ()) -> str:
    """``id: ••• (bigint), name: ••• (string, 12 characters)``; before it the policies that the row failed, if given."""
    shown = ", ".join(f"{name}: {_write_value(value)}" for name, value in values.items())
    return f"{'+'.join(failed)}: {shown}" if failed else shown


def _write_value(value: ShownValue) -> str:
    if value.is_null:
        return "NULL"
    if value.text is not None:
        return repr(value.text) if value.type_text == "string" else value.text
    unit = unit_of(value.type_text)
    kind = value.type_text.partition("<")[0]
    return f"{_MASK} ({kind}{'' if unit is None else f', {value.size} {unit}'})"


def _speaks_of(check: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", check, re.IGNORECASE) is not None
