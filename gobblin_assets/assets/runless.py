"""Events of work that is no run of Dagster's: streams of the command line, and what finishes others' work."""

from dataclasses import dataclass

import dagster as dg

from gobblin_assets.assets.instances import telling
from gobblin_assets.assets.layout import JobLayout
from gobblin_assets.assets.metadata import build_evaluations, build_materialization
from gobblin_assets.ingest.run_values import DatasetReport, RunReport
from gobblin_assets.model.urn import Role


@dataclass(frozen=True, slots=True)
class RunlessEvents:
    """Says to Dagster what a run without a Dagster run published. At least once, as everywhere.

    Checks are told only of datasets without partitions: Dagster keeps one evaluation for each (check, partition,
    run), and all events without a run count as one run, so that it refuses the second one of a partition.
    RetryableError when Dagster does not take an event: the publication stays, and the next run tells of it.
    """

    layout: JobLayout
    instance: dg.DagsterInstance

    def report_publication(self, report: DatasetReport) -> None:
        """One materialization for each role of a finished sequence, then its checks."""
        if not self.layout.has_dataset(report.urn):
            # It has left the job since its publication was sealed: there is no asset to tell of it.
            return
        for role in self.layout.roles:
            uri = report.uri if role is Role.DATA and report.uri else self.layout.uri_of(report.urn, role)
            event = build_materialization(self.layout.get_key(report.urn, role), report, role, uri=uri)
            self._send(event)
        self._report_checks(report)

    def report_unpublished(self, report: RunReport) -> None:
        """The checks of what was not published."""
        for dataset in report.datasets:
            if dataset.publication is None:
                self._report_checks(dataset)

    def _report_checks(self, report: DatasetReport) -> None:
        if self.layout.partitions[report.urn] is not None:
            return
        for evaluation in build_evaluations(self.layout.get_key(report.urn), report):
            self._send(evaluation)

    def _send(self, event: dg.AssetMaterialization | dg.AssetCheckEvaluation) -> None:
        with telling(event.asset_key):
            self.instance.report_runless_asset_event(event)
