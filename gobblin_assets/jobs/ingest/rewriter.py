"""Compaction on Spark: published files are read as they were written, and rewritten as few large files.

Files with the same directory columns are one read and one write: Spark makes the same directories from the same values.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.errors import CorruptionError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.rows.columns import named
from gobblin_assets.rows.dataset_reader import read_by_directories
from gobblin_assets.rows.parquet_writer import collect_output, refuse_blind_writers, write_parquet
from gobblin_assets.run.job_kind import Output, RewriteOrder
from gobblin_assets.spark.cancellation import describe_interruption, find_session_identity, open_cancellation
from gobblin_assets.spark.errors import spark_families
from gobblin_assets.spec.job_spec import DatasetSpec

_ROWS_HASHED_AS: Final = "decimal(38,0)"


class SparkRewriter:
    """``Rewriter`` over one session."""

    def __init__(self, spark: SparkSession, fs: FileSystem, datasets: Mapping[DatasetUrn, DatasetSpec]) -> None:
        self._spark = spark
        self._datasets = datasets
        self._fs = fs
        self._cancellation = open_cancellation(spark)

    def describe_interruption(self, tag: str) -> Mapping[str, object] | None:
        return describe_interruption(find_session_identity(self._spark), tag)

    def rewrite(self, order: RewriteOrder) -> Sequence[Output]:
        with spark_families(f"compact {order.urn}"):
            return self._rewrite(order)

    def _rewrite(self, order: RewriteOrder) -> list[Output]:
        self._fs.make_directories(order.directory)
        found: list[Output] = []
        parts = read_by_directories(self._spark, order.segments, job=order.job, urn=order.urn, role=order.role)
        rows = max(1, sum(segment.row_count for segment in order.segments))
        row_bytes = sum(segment.file_bytes for segment in order.segments) / rows
        rows_max = max(1, int(order.file_bytes / max(row_bytes, 1 / rows)))
        for number, (columns, frame, file_bytes) in enumerate(parts):
            directory = f"{order.directory}/{number}"
            with self._cancellation.tagged(order.tag):
                self._write(
                    frame, columns, directory, order, file_count=-(-file_bytes // order.file_bytes), rows=rows_max
                )
                written = self._spark.read.schema(frame.schema).parquet(self._fs.to_uri(directory))
                self._require_equal(frame, written.select(*map(named, frame.columns)), order, directory)
            found += [
                Output(order.role, each.path, each.partition_path, each.files)
                for each in collect_output(self._fs, directory)
            ]
        return found

    def _write(
        self,
        frame: DataFrame,
        columns: Sequence[str],
        directory: str,
        order: RewriteOrder,
        *,
        file_count: int,
        rows: int,
    ) -> None:
        # One task gets all rows of a directory; without directory columns, neighbours stay together.
        gathered = (
            frame.repartition(*(named(name) for name in columns)) if columns else frame.coalesce(max(1, file_count))
        )
        write_parquet(
            gathered,
            self._fs.to_uri(directory),
            partition_columns=columns,
            file_rows_max=rows,
            compression=self._datasets[order.urn].writer.compression,
        )

    def _require_equal(self, before: DataFrame, after: DataFrame, order: RewriteOrder, directory: str) -> None:
        """Require the same rows as a multiset: by their number, and by the sum of their hashes, in any order."""
        read, written = _sum_up(before), _sum_up(after)
        if read == written:
            return
        refuse_blind_writers(self._spark, self._fs.to_uri(directory))
        raise CorruptionError(
            f"{order.urn}: the rows written are not the rows read ({order.role}): {written}, expected {read}",
            hint="Nothing was replaced. Report this, with the dataset's columns.",
            urn=order.urn,
        )


def _sum_up(frame: DataFrame) -> tuple[object, ...]:
    hashed = f.xxhash64(*(_hashable(named(field.name), field.dataType) for field in frame.schema.fields))
    (row,) = frame.agg(f.count(f.lit(1)), f.sum(hashed.cast(_ROWS_HASHED_AS))).collect()
    return tuple(row)


def _hashable(column: Column, kind: t.DataType) -> Column:
    """Maps and variants have no hash: their text is hashed instead."""
    text = kind.simpleString()
    return f.to_json(f.struct(column)) if "map<" in text or "variant" in text else column
