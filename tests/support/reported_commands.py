"""Runs as the command line makes them, over the numbers of ``dagster_world``, and what Dagster is told of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
from sqlalchemy import Engine, text

from gobblin_assets.dagster.factory import build_gobblin_layout, build_reported_job
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.metadata import SEQUENCE_ID
from gobblin_assets.dagster.reported_runs import ReportedJob
from gobblin_assets.dagster.reporter import report_job
from gobblin_assets.dagster.resources import FileSystemsResource
from gobblin_assets.jobs.programs import RunResources
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.run_values import DatasetReport, ReportedAs, RunReport, RunRequest
from gobblin_assets.run.runner import run_request
from gobblin_assets.run.stores import Stores
from tests.support.dagster_world import ArrowResource, NumbersResource, describe_job, write_numbers


def _unheard(_report: DatasetReport) -> None:
    pass


@dataclass
class ToldCommands:
    """One job's commands over ``folder``, whose log is in ``engine``."""

    folder: Path
    engine: Engine
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stores(self) -> Stores:
        return open_stores(self.engine)

    @property
    def layout(self) -> JobLayout:
        return build_gobblin_layout(describe_job(self.folder, **self.options))

    @property
    def job(self) -> ReportedJob:
        return build_reported_job(self.layout)

    def write(self, urn: str, partition: str | None, numbers: Sequence[object]) -> None:
        write_numbers(self.folder / "source", urn, partition, numbers)

    def run(
        self,
        *asked: tuple[DatasetUrn, str | None],
        reported: ReportedAs | None = ReportedAs("gobblin-assets run", "auto"),  # noqa: B008  a frozen value
        on_publication: Callable[[DatasetReport], None] = _unheard,
        dagster_run_id: str | None = None,
    ) -> RunReport:
        layout = self.layout
        selection: dict[DatasetUrn, tuple[AssetPartition, ...]] = {}
        for urn, key in asked:
            selection[urn] = (*selection.get(urn, ()), AssetPartition(key))
        request = RunRequest(
            layout.program.rules_of(layout.job),
            selection,
            mode=Mode.APPEND,
            by_hand=False,
            reported_as=reported,
            dagster_run_id=dagster_run_id,
        )
        source = str(self.folder / "source")
        resources = RunResources(FileSystemsResource().open, NumbersResource(folder=source))
        opened = layout.program.open_run(
            *(layout.job, layout.datasets, lambda: ArrowResource(folder=source), self.stores, _unsaid, on_publication),
            resources,
        )
        with opened as ports:
            return run_request(request, ports)

    def report(self, instance: dg.DagsterInstance) -> bool:
        return report_job(self.job, self.stores, instance, until_s=None)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(query))]

    def execute(self, statement: str) -> None:
        with self.engine.begin() as connection:
            connection.execute(text(statement))


def _unsaid(_line: str) -> None:
    pass


def reported_sequences(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[str]:
    """The sequences of an asset's materializations, oldest first."""
    records = instance.fetch_materializations(dg.AssetRecordsFilter(key), limit=100, ascending=True).records
    events = [each.asset_materialization for each in records]
    return [str(event.metadata[SEQUENCE_ID].value) for event in events if event is not None]
