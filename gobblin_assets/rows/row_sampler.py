"""Rows that were set aside, shown from their files, without Spark."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyarrow import ArrowException
from pyarrow import parquet as pq

from gobblin_assets.errors import RetryableError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.row_samples import (
    FAILED_COLUMN,
    SAMPLES_MAX,
    VALUE_LENGTH_MAX,
    ShownValue,
    choose_columns,
    unit_of,
    write_sample,
)
from gobblin_assets.run.job_kind import Output
from gobblin_assets.spec.job_spec import DatasetSpec

_BATCH_ROWS: Final = 64


@dataclass(frozen=True, slots=True)
class RowSampler:
    """Shows rows that were set aside, each with the policies that it failed. A value that can be pickled.

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
    try:
        with fs.open_input(path) as stream, pq.ParquetFile(stream) as file:
            return next(file.iter_batches(batch_size=_BATCH_ROWS, columns=columns))
    except (ArrowException, OSError) as error:
        raise RetryableError(f"{path} is no readable Parquet file: {error}", path=path) from error


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
