"""A run: take leases, recover, plan, pack, extract, decide, publish, clean up.

Each dataset goes its own way: what fails for one is reported for that one, and its siblings go on. Busy
datasets are waited for only after the round of those that were free is over and its leases are given back,
so that two runs never wait for each other.
"""

import os
import socket
from collections.abc import Mapping
from typing import Final

from gobblin_assets.commit.attempts import staging_root
from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.ingest.announcements import announce_left_over
from gobblin_assets.ingest.round import Round
from gobblin_assets.ingest.run_values import DatasetReport, RunPorts, RunReport, RunRequest
from gobblin_assets.ingest.slices import partition_text
from gobblin_assets.ingest.task import job_directory
from gobblin_assets.model.state import DatasetId, DatasetOutcome, JobState, RunId, WorkingState
from gobblin_assets.model.urn import DatasetUrn, parse_job_name
from gobblin_assets.state.datasets import RunDatasetRecord
from gobblin_assets.state.leases import Holder, Lease, LeaseKeeper

_BUSY_POLL_S: Final = 1.0
_ERROR_TEXT_MAX: Final = 4_000


def run_job(request: RunRequest, ports: RunPorts) -> RunReport:
    """Run the selected partitions of the job's datasets, and report each.

    Raises a family only for what concerns the whole run before anything was begun (a destination that can't
    be written, a log that can't be reached); all else is in the report.
    """
    return _Run(request, ports).run()


class _Run:
    def __init__(self, request: RunRequest, ports: RunPorts) -> None:
        self._request = request
        self._ports = ports
        self._stores = ports.stores
        self._job = parse_job_name(request.job.job)
        self._run_id = RunId(ports.clock.new_id())
        self._holder = Holder(owner_text(), self._run_id, request.dagster_run_id)
        self._reports: list[DatasetReport] = []

    def run(self) -> RunReport:
        self._require_known()
        self._probe_destination()
        started = JobState(
            self._run_id,
            self._job,
            WorkingState.RUNNING,
            self._ports.clock.now(),
            dagster_run_id=self._request.dagster_run_id,
        )
        ids = self._stores.datasets.register(self._job, sorted(self._request.selection))
        self._stores.runs.begin(started, owner=self._holder.owner)
        try:
            left_over = announce_left_over(self._stores.commits, self._job, self._ports.on_publication)
            recovered = [*left_over, *self._run_all(ids)]
        except BaseException as error:
            self._end(WorkingState.CANCELLED if isinstance(error, KeyboardInterrupt) else WorkingState.FAILED, error)
            raise
        failed = [report for report in self._reports if not report.outcome.is_good]
        state = WorkingState.FAILED if failed else WorkingState.COMMITTED
        self._end(state, None)
        return RunReport(self._run_id, state, tuple(self._reports), tuple(recovered))

    def _require_known(self) -> None:
        for urn in self._request.selection:
            if urn not in self._request.datasets:
                raise RejectedError(
                    f"the job {self._job} has no dataset {urn!r}",
                    field="selection",
                    hint="`gobblin-assets status` lists its datasets.",
                )

    def _probe_destination(self) -> None:
        directory = job_directory(self._ports.root, self._job)
        self._ports.fs.probe(staging_root(directory), directory)
        self._ports.fs.make_destination(self._ports.root)

    def _run_all(self, ids: Mapping[DatasetUrn, DatasetId]) -> list[DatasetReport]:
        recovered: list[DatasetReport] = []
        waiting = dict(sorted(ids.items()))
        wait_until = self._ports.clock.monotonic() + (self._request.job.lease.wait_s if self._request.by_hand else 0)
        while waiting:
            keeper = LeaseKeeper(
                self._stores.leases,
                self._ports.clock,
                ttl_s=self._request.job.lease.ttl_s,
                report=self._ports.report,
            )
            leases = {lease.dataset_id: lease for lease in keeper.take(list(waiting.values()), self._holder)}
            taken = {urn: leases[i] for urn, i in waiting.items() if i in leases}
            if taken:
                recovered += self._round(keeper, taken)
                waiting = {urn: i for urn, i in waiting.items() if urn not in taken}
            elif self._ports.clock.monotonic() >= wait_until:
                self._skip_busy(waiting)
                break
            else:
                self._ports.clock.sleep(_BUSY_POLL_S)
        return recovered

    def _round(self, keeper: LeaseKeeper, taken: dict[DatasetUrn, Lease]) -> list[DatasetReport]:
        keeper.start()
        try:
            done = Round(self._request, self._ports, self._job, self._run_id, keeper, self._keep).run(taken)
        finally:
            keeper.stop()
        return done

    def _keep(self, dataset_id: DatasetId, report: DatasetReport) -> None:
        self._reports.append(report)
        publication = report.publication
        self._stores.runs.record_dataset(
            self._run_id,
            RunDatasetRecord(
                dataset_id=dataset_id,
                partition=partition_text(report.partition),
                outcome=report.outcome,
                sequence_id=None if publication is None else publication.sequence_id,
                error=None if report.error is None else report.error[:_ERROR_TEXT_MAX],
                figures=dict(report.figures),
            ),
        )

    def _skip_busy(self, waiting: dict[DatasetUrn, DatasetId]) -> None:
        for urn, dataset_id in waiting.items():
            status = self._stores.leases.get_status(dataset_id)
            text = f"{urn} is being worked on by {status.owner} (run {status.run_id}); skipped"
            self._ports.report(text)
            for partition in self._request.selection[urn]:
                self._keep(dataset_id, DatasetReport(urn, partition, DatasetOutcome.SKIPPED, error=text))

    def _end(self, state: WorkingState, error: BaseException | None) -> None:
        publications = [report.publication for report in self._reports if report.publication is not None]
        figures = {
            "rows": sum(p.row_count for p in publications),
            "bytes": sum(p.file_bytes for p in publications),
            "files": sum(p.file_count for p in publications),
            "datasets": len(self._reports),
        }
        failed = [report.urn for report in self._reports if not report.outcome.is_good]
        text = f"failed: {', '.join(dict.fromkeys(failed))}" if failed else None
        if error is not None:
            text = f"{type(error).__name__}: {error}"
        try:
            shown = None if text is None else text[:_ERROR_TEXT_MAX]
            self._stores.runs.end(self._run_id, state, error=shown, figures=figures)
        except GobblinError as second:
            self._ports.report(f"the end of the run could not be recorded: {second}")


def owner_text() -> str:
    """Who holds a lease, for people: host and process."""
    return f"{socket.gethostname()}:{os.getpid()}"
