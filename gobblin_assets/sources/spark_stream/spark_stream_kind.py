"""Queries of Spark Structured Streaming as a kind of source: a query hands each of its batches over.

The options of a job, and the rules among them, stand here too.
"""

from types import MappingProxyType
from typing import Final, Literal

from pydantic import Field

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.source_kind import SourceKind
from gobblin_assets.spec.source_spec import SourceSpec

_BY_QUERY: Final = "write it into the query"

REFUSED: Final = MappingProxyType(
    {
        "table": "the rows are those of the query, and the dataset's name is its urn",
        "extract": "a query is a log: each batch is appended",
        "watermark": "the positions of a query are the numbers of its batches",
        "primary_key": "rows are not compared with published ones",
        "columns": "use converters: [{select: [...]}], or " + _BY_QUERY,
        "casts": "use converters: [{cast: {...}}], or " + _BY_QUERY,
        "where": "use converters: [{where: ...}], or " + _BY_QUERY,
        "split": "the query's own partitions divide a batch into tasks",
    }
)
"""Options of a dataset that queries do not have, and what to do instead."""


class SparkStreamSpec(SourceSpec):
    """Queries of Spark Structured Streaming: each publishes one dataset by ``foreach_batch``."""

    type: Literal["spark_stream"]
    connection: str = Field("query", description="Nothing connects: leave it out.")


def check_queries(job: JobSpec) -> None:
    """RejectedError for an option of a source that is read over a connection."""
    for name, why in (
        ("connection", "the query hands its batches over, and nothing connects"),
        ("include", "the datasets of queries are those that the job lists"),
        ("exclude", "the datasets of queries are those that the job lists"),
    ):
        if name in job.source.model_fields_set:
            raise RejectedError(f"{why}; found {name}", field=f"source.{name}", hint="Take it out.")


def check_query(spec: DatasetSpec, where: str) -> None:
    """RejectedError for partitions that are no windows of ingestion."""
    kind = spec.partitions.kind
    if kind in (PartitionKind.STATIC, PartitionKind.DYNAMIC):
        raise RejectedError(
            f"expected windows of ingestion (hourly, daily, weekly or monthly), or none; found {kind.value}",
            field=f"{where}.partitions.kind",
            hint="Directories by what is in a row are made by writer.partition_by, time_column and event_time.",
        )


SPARK_STREAM: Final = SourceKind(
    name="spark_stream",
    noun="query",
    title="Spark Structured Streaming",
    spec=SparkStreamSpec,
    refused=REFUSED,
    connection=None,
    instead="The query publishes them itself: give its foreachBatch the function that "
    "gobblin_assets.foreach_batch(job, urn) returns (docs/PYTHON.md).",
    check_job=check_queries,
    check_dataset=check_query,
)
