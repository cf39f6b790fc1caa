"""Queries of Spark Structured Streaming as a kind of source: a query hands each of its batches over."""

from typing import Final

from gobblin_assets.sources.spark_stream.stream_spec import REFUSED, SparkStreamSpec, check_queries, check_query
from gobblin_assets.spec.source_kind import SourceKind

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
