"""Maintenance of the log, as runs of their own: recovery, resuming, abandoning, reconciling, compaction.

Each has a row of history with the datasets that it touched. So a later reader sees which run finished a sequence. And a
process that dies in the middle is found by its lease and by its run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from gobblin_assets.commit.driver import Driver
from gobblin_assets.commit.examination import Examination, LogFinding
from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.commit.reconciliation import Reconciled, Reconciliation, Way
from gobblin_assets.commit.recovery import UNBOUNDED, Recovered, SweepBounds, SweepReport, recover_dataset
from gobblin_assets.commit.repair import Keep, NamedRepair
from gobblin_assets.commit.sequence import Publication, SequenceRecord
from gobblin_assets.errors import ConflictError, GobblinError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.model.state import DatasetId, DatasetOutcome, RunId, SequenceId, WorkingState
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.announcements import announce, announce_left_over, report_of
from gobblin_assets.run.compaction import Compaction
from gobblin_assets.run.run_values import DatasetReport
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.datasets import NewRun, RunDatasetRecord, RunStore
from gobblin_assets.state.leases import Lease

Send = Callable[[DatasetReport], None]


def examination_of(stores: Stores, job: JobName, fs: FileSystem, root: str) -> Examination:
    """The search for signs that the log is older than the storage. ``fs`` and ``root``: the job's destination."""
    return Examination(stores.commits, stores.datasets, stores.published, fs, root, job)


class _Record:
    """The results of the run for each dataset partition."""

    def __init__(self, runs: RunStore, run_id: RunId) -> None:
        self._runs = runs
        self._run_id = run_id
        self.failed = False
        self.figures = {"rows": 0, "files": 0}

    def keep(self, publication: Publication) -> None:
        outcome = DatasetOutcome.COMMITTED if publication.complete else DatasetOutcome.PARTIAL
        self._write(publication, outcome)
        self.figures["rows"] += publication.rows_by_role.get(Role.DATA, 0)
        self.figures["files"] += publication.file_count

    def fail(self, sequence: SequenceRecord, error: GobblinError) -> None:
        self.failed = True
        self._write(sequence, DatasetOutcome.FAILED, str(error))

    def give_up(self, sequence: SequenceRecord, reason: str) -> None:
        self._write(sequence, DatasetOutcome.SKIPPED, f"given up: {reason}")

    def refuse(self, dataset_id: DatasetId | None, error: GobblinError) -> None:
        """A whole dataset failed; None: it has no row yet."""
        self.failed = True
        if dataset_id is not None:
            record = RunDatasetRecord(dataset_id, "", DatasetOutcome.FAILED, error=str(error))
            self._runs.record_dataset(self._run_id, record)

    def _write(self, of: Publication | SequenceRecord, outcome: DatasetOutcome, error: str | None = None) -> None:
        record = RunDatasetRecord(of.dataset_id, of.partition, outcome, of.sequence_id, error)
        self._runs.record_dataset(self._run_id, record)


@dataclass(frozen=True, slots=True)
class HeldDataset:
    """A dataset that is leased as a whole, with nothing open. ``require`` raises once the lease is lost."""

    urn: DatasetUrn
    lease: Lease
    run_id: RunId
    driver: Driver
    require: Callable[[Lease], None]


@dataclass(frozen=True, slots=True)
class MaintenanceRun:
    """Operations of one run on one job's sequences, in the name of ``operations.holder``.

    ``send`` reports to the orchestrator what was finished; without it that is left to the job's next run or sensor,
    which find it unannounced.
    """

    operations: LogOperations
    stores: Stores
    job: JobName
    send: Send | None = None

    def recover(
        self, bounds: SweepBounds = UNBOUNDED, *, seen: Callable[[Publication], None] = lambda _publication: None
    ) -> SweepReport:
        """Announce what was finished and never announced, then complete what is due; ``seen`` is shown each."""
        with self._recorded("recovery") as record:
            if self.send is not None:
                announce_left_over(self.stores.commits, self.job, self.send)

            def finished(publication: Publication) -> None:
                record.keep(publication)
                self._announce(publication)
                seen(publication)

            report = self.operations.recover_due([self.job], on_publication=finished, bounds=bounds)
            for failure in report.failures:
                record.fail(failure.sequence, failure.error)
            return report

    def resume(self, sequence_id: SequenceId) -> Recovered:
        """Try a BLOCKED sequence again, now."""
        with self._recorded("resume") as record:
            try:
                recovered = self.operations.resume(sequence_id)
            except GobblinError as error:
                record.fail(self.stores.commits.get(sequence_id), error)
                raise
            for publication in recovered.published:
                record.keep(publication)
                self._announce(publication)
            return recovered

    def abandon(self, sequence_id: SequenceId, *, reason: str) -> None:
        """Give a sealed sequence up, for a reason that stays in the log."""
        with self._recorded("abandon") as record:
            sequence = self.stores.commits.get(sequence_id)
            try:
                self.operations.abandon(sequence_id, reason=reason)
            except GobblinError as error:
                record.fail(sequence, error)
                raise
            record.give_up(sequence, reason)

    def repair(self, sequence_id: SequenceId, keep: Keep, *, reason: str) -> NamedRepair:
        """Give a sealed sequence at given names up, also where its names can't be taken back."""
        with self._recorded("repair") as record:
            sequence = self.stores.commits.get(sequence_id)
            try:
                repair = self.operations.repair(sequence_id, keep, reason=reason)
            except GobblinError as error:
                record.fail(sequence, error)
                raise
            record.give_up(sequence, reason)
            return repair

    def reconcile(
        self, reconciliation: Reconciliation, findings: Sequence[LogFinding], way: Way
    ) -> tuple[Sequence[Reconciled], Mapping[DatasetUrn, GobblinError]]:
        """Bring the log together with storage, dataset by dataset; returns what was done, and what could not be."""
        done: list[Reconciled] = []
        failures: dict[DatasetUrn, GobblinError] = {}
        with self._recorded("reconcile") as record:
            for finding in findings:
                try:
                    each = reconciliation.carry_out(finding.urn, way)
                except GobblinError as error:
                    failures[finding.urn] = error
                    record.refuse(finding.dataset_id, error)
                    continue
                done.append(each)
                for publication in each.adopted:
                    record.keep(publication)
                    self._announce(publication)
        return done, failures

    def compact(
        self,
        datasets: Mapping[DatasetUrn, DatasetId],
        check: Callable[[DatasetUrn, Lease], None],
        prepare: Callable[[RunId, Driver, Callable[[Lease], None]], Compaction],
        work: Callable[[Compaction, DatasetUrn, Lease], Sequence[Publication]],
    ) -> tuple[Sequence[Publication], Mapping[DatasetUrn, GobblinError]]:
        """Do ``work`` on each dataset under its lease, once nothing of it is open; what was published, and what failed.

        ``check`` raises where the log is older than the storage.
        """

        def work_on(held: HeldDataset) -> Sequence[Publication]:
            return work(prepare(held.run_id, held.driver, held.require), held.urn, held.lease)

        return self.publish_each("compaction", datasets, check, work_on)

    def publish_each(
        self,
        kind: str,
        datasets: Mapping[DatasetUrn, DatasetId],
        check: Callable[[DatasetUrn, Lease], None],
        work: Callable[[HeldDataset], Sequence[Publication]],
    ) -> tuple[Sequence[Publication], Mapping[DatasetUrn, GobblinError]]:
        """The same for work of other kinds. ``kind``: what the history calls it."""
        done: list[Publication] = []
        failures: dict[DatasetUrn, GobblinError] = {}
        with self._recorded(kind) as record:
            for urn, dataset_id in datasets.items():
                try:
                    with self.operations.hold(dataset_id, urn) as (keeper, lease):
                        check(urn, lease)
                        driver = self.operations.driver(keeper)
                        self._settle(urn, driver, lease, record)
                        held = HeldDataset(urn, lease, self.operations.holder.run_id, driver, keeper.require)
                        for publication in work(held):
                            record.keep(publication)
                            done.append(publication)
                except GobblinError as error:
                    failures[urn] = error
                    record.refuse(dataset_id, error)
        return done, failures

    def _settle(self, urn: DatasetUrn, driver: Driver, lease: Lease, record: _Record) -> None:
        """Complete what is open of a dataset."""
        recovered = recover_dataset(driver, self.operations.abandonment(), lease)
        for publication in recovered.published:
            record.keep(publication)
            self._announce(publication)
        if recovered.blocked is not None:
            blocked = recovered.blocked.sequence_id
            raise ConflictError(
                f"{urn} is blocked by sequence {blocked}",
                hint=f"Resume or abandon it: `gobblin-assets commit resume|abandon {blocked}`.",
                urn=urn,
            )

    def _announce(self, publication: Publication) -> None:
        if self.send is not None:
            announce(self.stores.commits, [report_of(replace(publication, recovered=True))], self.send)

    @contextmanager
    def _recorded(self, kind: str) -> Iterator[_Record]:
        holder = self.operations.holder
        self.stores.runs.begin(NewRun(holder.run_id, self.job, holder.owner, holder.dagster_run_id))
        record = _Record(self.stores.runs, holder.run_id)
        state, said = WorkingState.FAILED, None
        try:
            yield record
            state = WorkingState.FAILED if record.failed else WorkingState.COMMITTED
        except GobblinError as error:
            said = str(error)
            raise
        finally:
            self.stores.runs.end(holder.run_id, state, error=said, figures={"kind": kind, **record.figures})
