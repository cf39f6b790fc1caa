"""The rows of one batch behind the port of a source: one WorkUnit, whose frame is at hand."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.model.column_names import name_key
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.model.work_unit import WorkUnit, WorkUnitId
from gobblin_assets.rows.column_names import require_distinct_fields
from gobblin_assets.rows.hidden_columns import DEAD_LETTER_COLUMN, SHARE_COLUMN
from gobblin_assets.run.job_kind import UnitPlan
from gobblin_assets.sources.source_port import PlanSession, ReadPlan, SharedRows, SourceRequest, compare_columns
from gobblin_assets.sources.spark_stream.batch_decision import QueryBatch, is_published, remember_batch
from gobblin_assets.spark.errors import family_of_spark
from gobblin_assets.spec.job_spec import JobSpec

_FIELD = "foreachBatch"


@dataclass(frozen=True, slots=True)
class BatchSource:
    """``Source`` and its session in one. Nothing connects: the query holds what is needed to read the frame."""

    frame: DataFrame
    batch: QueryBatch
    new_id: Callable[[], uuid.UUID]

    def open_source(self, job: JobSpec) -> "BatchSource":
        """Itself, where a run asks for a connection."""
        del job
        return self

    @contextmanager
    def open_plan(
        self, spark: Callable[[], SparkSession], say: Callable[[str], None], requests: Sequence[SourceRequest] = ()
    ) -> Iterator[PlanSession]:
        del spark, say, requests
        yield self

    def discover(self, spark: Callable[[], SparkSession]) -> Sequence[str]:
        """Nothing: a query does not know which dataset it publishes."""
        del spark
        return ()

    def plan(self, request: SourceRequest) -> UnitPlan:
        """A batch that is published needs nothing. RejectedError for a batch, or for columns, that can't be taken."""
        batch, urn = self.batch, request.urn
        payload = ReadPlan(request.spec, BatchReader(self.frame, batch))
        if is_published(batch, request.state):
            return UnitPlan(
                urn=urn,
                partition=request.partition,
                mode=Mode.APPEND,
                replaces=False,
                is_snapshot=False,
                work_units=(),
                payload=payload,
                notes=(f"batch {batch.batch_id} is published already, and is skipped",),
                facts=request.state.source_facts,
                keys_are_shared=True,
            )
        columns = self._describe_columns(request)
        unit = WorkUnit(
            id=WorkUnitId(self.new_id()),
            dataset=urn,
            partition=request.partition,
            key=batch.key,
            number=0,
            interval=Interval(long_watermark(batch.batch_id), long_watermark(batch.batch_id + 1)),
        )
        return UnitPlan(
            urn=urn,
            partition=request.partition,
            mode=Mode.APPEND,
            replaces=False,
            is_snapshot=False,
            work_units=(unit,),
            payload=payload,
            columns=columns,
            notes=tuple(compare_columns(request, columns, urn, ())),
            facts=remember_batch(batch, request.state.source_facts),
            keys_are_shared=True,
        )

    def _describe_columns(self, request: SourceRequest) -> dict[str, str]:
        schema, label = self.frame.schema, f"dataset {request.urn!r}"
        require_distinct_fields(schema.jsonValue(), label=label, field=_FIELD)
        for name in schema.names:
            if name_key(name).startswith((DEAD_LETTER_COLUMN, SHARE_COLUMN)):
                raise RejectedError(
                    f"{label}: {name!r} is the name of a column that Gobblin hides in rows",
                    field=_FIELD,
                    hint="Rename it in the query.",
                )
        return {each.name: each.dataType.simpleString() for each in schema.fields}


@dataclass(frozen=True, slots=True)
class BatchReader:
    """``Reader`` of the batch's one WorkUnit."""

    frame: DataFrame
    batch: QueryBatch

    def read(self, spark: SparkSession, units: Sequence[WorkUnit]) -> DataFrame:
        del spark
        return self.frame if units else self.frame.limit(0)

    def read_together(self, spark: SparkSession, parts: Sequence[tuple[ReadPlan, Sequence[WorkUnit]]]) -> SharedRows:
        del spark, parts
        raise CorruptionError("a batch of a query is read by itself: its plan shares with none")

    def learn(self, error: Exception) -> None:
        """Nothing: each try reads in the same way."""

    def explain(self, error: Exception) -> Exception:
        return family_of_spark(error, action=f"read batch {self.batch.batch_id} of the query {self.batch.query_id}")
