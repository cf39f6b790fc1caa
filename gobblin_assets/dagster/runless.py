"""Events of work that is no run of Dagster's: streams of the command line, and what finishes others' work."""

import time
from typing import Final

import dagster as dg

from gobblin_assets.dagster.instances import telling
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.metadata import build_evaluations, build_materialization
from gobblin_assets.dagster.reported_runs import report_checks
from gobblin_assets.dagster.source_observing import SourceObservations
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.run.run_values import DatasetReport

CHECKS_WAIT_S: Final = 600.0
"""A stream tells the checks of partitions this often, and not at each publication: each time is a run in Dagster."""

CHECKS_WAITING_MAX: Final = 1_000


class RunlessEvents:
    """Says to Dagster what a run without a Dagster run published. At least once, as everywhere.

    Dagster keeps one evaluation for each (check, partition, run), and all events without a run count as one run, so
    that it refuses the second one of a partition. So the checks of partitions wait, the latest of each, and are told
    together in a run that does nothing else: by the next publication after ``CHECKS_WAIT_S``, and by ``close``.
    RetryableError when Dagster does not take an event: the publication stays, and the next run tells of it.
    """

    def __init__(self, layout: JobLayout, instance: dg.DagsterInstance, *, by: str) -> None:
        self.layout = layout
        self._sources = SourceObservations(layout)
        self._instance = instance
        self._by = by
        self._waiting: dict[tuple[DatasetUrn, str | None], DatasetReport] = {}
        self._told_at_s = time.monotonic()

    def report_publication(self, report: DatasetReport) -> None:
        """One materialization for each role of a finished sequence, then its checks."""
        if not self.layout.has_dataset(report.urn):
            # It has left the job since its publication was sealed: there is no asset to tell of it.
            return
        for role in self.layout.roles:
            uri = report.uri if role is Role.DATA and report.uri else self.layout.uri_of(report.urn, role)
            event = build_materialization(self.layout.get_key(report.urn, role), report, role, uri=uri)
            self._send(event)
        for observation in self._sources.observe(report):
            self._send(observation)
        self._report_checks(report)
        if time.monotonic() - self._told_at_s > CHECKS_WAIT_S or len(self._waiting) >= CHECKS_WAITING_MAX:
            self.close()

    def report_unpublished(self, report: DatasetReport) -> None:
        """The checks of a partition without a publication."""
        if self.layout.has_dataset(report.urn):
            self._report_checks(report)

    def close(self) -> None:
        """Tell the checks that wait."""
        self._told_at_s = time.monotonic()
        if self._waiting:
            report_checks(self.layout, list(self._waiting.values()), self._instance, by=self._by)
            self._waiting.clear()

    def _report_checks(self, report: DatasetReport) -> None:
        if self.layout.partitions[report.urn] is not None:
            self._waiting[report.urn, report.partition.key] = report
            return
        for evaluation in build_evaluations(self.layout.get_key(report.urn), report):
            self._send(evaluation)

    def _send(self, event: dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation) -> None:
        with telling(event.asset_key):
            self._instance.report_runless_asset_event(event)
