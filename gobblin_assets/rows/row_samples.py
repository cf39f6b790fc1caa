"""Samples of rows that failed a policy: their positions, their keys, and the columns that the policy looks at.

Values are masked unless ``quality.samples`` says otherwise, since samples go to events, logs and the commit log.

Rows that were set aside are shown from their files, without Spark.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.new_files import reading_parquet
from gobblin_assets.run.job_kind import Output
from gobblin_assets.spec.job_spec import DatasetSpec, RowPolicySpec

SAMPLES_MAX: Final = 3
COLUMNS_MAX: Final = 8
VALUE_LENGTH_MAX: Final = 100

FAILED_COLUMN: Final = "failed_policies"
"""Names the policies that a row failed; ``row_quality`` says where it is."""

_MASK: Final = "•••"


@dataclass(frozen=True, slots=True)
class RowFailures:
    """The rows of a task that failed a policy: their number, and up to three of them as texts."""

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


_BATCH_ROWS: Final = 64


@dataclass(frozen=True, slots=True)
class RowSampler:
    """A sampler that shows rows that were set aside, each with the policies that it failed.

    A value that can be pickled.

    ``types``: of the shown columns, as Spark writes them.
    """

    types: Mapping[str, str]
    with_values: bool

    @property
    def columns(self) -> Sequence[str]:
        """What is read of a row."""
        return [*self.types, FAILED_COLUMN]

    def show(self, batch: pa.RecordBatch, count: int) -> list[str]:
        """The first ``count`` rows at most. No text is longer than what the columns' names and bounds allow."""
        return [
            write_sample(
                {name: _show(row[name], kind, with_values=self.with_values) for name, kind in self.types.items()},
                row[FAILED_COLUMN],
            )
            for row in batch.slice(0, count).select(self.columns).to_pylist()
        ]


def open_sampler(spec: DatasetSpec, types: Mapping[str, str], directories: Collection[str]) -> RowSampler | None:
    """None where no row is shown.

    ``types``: of the columns of rows that are set aside, as Spark writes them; none: no row is. ``directories`` are not
    in the files.
    """
    if spec.quality.samples == "none" or not types:
        return None
    policies = [policy for policy in spec.quality.rows if policy.on_failure == "err_file"]
    names = choose_columns(spec, policies, [name for name in types if name not in directories])
    return RowSampler({name: types[name] for name in names}, spec.quality.samples == "values")


def sample_files(fs: FileSystem, directories: Sequence[Output], sampler: RowSampler | None) -> list[str]:
    """Some of the rows in files that were set aside. Files are read one by one."""
    samples: list[str] = []
    if sampler is None:
        return samples
    for path in _list_files(directories):
        samples += sampler.show(_read_head(fs, path, sampler.columns), SAMPLES_MAX - len(samples))
        if len(samples) >= SAMPLES_MAX:
            break
    return samples


def _read_head(fs: FileSystem, path: str, columns: Sequence[str]) -> pa.RecordBatch:
    with reading_parquet(fs, path) as file:
        return next(file.iter_batches(batch_size=_BATCH_ROWS, columns=columns))


def _list_files(directories: Sequence[Output]) -> Iterator[str]:
    """At most as many files as samples are needed: no file is without rows."""
    aside = (each for each in directories if each.role is Role.QUARANTINE)
    paths = [f"{each.path}/{file.name}" for each in aside for file in each.files[:SAMPLES_MAX]]
    yield from paths[:SAMPLES_MAX]


def _show(value: Any, type_text: str, *, with_values: bool) -> ShownValue:
    if value is None:
        return ShownValue(type_text, is_null=True)
    text = value.hex() if isinstance(value, bytes) else str(value)
    size = len(value) if unit_of(type_text) is not None else None
    return ShownValue(type_text, is_null=False, size=size, text=text[:VALUE_LENGTH_MAX] if with_values else None)
