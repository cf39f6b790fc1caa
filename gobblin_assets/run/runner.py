"""A run: take leases, recover, plan, pack, extract, decide, publish, clean up.

If one dataset fails, its failure is reported for this dataset, and the others go on. The run waits for busy datasets
only after the round of the free ones is over and its leases are given back, so that two runs never wait for each other.
When its turn comes, it plans anew: it does not read again what others published meanwhile, and publishes the rest. A
run whose turn never came reports that it did nothing.
"""

import math
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Final

from gobblin_assets.commit.destination import DestinationAwayError
from gobblin_assets.errors import ErrorFamily, GobblinError, RejectedError, make_storable
from gobblin_assets.model.partition import AssetPartition, find_common_keys
from gobblin_assets.model.state import DatasetId, DatasetOutcome, RunId, WorkingState
from gobblin_assets.model.urn import DatasetUrn, Role, parse_job_name
from gobblin_assets.run.announcements import announce_left_over
from gobblin_assets.run.job_kind import SessionLostError
from gobblin_assets.run.round import Round
from gobblin_assets.run.run_values import DatasetReport, RunPorts, RunReport, RunRequest
from gobblin_assets.run.slices import failure_of, partition_text
from gobblin_assets.run.streaming import Stream, WaitForStop
from gobblin_assets.state.datasets import AskedRun, NewRun, RunDatasetRecord
from gobblin_assets.state.leases import Holder, Lease, LeaseKeeper

_BUSY_POLL_S: Final = 1.0

WAITING_SAID_EVERY_S: Final = 60.0
"""A run that waits for its turn holds no lease. It says so this often, which also shows that it lives."""

_ERROR_TEXT_MAX: Final = 4_000


def run_request(request: RunRequest, ports: RunPorts) -> RunReport:
    """Run the selected partitions of the job's datasets, and report each.

    Raises an error family only for errors of the whole run before anything was begun (a destination that can't
    be written, a log that can't be reached); all other errors are in the report.
    """
    return _Run(request, ports).run(_Run.go_round_once)


def stream_request(request: RunRequest, ports: RunPorts, wait_for_stop: WaitForStop) -> RunReport:
    """Publish new records at the job's pace until ``wait_for_stop`` returns True: one run with many sequences.

    The report has each dataset's last outcome. Raises as ``run_request`` does.
    """
    return _Run(request, ports).run(lambda run, ids: run.stream(ids, wait_for_stop))


_Work = Callable[["_Run", Mapping[DatasetUrn, DatasetId]], list[DatasetReport]]


class _Run:
    def __init__(self, request: RunRequest, ports: RunPorts) -> None:
        self._request = request
        self._ports = ports
        self._stores = ports.stores
        self._job = parse_job_name(request.job.job)
        self._run_id = request.run_id or RunId(ports.clock.new_id())
        self._holder = Holder(owner_text(), self._run_id, request.dagster_run_id)
        self._reports: dict[tuple[DatasetUrn, AssetPartition], DatasetReport] = {}
        self._figures = {"rows": 0, "bytes": 0, "files": 0}

    def run(self, work: _Work) -> RunReport:
        self._require_known()
        begun = NewRun(
            *(self._run_id, self._job, self._holder.owner, self._request.dagster_run_id), asked=_describe(self._request)
        )
        self._stores.runs.begin(begun)
        try:
            away = self._bind_destination()
            ids = self._stores.datasets.register(self._job, sorted(self._request.selection))
            self._ports.events.begin(ids.values())
            recovered = [*self._announce_left_over()]
            recovered += work(self, ids) if away is None else self._stop_all(ids, away)
        except BaseException as error:
            self._end(WorkingState.CANCELLED if isinstance(error, KeyboardInterrupt) else WorkingState.FAILED, error)
            raise
        failed = [report for report in self._reports.values() if not report.is_good]
        state = WorkingState.FAILED if failed else WorkingState.COMMITTED
        self._end(state, None)
        self._ports.events.deliver()
        return RunReport(self._run_id, state, tuple(self._reports.values()), tuple(recovered))

    def _announce_left_over(self) -> Sequence[DatasetReport]:
        if not self._request.announces:
            return []
        return announce_left_over(self._stores.commits, self._job, self._ports.on_publication)

    def _require_known(self) -> None:
        for urn in self._request.selection:
            if urn not in self._ports.kind.urns:
                raise RejectedError(
                    f"the job {self._job} has no dataset {urn!r}",
                    field="selection",
                    hint="`gobblin-assets status` lists its datasets.",
                )

    def _bind_destination(self) -> DestinationAwayError | None:
        """Bind the destination. Returns the error if it is not mounted; every dataset then has this error."""
        try:
            self._ports.destination.bind()
        except DestinationAwayError as error:
            return error
        return None

    def _stop_all(self, ids: Mapping[DatasetUrn, DatasetId], error: GobblinError) -> list[DatasetReport]:
        """Report that nothing was done or recovered for any dataset."""
        self._ports.say(str(error))
        for urn, dataset_id in ids.items():
            self._keep([(dataset_id, failure_of(urn, partition, error)) for partition in self._request.selection[urn]])
        return []

    def go_round_once(self, ids: Mapping[DatasetUrn, DatasetId]) -> list[DatasetReport]:
        """Run each dataset once: first the free ones, then those that had to be waited for."""
        recovered: list[DatasetReport] = []
        waiting = dict(sorted(ids.items()))
        wait_until = self._ports.clock.monotonic() + self._decide_wait_s()
        say_at = -math.inf
        while waiting:
            keeper = self._make_keeper()
            leases = {lease.dataset_id: lease for lease in keeper.take(list(waiting.values()), self._holder)}
            taken = {urn: leases[i] for urn, i in waiting.items() if i in leases}
            if taken:
                recovered += self._round(keeper, taken)
                waiting = {urn: i for urn, i in waiting.items() if urn not in taken}
            elif self._ports.clock.monotonic() >= wait_until:
                self._skip_busy(waiting.items())
                break
            else:
                if self._ports.clock.monotonic() >= say_at:
                    self._say_waiting(waiting, wait_until - self._ports.clock.monotonic())
                    say_at = self._ports.clock.monotonic() + WAITING_SAID_EVERY_S
                self._ports.clock.sleep(_BUSY_POLL_S)
        return recovered

    def _decide_wait_s(self) -> float:
        """How long busy datasets are waited for. Without a bound the wait ends with their holder, at the latest."""
        if self._request.waits_for_turn:
            return math.inf
        return self._request.job.lease.wait_s if self._request.by_hand else 0.0

    def stream(self, ids: Mapping[DatasetUrn, DatasetId], wait_for_stop: WaitForStop) -> list[DatasetReport]:
        """Run all datasets repeatedly, under leases that are kept."""
        keeper = self._make_keeper()
        keeper.start()
        keep = self._keep_latest
        stream = Stream(self._request, self._ports, self._job, self._holder, keeper, keep, wait_for_stop, ids)
        try:
            recovered = stream.run()
        finally:
            keeper.stop()
        self._skip_busy(stream.list_never_held())
        return recovered

    def _make_keeper(self) -> LeaseKeeper:
        return LeaseKeeper(
            self._stores.leases,
            self._ports.clock,
            ttl_s=self._request.job.lease.ttl_s,
            say=self._ports.say,
        )

    def _round(self, keeper: LeaseKeeper, taken: dict[DatasetUrn, Lease]) -> list[DatasetReport]:
        keeper.start()
        one_round = Round(self._request, self._ports, self._job, self._run_id, keeper, self._keep)
        try:
            one_round.run(taken)
        except SessionLostError as error:
            self._fail_the_rest(taken, error)
        finally:
            keeper.stop()
        return one_round.recovered

    def _fail_the_rest(self, taken: Mapping[DatasetUrn, Lease], error: GobblinError) -> None:
        """Report datasets without a report as not reached."""
        for urn, lease in taken.items():
            for partition in self._request.selection[urn]:
                if (urn, partition) not in self._reports:
                    self._keep([(lease.dataset_id, failure_of(urn, partition, error))])

    def _keep(self, reports: Sequence[tuple[DatasetId, DatasetReport]]) -> None:
        for _dataset_id, report in reports:
            self._reports[report.urn, report.partition] = report
            publication = report.publication
            if publication is not None:
                self._figures["rows"] += publication.rows_by_role.get(Role.DATA, 0)
                self._figures["bytes"] += publication.file_bytes
                self._figures["files"] += publication.file_count
        self._stores.runs.record_dataset(self._run_id, *(_record_of(*each) for each in reports))

    def _keep_latest(self, reports: Sequence[tuple[DatasetId, DatasetReport]]) -> None:
        """As ``_keep``; a failure in an earlier window of a dataset no longer counts once a later window succeeded."""
        good = {report.urn for _dataset_id, report in reports if report.is_good}
        self._reports = {
            name: report for name, report in self._reports.items() if report.urn not in good or report.is_good
        }
        self._keep(reports)

    def _say_waiting(self, waiting: Mapping[DatasetUrn, DatasetId], left_s: float) -> None:
        """Of one dataset who holds it: there may be thousands."""
        urn, dataset_id = next(iter(waiting.items()))
        holder = self._stores.leases.find_holder(dataset_id).describe_holder()
        more = f", and {len(waiting) - 1} more are worked on" if len(waiting) > 1 else ""
        until = "for its turn" if math.isinf(left_s) else f"for at most {round(left_s, 1):g} s"
        self._ports.say(f"{urn} is being worked on by {holder}{more}; waiting {until}")

    def _skip_busy(self, waiting: Iterable[tuple[DatasetUrn, DatasetId]]) -> None:
        for urn, dataset_id in waiting:
            status = self._stores.leases.find_holder(dataset_id)
            text = f"{urn} is being worked on by {status.owner} (run {status.run_id}); skipped"
            if self._request.by_hand:
                # Others come again by themselves, and say a text once that stays the same.
                text = f"{urn} is being worked on by {status.describe_holder()}; skipped. Run it again after that."
            self._ports.say(text)
            busy = [
                DatasetReport(urn, partition, DatasetOutcome.SKIPPED, error=text, error_family=ErrorFamily.RETRYABLE)
                for partition in self._request.selection[urn]
            ]
            self._keep([(dataset_id, report) for report in busy])

    def _end(self, state: WorkingState, error: BaseException | None) -> None:
        figures = {**self._figures, "datasets": len(self._reports)}
        failed = [report.urn for report in self._reports.values() if not report.is_good]
        text = f"failed: {', '.join(dict.fromkeys(failed))}" if failed else None
        if error is not None:
            text = f"{type(error).__name__}: {error}"
        try:
            shown = None if text is None else make_storable(text)[:_ERROR_TEXT_MAX]
            self._stores.runs.end(self._run_id, state, error=shown, figures=figures)
        except Exception as second:  # noqa: BLE001  an end is no place to fail
            self._ports.say(f"the end of the run could not be recorded: {second}")


def _record_of(dataset_id: DatasetId, report: DatasetReport) -> RunDatasetRecord:
    return RunDatasetRecord(
        dataset_id=dataset_id,
        partition=partition_text(report.partition),
        outcome=report.outcome,
        sequence_id=None if report.publication is None else report.publication.sequence_id,
        error=None if report.error is None else report.error[:_ERROR_TEXT_MAX],
        figures=dict(report.figures),
        checks=() if report.publication is not None else tuple(asdict(check) for check in report.checks),
    )


def _describe(request: RunRequest) -> AskedRun | None:
    reported = request.reported_as
    if reported is None:
        return None
    asked, keys = tuple(sorted(request.selection)), find_common_keys(request.selection)
    return AskedRun(reported.by, reported.mode, asked, keys, reported.is_stream)


def owner_text() -> str:
    """The holder of a lease, for people: host and process."""
    return f"{socket.gethostname()}:{os.getpid()}"
