"""One round of a run, under the leases that it got: from recovery to cleanup. A stream goes round many times.

Tasks run in a bounded pool. Everything else happens on the run's own thread, so that a slice, once its last
task has ended, is decided and published while other tasks still read.
"""

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Final

from gobblin_assets.commit.abandonment import Abandonment
from gobblin_assets.commit.cleanup import Cleanup
from gobblin_assets.commit.driver import Driver
from gobblin_assets.commit.markers import LogBehindError, check_log, prune_markers
from gobblin_assets.commit.recovery import Recovered, recover_dataset
from gobblin_assets.commit.sequence import NewSequence, Publication
from gobblin_assets.errors import ConflictError, CorruptionError, FencedError, GobblinError, OutcomeUnknownError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.ingest.announcements import announce, report_of
from gobblin_assets.ingest.packing import pack_work_units
from gobblin_assets.ingest.progress import Progress
from gobblin_assets.ingest.publishing import SealForgottenError, check_failure, publish_slice
from gobblin_assets.ingest.rate_limit import RateLimit
from gobblin_assets.ingest.run_values import DatasetReport, RunPorts, RunRequest
from gobblin_assets.ingest.slices import Slice, family_of, partition_text
from gobblin_assets.ingest.sources.port import PlanRequest, PlanSession
from gobblin_assets.ingest.task import TaskOrder, TaskResult, TaskRunner
from gobblin_assets.ingest.task_groups import group_orders, make_orders
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.path_names import path_of
from gobblin_assets.model.policy import UnitResult
from gobblin_assets.model.state import DatasetId, DatasetOutcome, RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.model.work_unit import WorkUnitId, sum_rows
from gobblin_assets.state.leases import Lease, LeaseKeeper

# How often the run's thread looks up from waiting, to say how far it is.
_TICK_S: Final = 1.0

Keep = Callable[[DatasetId, DatasetReport], None]
Choose = Callable[[list[Slice]], list[Slice]]
Select = Callable[[DatasetUrn], Sequence[AssetPartition]]


class Round:
    """``run``, or its parts in their order. ``keep`` is given the report of each slice as soon as there is one.

    ``select`` says which partitions of a dataset are meant now; None: those of the request.
    """

    def __init__(
        self,
        request: RunRequest,
        ports: RunPorts,
        job: JobName,
        run_id: RunId,
        keeper: LeaseKeeper,
        keep: Keep,
        select: Select | None = None,
    ) -> None:
        self._request = request
        self._select = select or request.selection.__getitem__
        self._ports = ports
        self._job = job
        self._run_id = run_id
        self._keeper = keeper
        self._keep = keep
        self._store = ports.stores.commits
        self._driver = Driver(
            self._store,
            ports.open_file_system,
            keeper.require,
            request.job.publish_tries_max,
        )
        self._abandonment = Abandonment(self._store, ports.open_file_system, ports.interrupt)
        self._stopping = threading.Event()
        self._rate_limit = RateLimit(ports.clock, request.job.rows_per_s_max, self._stopping.wait)
        self._versions: dict[DatasetId, int] = {}
        self._behind: set[DatasetUrn] = set()
        self._started_at = ports.clock.monotonic()

    def run(self, leases: Mapping[DatasetUrn, Lease]) -> list[DatasetReport]:
        """Give the publications of earlier runs that were completed on the way."""
        recovered, ready = self.recover(leases)
        self.publish_new(ready)
        self.clean(leases)
        return recovered

    # Recover --------------------------------------------------------------------------------------------

    def recover(self, leases: Mapping[DatasetUrn, Lease]) -> tuple[list[DatasetReport], dict[DatasetUrn, Lease]]:
        """Complete what earlier runs left open; give those publications, and the datasets that can go on."""
        reports: list[DatasetReport] = []
        ready: dict[DatasetUrn, Lease] = {}
        for urn, lease in leases.items():
            try:
                # First of all: recovery by an older log would abort what was published long ago.
                check_log(self._store, self._ports.fs, self._ports.root, self._job, urn, lease)
                found = recover_dataset(self._driver, self._abandonment, lease)
                reports += [self._announce_recovered(publication) for publication in found.published]
            except GobblinError as error:
                if isinstance(error, LogBehindError):
                    self._behind.add(urn)
                    self._ports.report(str(error))
                self._fail_all(urn, lease, error)
                continue
            if found.blocked is None:
                ready[urn] = lease
            else:
                self._block_all(urn, lease, found)
        return reports, ready

    def _announce_recovered(self, publication: Publication) -> DatasetReport:
        self._ports.report(f"{publication.urn}: completed sequence {publication.sequence_id} of an earlier run")
        report = report_of(replace(publication, recovered=True))
        announce(self._store, report, self._ports.on_publication)
        return report

    def _block_all(self, urn: DatasetUrn, lease: Lease, found: Recovered) -> None:
        if found.blocked is None:
            return
        text = (
            f"{urn} is blocked by sequence {found.blocked.sequence_id}: {found.blocked.last_error} "
            f"Resume or abandon it: `gobblin-assets commit resume|abandon {found.blocked.sequence_id}`."
        )
        for partition in self._select(urn):
            report = DatasetReport(
                urn, partition, DatasetOutcome.BLOCKED, error=text, error_family=ConflictError.__name__
            )
            self._keep(lease.dataset_id, report)

    def _fail_all(self, urn: DatasetUrn, lease: Lease, error: GobblinError) -> None:
        for partition in self._select(urn):
            self._keep(lease.dataset_id, _failure(urn, partition, error))

    # Plan -----------------------------------------------------------------------------------------------

    def publish_new(self, ready: Mapping[DatasetUrn, Lease], choose: Choose | None = None) -> None:
        """Plan what is new, read it and publish it. ``choose``: the slices to go on with; what is left out is as
        if it had not been planned. All datasets must have been recovered since anything of theirs failed.
        """
        if not ready:
            return
        self._started_at = self._ports.clock.monotonic()
        wanted = self._make_requests(ready)
        with self._ports.source.open_plan(self._ports.spark, self._ports.report, wanted) as session:
            slices = self._plan_all(session, wanted, ready)
            self._work(session, slices if choose is None else choose(slices))

    def _make_requests(self, ready: Mapping[DatasetUrn, Lease]) -> list[PlanRequest]:
        states = self._ports.stores.datasets.load(self._job, list(ready))
        self._versions |= {state.dataset_id: state.version for state in states.values()}
        return [
            PlanRequest(
                self._request.datasets[urn],
                urn,
                partition,
                states[urn],
                mode=self._request.mode,
                by_hand=self._request.by_hand,
                restart=self._request.restart,
                load_intervals=partial(self._ports.stores.datasets.load_intervals, states[urn].dataset_id),
            )
            for urn in ready
            for partition in self._select(urn)
        ]

    def _plan_all(
        self, session: PlanSession, requests: Iterable[PlanRequest], ready: Mapping[DatasetUrn, Lease]
    ) -> list[Slice]:
        slices = []
        for request in requests:
            try:
                slices.append(self._plan_one(session, request, ready[request.urn]))
            except GobblinError as error:
                self._keep(request.state.dataset_id, _failure(request.urn, request.partition, error))
        return slices

    def _plan_one(self, session: PlanSession, request: PlanRequest, lease: Lease) -> Slice:
        self._keeper.require(lease)
        plan = session.plan(request)
        part = Slice(
            request.urn,
            request.spec,
            request.partition,
            request.state,
            lease,
            plan,
            SequenceId(self._ports.clock.new_id()),
        )
        for note in (*plan.degraded, *plan.notes):
            self._ports.report(f"{part.label}: {note}")
        return part

    def _begin(self, slices: Iterable[Slice], numbers: Mapping[WorkUnitId, int]) -> list[Slice]:
        begun = []
        for part in slices:
            try:
                self._store.begin(
                    NewSequence(
                        sequence_id=part.sequence_id,
                        dataset_id=part.state.dataset_id,
                        run_id=self._run_id,
                        partition=partition_text(part.partition),
                        mode=part.plan.mode,
                        replaces=part.plan.replaces,
                        fence=part.lease.fence,
                        root_uri=self._request.job.destination,
                        work_units=tuple((numbers.get(unit.id), unit) for unit in part.plan.work_units),
                    )
                )
                begun.append(part)
            except GobblinError as error:
                self._keep(part.state.dataset_id, _failure(part.urn, part.partition, error))
        return begun

    # Extract --------------------------------------------------------------------------------------------

    def _work(self, session: PlanSession, slices: list[Slice]) -> None:
        units = [unit for part in slices for unit in part.units_to_read()]
        bins = max((part.spec.split.max_multi_work_units for part in slices), default=1)
        capacities = {part.urn: part.plan.task_capacities for part in slices}
        packed = pack_work_units(units, bins, self._request.job.packer, capacities)
        numbers = {unit.id: multi.number for multi in packed for unit in multi.work_units}
        begun = self._begin(slices, numbers)
        owners = {unit.id: part for part in begun for unit in part.plan.work_units}
        tasks = [task for multi in packed for task in group_orders(make_orders(multi, owners))]
        for order in itertools.chain.from_iterable(tasks):
            order.slice.open_tasks += 1
        for part in begun:
            part.results += [
                UnitResult(unit, succeeded=True, attempt=None) for unit in part.plan.work_units if unit.is_empty
            ]
            if part.open_tasks == 0:
                self._publish(part)
        if tasks:
            self._run_tasks(session, tasks, sum_rows(units))

    def _run_tasks(self, session: PlanSession, tasks: list[list[TaskOrder]], estimated_rows: int) -> None:
        extractor = self._ports.open_extractor(session)
        runner = TaskRunner(
            job=self._job,
            root=self._ports.root,
            store=self._store,
            fs=self._ports.fs,
            extractor=extractor,
            clock=self._ports.clock,
            retry=self._request.job.retry,
            require=self._keeper.require,
            report=self._ports.report,
            wait=self._stopping.wait,
            rate_limit=self._rate_limit,
        )
        progress = Progress(
            self._ports.clock,
            self._ports.report,
            task_count=sum(len(orders) for orders in tasks),
            estimated_rows=estimated_rows,
        )
        pool = ThreadPoolExecutor(self._request.job.parallelism, thread_name_prefix="gobblin-task")
        try:
            running = {pool.submit(runner.run_together, orders): orders for orders in tasks}
            while running:
                ended, _others = wait(running, timeout=_TICK_S, return_when=FIRST_COMPLETED)
                progress.tick()
                # In the order of submission, so that equal runs do equal things.
                for future in [each for each in running if each in ended]:
                    for order, result in zip(running.pop(future), future.result(), strict=True):
                        self._take(order, result, progress)
        except BaseException:
            # Terminated from outside: no new task starts, and those that read are interrupted.
            self._stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
            runner.cancel_all()
            raise
        finally:
            pool.shutdown(wait=True)

    def _take(self, order: TaskOrder, result: TaskResult, progress: Progress) -> None:
        part = order.slice
        if isinstance(result, GobblinError):
            part.error = result if isinstance(result, FencedError) else part.error or result
            part.results += [UnitResult(unit, succeeded=False, attempt=None) for unit in order.units]
            self._ports.report(f"{part.label}: {result}")
        else:
            part.staged.append(result)
            part.results += [UnitResult(unit, succeeded=True, attempt=result.attempt_id) for unit in order.units]
            progress.add(
                rows=sum(segment.row_count for segment in result.segments),
                file_bytes=sum(segment.file_bytes for segment in result.segments),
            )
        part.open_tasks -= 1
        if part.open_tasks == 0:
            self._publish(part)

    # Publish --------------------------------------------------------------------------------------------

    def _publish(self, part: Slice) -> None:
        dataset_id = part.state.dataset_id
        if isinstance(part.error, FencedError):
            # The new owner aborts what was begun.
            self._keep(dataset_id, _failure(part.urn, part.partition, part.error))
            return
        try:
            published = publish_slice(
                part,
                policy=self._request.job.commit_policy,
                driver=self._driver,
                base_version=self._versions[dataset_id],
                uri=self._ports.fs.to_uri(path_of(self._ports.root, self._job, part.urn, Role.DATA)),
                duration_s=self._ports.clock.monotonic() - self._started_at,
            )
        except GobblinError as error:
            self._abort(part, error)
            failed = _failure(part.urn, part.partition, error)
            self._keep(dataset_id, replace(failed, checks=check_failure(part, error)))
            return
        if published is None:
            failure = part.error or CorruptionError(f"{part.label} was refused although every task succeeded")
            self._abort(part, failure)
            failed = _failure(part.urn, part.partition, failure)
            self._keep(dataset_id, replace(failed, checks=check_failure(part, failure)))
            return
        self._versions[dataset_id] = published.version
        report = report_of(published, part.partition)
        if part.error is not None:
            report = replace(report, error=str(part.error), error_family=family_of(part.error))
        announce(self._store, report, self._ports.on_publication)
        self._keep(dataset_id, report)

    def _abort(self, part: Slice, error: GobblinError) -> None:
        """Give up what was not sealed. What was sealed stays open, and is completed by whoever comes next."""
        if isinstance(error, FencedError | OutcomeUnknownError):
            return
        if isinstance(error, SealForgottenError):
            # Its staging may be all that is left of files whose siblings are visible: cleanup stays away as well.
            self._behind.add(part.urn)
            return
        try:
            self._store.abort(part.sequence_id, fence=part.lease.fence, error=str(error))
        except ConflictError:
            # It was sealed: the publication failed, was counted, and will be tried again.
            return
        except GobblinError as second:
            self._ports.report(f"{part.label}: could not be aborted; the next run does it: {second}")

    # Clean ----------------------------------------------------------------------------------------------

    def clean(self, leases: Mapping[DatasetUrn, Lease]) -> None:
        """Remove staging and retired files, but not of a dataset whose log is behind its storage."""
        reach(Failpoint.EVENTS_BEFORE_CLEANUP)
        cleanup = Cleanup(self._store, self._ports.open_file_system, self._ports.interrupt, self._keeper.require)
        for urn, lease in leases.items():
            if urn in self._behind:
                continue
            try:
                cleanup.clean(
                    lease,
                    root_uri=self._request.job.destination,
                    retire_grace_s=self._request.job.retire_grace_s,
                )
                prune_markers(self._store, self._ports.fs, self._ports.root, self._job, urn)
            except GobblinError as error:
                self._ports.report(f"{urn}: cleanup is left to the next run: {error}")


def _failure(urn: DatasetUrn, partition: AssetPartition, error: GobblinError) -> DatasetReport:
    outcome = DatasetOutcome.FAILED
    if isinstance(error, FencedError):
        outcome = DatasetOutcome.FENCED
    elif isinstance(error, LogBehindError):
        # It waits for a person, as a sequence does that is blocked.
        outcome = DatasetOutcome.BLOCKED
    return DatasetReport(urn, partition, outcome, error=str(error), error_family=family_of(error))
