"""Counts of published rows that did not pass an optional policy, by policy: taken in what was written, never by Spark.

Spark may repeat a stage, and what it observes counts such rows twice. Only complete files are read, and only the column
that names the policies. A file is left out if its footer says that no row has a name in this column.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet as pq

from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.new_files import reading_parquet
from gobblin_assets.rows.row_samples import FAILED_COLUMN
from gobblin_assets.run.job_kind import Output
from gobblin_assets.spec.job_spec import RowPolicySpec

_THREADS_MAX: Final = 8


def list_optional(policies: Sequence[RowPolicySpec]) -> frozenset[str]:
    """The names of the policies whose rows stay."""
    return frozenset(policy.name for policy in policies if policy.on_failure == "optional")


def count_in_rows(rows: pa.RecordBatch) -> Counter[str]:
    """By policy, the rows that name it."""
    counted = pc.value_counts(rows.column(FAILED_COLUMN).flatten())
    return Counter({each["values"]: each["counts"] for each in counted.to_pylist()})


def count_in_files(fs: FileSystem, outputs: Sequence[Output], names: Collection[str]) -> Mapping[str, int]:
    """By policy of ``names``, the rows of the data that did not pass it. RetryableError if a file can't be read."""
    if not names:
        return {}
    paths = [f"{each.path}/{file.name}" for each in outputs if each.role is Role.DATA for file in each.files]
    found: Counter[str] = Counter()
    with ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="policies") as pool:
        for counted in pool.map(lambda path: _count_in_file(fs, path), paths):
            found += counted
    return {name: found[name] for name in names}


def _count_in_file(fs: FileSystem, path: str) -> Counter[str]:
    found: Counter[str] = Counter()
    with reading_parquet(fs, path) as file:
        groups = [number for number in range(file.num_row_groups) if _may_name_policies(file.metadata, number)]
        if groups:
            for batch in file.iter_batches(row_groups=groups, columns=[FAILED_COLUMN]):
                found += count_in_rows(batch)
    return found


def _may_name_policies(metadata: pq.FileMetaData, number: int) -> bool:
    """An empty list counts as one value that is null."""
    group = metadata.row_group(number)
    for place in range(group.num_columns):
        column = group.column(place)
        if column.path_in_schema.split(".")[0] == FAILED_COLUMN:
            statistics = column.statistics
            return statistics is None or not statistics.has_null_count or statistics.null_count < column.num_values
    return True
