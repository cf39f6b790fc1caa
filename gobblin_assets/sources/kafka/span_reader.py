"""Spans of a topic's partitions, read by Spark for several lanes of a sink at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.rows.columns import named
from gobblin_assets.sources.kafka.epoch_markers import EPOCH_HEADER
from gobblin_assets.sources.kafka.topic_reader import TopicReader
from gobblin_assets.sources.source_port import ReadPlan, SharedRows


@dataclass(frozen=True, slots=True)
class SpanReader:
    """``Reader`` of the plans of one topic's lanes. ``shares``: whose the records of each partition are."""

    topic: TopicReader
    shares: Mapping[int, str]

    def read(self, spark: SparkSession, units: Sequence[WorkUnit]) -> DataFrame:
        return self.topic.read(spark, units)

    def read_together(self, spark: SparkSession, parts: Sequence[tuple[ReadPlan, Sequence[WorkUnit]]]) -> SharedRows:
        units = [unit for _plan, some in parts for unit in some]
        return SharedRows(self.topic.read(spark, units, share=self._share()), None)

    def learn(self, error: Exception) -> None:
        self.topic.learn(error)

    def explain(self, error: Exception) -> Exception:
        return self.topic.explain(error)

    def _share(self) -> Column:
        pairs = chain.from_iterable((f.lit(number), f.lit(name)) for number, name in self.shares.items())
        return f.create_map(*pairs)[named("partition")]


def without_markers(records: DataFrame) -> DataFrame:
    """The records that end no epoch."""
    is_marker = f.exists(named("headers"), lambda header: header["key"] == EPOCH_HEADER)
    return records.where(~f.coalesce(is_marker, f.lit(False)))
