"""A JDBC source under test, and planning requests with sensible defaults."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.jobs.ingest.arrow_worker import ArrowWorker
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import WHOLE, AssetPartition
from gobblin_assets.model.policy import CommitPolicy, UnitResult, decide_commit
from gobblin_assets.model.state import AttemptId, DatasetId, DatasetState, KeyId, KeyState
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.rows.schema_merge import parse_schema
from gobblin_assets.run.job_kind import UnitPlan, WorkOrder
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.jdbc_kind import JdbcSourceSpec
from gobblin_assets.sources.jdbc.source import JdbcSource
from gobblin_assets.sources.source_port import SourceRequest, TableDescription, read_plan_of
from gobblin_assets.spec.job_spec import DatasetSpec


def new_state(urn: str) -> DatasetState:
    return DatasetState(DatasetId(1), JobName("job"), DatasetUrn(urn), 0)


def request_for(
    data: Mapping[str, Any],
    state: DatasetState | None = None,
    *,
    partition: AssetPartition = WHOLE,
    mode: Mode = Mode.AUTO,
    by_hand: bool = True,
) -> SourceRequest:
    """``data`` is a dataset as a person writes it."""
    spec = DatasetSpec.model_validate(data)
    urn = spec.urn or spec.table or ""
    return SourceRequest(
        urn=DatasetUrn(urn),
        partition=partition,
        state=state or new_state(urn),
        mode=mode,
        by_hand=by_hand,
        spec=spec,
    )


def publish(state: DatasetState, plan: UnitPlan) -> DatasetState:
    """The state after all of ``plan`` was published, as the commit would leave it."""
    results = [UnitResult(unit, succeeded=True, attempt=None) for unit in plan.work_units]
    decision = decide_commit(CommitPolicy.FULL, results, replaces=plan.replaces)
    partition = plan.partition.key or ""
    moved = {
        (advance.key, partition): KeyState(KeyId(1), advance.key, partition, advance.high)
        for advance in decision.advances
        if advance.high is not None
    }
    return replace(
        state,
        version=state.version + 1,
        keys={**state.keys, **moved},
        published=state.published | {partition},
        source_columns=dict(plan.columns),
    )


class Bench:
    """One source with its Spark session: plans, reads, and refuses.

    ``folder``: rows are read without Spark, into files there, and Spark shows the files' content.
    """

    def __init__(
        self, spark: SparkSession, connection: JdbcConnection, *, read_timeout_s: int = 60, folder: Path | None = None
    ) -> None:
        self.spark = spark
        self.folder = folder
        reader = "jdbc" if folder is None else "arrow"
        spec = JdbcSourceSpec(connection="c", reader=reader, read_timeout_s=read_timeout_s)
        self.source = JdbcSource(connection, spec)
        self.reports: list[str] = []

    def run(self, request: SourceRequest, between: Callable[[], object] = lambda: None) -> tuple[UnitPlan, list[Any]]:
        """Plan, let ``between`` happen, read everything."""
        with self.source.open_plan(lambda: self.spark, self.reports.append) as session:
            plan = session.plan(request)
            between()
            return plan, collect(self.read(plan), plan)

    def plan(self, request: SourceRequest) -> UnitPlan:
        with self.source.open_plan(lambda: self.spark, self.reports.append) as session:
            return session.plan(request)

    def read(self, plan: UnitPlan, units: Sequence[WorkUnit] | None = None) -> DataFrame:
        """Call it while the session that made the plan is open."""
        wanted = plan.work_units if units is None else tuple(units)
        if self.folder is None:
            return read_plan_of(plan).reader.read(self.spark, wanted)
        attempt = AttemptId(SystemClock().new_id())
        directory = str(self.folder / str(attempt))
        order = WorkOrder(
            job=JobName("job"),
            dataset_id=DatasetId(1),
            plan=plan,
            units=wanted,
            attempt_id=attempt,
            directory=directory,
            started_at=SystemClock().now(),
            tag=str(attempt),
        )
        staged = ArrowWorker(PosixFileSystem()).do(order)
        assert staged.rows_read == staged.row_count(Role.DATA)
        schema = parse_schema(staged.file_schemas[Role.DATA])
        assert staged.columns == {field.name: field.dataType.simpleString() for field in schema.fields}
        files = [f"{output.path}/{file.name}" for output in staged.outputs for file in output.files]
        return self.spark.read.schema(schema).parquet(*files) if files else self.spark.createDataFrame([], schema)


def describe(bench: Bench, *datasets: Mapping[str, Any]) -> Sequence[TableDescription]:
    """What discovery finds out about their tables."""
    requests = [request_for(data) for data in datasets]
    return bench.source.describe(lambda: bench.spark, {each.urn: each.spec for each in requests})


def collect(frame: DataFrame, plan: UnitPlan) -> list[Any]:
    """The rows as tuples; an error is raised as the plan's reader explains it."""
    try:
        return sorted((tuple(row) for row in frame.collect()), key=repr)
    except Exception as error:
        raise read_plan_of(plan).reader.explain(error) from error


def column(rows: Sequence[tuple[Any, ...]], place: int = 0) -> list[Any]:
    """One column of the rows, sorted, repeats kept."""
    return sorted(row[place] for row in rows)
