"""One round of a run, under the run's leases: from recovery to cleanup. A stream has many rounds.

Tasks run in a bounded pool. Everything else happens on the run's own thread, so that a slice, once its last
task has ended, is decided and published while other tasks still read.
"""

import datetime as dt
import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Final

from gobblin_assets.commit.abandonment import Abandonment
from gobblin_assets.commit.attempt_capture import Leftovers
from gobblin_assets.commit.batches import do_together
from gobblin_assets.commit.destination import StorageMismatchError
from gobblin_assets.commit.driver import Driver
from gobblin_assets.commit.recovery import Recovered, recover_dataset
from gobblin_assets.commit.sequence import NewSequence, Publication
from gobblin_assets.errors import ErrorFamily, FencedError, GobblinError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.defects import explain_exception
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.policy import UnitResult
from gobblin_assets.model.state import DatasetId, DatasetOutcome, RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.work_unit import WorkUnitId, sum_rows
from gobblin_assets.run.announcements import announce, report_of
from gobblin_assets.run.compaction import open_compaction
from gobblin_assets.run.job_kind import PlanRequest, Session, SessionLostError
from gobblin_assets.run.packing import pack_run
from gobblin_assets.run.progress import Progress, StepProgress
from gobblin_assets.run.publisher import Keep, Publisher
from gobblin_assets.run.run_values import DatasetReport, RunPorts, RunRequest
from gobblin_assets.run.slices import ActiveSchemas, Slice, failure_of, label_of, partition_text
from gobblin_assets.run.task import RateLimit, TaskOrder, TaskResult, TaskRunner, group_orders, make_orders
from gobblin_assets.run.tidying import Tidying
from gobblin_assets.state.datasets import keep_loss
from gobblin_assets.state.leases import Lease, LeaseKeeper

# How often the waiting thread of the run wakes up to report progress, and to look for lost leases, in seconds.
_TICK_S: Final = 1.0
_BEFORE_ALL: Final = dt.datetime.min.replace(tzinfo=dt.UTC)

_NOTHING_NEW: Final = ("nothing is new since its last publication",)

Choose = Callable[[list[Slice]], list[Slice]]
Select = Callable[[DatasetUrn], Sequence[AssetPartition]]


class Round:
    """One round of a run: call ``run``, or its parts in order.

    ``keep`` gets the report of each slice as soon as there is one. ``select`` returns the partitions of a dataset that
    are meant now; None: those of the request.
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
            ports.clock.sleep,
        )
        self._abandonment = Abandonment(self._store, ports.open_file_system, ports.interrupt)
        self._stopping = threading.Event()
        self._rate_limit = RateLimit(ports.clock, request.job.rows_per_s_max, self._stopping.wait)
        self._behind: set[DatasetUrn] = set()
        self._schemas = ActiveSchemas(ports.stores.published, job)
        self._tidying = Tidying(request.job, ports, job, keeper.require)
        self._publisher = Publisher(request, ports, job, self._driver, keep, self._behind, self._schemas.remember)
        self._started_at = ports.clock.monotonic()
        self._done: Collection[tuple[DatasetUrn, str]] = ()
        self.recovered: list[DatasetReport] = []

    def run(self, leases: Mapping[DatasetUrn, Lease]) -> None:
        """The whole round, once.

        ``recovered`` then has the publications of earlier runs that the round completed, even if it raises later.
        """
        self.recovered, ready = self.recover(leases)
        if self._request.find_done is not None:
            self._done = self._request.find_done()
        self.publish_new(ready, self._choose_news if self._request.news_only else None)
        self.clean(leases)
        self.compact(ready)

    # Recover --------------------------------------------------------------------------------------------

    def recover(self, leases: Mapping[DatasetUrn, Lease]) -> tuple[list[DatasetReport], dict[DatasetUrn, Lease]]:
        """Complete open sequences of earlier runs. Returns their publications, and the datasets that can go on."""
        # First of all: recovery with an older log would abort what was published long ago.
        errors = self._ports.destination.check_logs(leases)
        held = [lease.dataset_id for lease in leases.values()]
        unfinished = {sequence.dataset_id for sequence in self._store.find_unfinished(*held)}
        reports: list[DatasetReport] = []
        ready: dict[DatasetUrn, Lease] = {}
        for urn, lease in leases.items():
            if urn in errors:
                self._behind.add(urn)
                self._refuse(urn, lease, errors[urn])
            elif lease.dataset_id not in unfinished:
                ready[urn] = lease
            else:
                reports += self._recover_one(urn, lease, ready)
        return reports, ready

    def _recover_one(self, urn: DatasetUrn, lease: Lease, ready: dict[DatasetUrn, Lease]) -> list[DatasetReport]:
        try:
            found = recover_dataset(self._driver, self._abandonment, lease)
            reports = [self._announce_recovered(publication) for publication in found.published]
        except Exception as error:  # noqa: BLE001  the failure of this dataset; others go on
            self._refuse(urn, lease, explain_exception(f"the recovery of {urn}", error, self._ports.say))
            return []
        if found.blocked is None:
            ready[urn] = lease
        else:
            self._block_all(urn, lease, found)
        return reports

    def _refuse(self, urn: DatasetUrn, lease: Lease, error: GobblinError) -> None:
        if isinstance(error, StorageMismatchError):
            self._behind.add(urn)
            self._ports.say(str(error))
        self._fail_all(urn, lease, error)

    def _announce_recovered(self, publication: Publication) -> DatasetReport:
        self._ports.say(f"{publication.urn}: completed sequence {publication.sequence_id} of an earlier run")
        report = report_of(replace(publication, recovered=True))
        announce(self._store, [report], self._ports.on_publication, marks=self._request.announces)
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
                urn, partition, DatasetOutcome.BLOCKED, error=text, error_family=ErrorFamily.CONFLICT
            )
            self._keep([(lease.dataset_id, report)])

    def _fail_all(self, urn: DatasetUrn, lease: Lease, error: GobblinError) -> None:
        self._keep([(lease.dataset_id, failure_of(urn, partition, error)) for partition in self._select(urn)])

    # Plan -----------------------------------------------------------------------------------------------

    def publish_new(self, ready: Mapping[DatasetUrn, Lease], choose: Choose | None = None) -> None:
        """Plan, read and publish new rows.

        ``choose`` returns the slices to go on with; the others count as not planned. Every dataset must have been
        recovered since its last failure.
        """
        if not ready:
            return
        self._started_at = self._ports.clock.monotonic()
        wanted = self._make_requests(ready)
        if not wanted:
            return
        with self._ports.kind.open(self._ports.say, wanted) as session:
            slices = self._plan_all(session, wanted, ready)
            self._work(session, slices if choose is None else choose(slices))

    def _make_requests(self, ready: Mapping[DatasetUrn, Lease]) -> list[PlanRequest]:
        states = self._ports.stores.datasets.load(self._job, list(ready))
        self._publisher.versions |= {state.dataset_id: state.version for state in states.values()}
        return [
            PlanRequest(
                urn,
                partition,
                states[urn],
                mode=self._request.mode,
                by_hand=self._request.by_hand,
                restart=self._request.restart,
                load_intervals=partial(self._ports.stores.datasets.load_intervals, states[urn].dataset_id),
                confirm_deletes=self._request.confirm_deletes,
                only_moves=self._request.only_moves,
            )
            for urn in ready
            for partition in _oldest_first(self._select(urn))
            if (urn, partition_text(partition)) not in self._done
        ]

    def _choose_news(self, slices: list[Slice]) -> list[Slice]:
        """Leave out what would publish nothing; what the plan learnt of the source is published all the same."""
        chosen: list[Slice] = []
        left_out: list[tuple[DatasetId, DatasetReport]] = []
        for slice_ in slices:
            if slice_.has_news() or slice_.has_new_facts():
                chosen.append(slice_)
            else:
                notes = tuple(slice_.plan.degraded) or _NOTHING_NEW
                report = DatasetReport(slice_.urn, slice_.partition, DatasetOutcome.SKIPPED, notes=notes)
                left_out.append((slice_.state.dataset_id, report))
        if left_out:
            self._keep(left_out)
        return chosen

    def _plan_all(
        self, session: Session, requests: Sequence[PlanRequest], ready: Mapping[DatasetUrn, Lease]
    ) -> list[Slice]:
        slices = []
        progress = StepProgress(self._ports.clock, self._ports.say, "partitions planned", len(requests))
        for request in requests:
            try:
                slices.append(self._plan_one(session, request, ready[request.urn]))
            except SessionLostError:
                raise
            except Exception as error:  # noqa: BLE001  explained as the failure of this partition
                failure = explain_exception(label_of(request.urn, request.partition), error, self._ports.say)
                keep_loss(self._ports.stores.datasets, request.state.dataset_id, failure)
                self._keep([(request.state.dataset_id, failure_of(request.urn, request.partition, failure))])
            progress.add()
        return slices

    def _plan_one(self, session: Session, request: PlanRequest, lease: Lease) -> Slice:
        self._keeper.require(lease)
        self._ports.destination.refuse_strangers(request.urn)
        plan = session.plan(request)
        if plan.replaces and (partition := partition_text(request.partition)) in request.state.published:
            self._ports.destination.refuse_replacement(request.urn, partition)
        slice_ = Slice(
            request.urn,
            request.partition,
            request.state,
            lease,
            plan,
            SequenceId(self._ports.clock.new_id()),
        )
        is_again = plan.mode is Mode.REFRESH and request.mode is Mode.AUTO and not plan.is_snapshot
        if is_again and request.partition.key in request.state.published:
            self._ports.say(f"{slice_.label}: was published before, and is read again as a whole (refresh)")
        for note in (*plan.degraded, *plan.notes):
            self._ports.say(f"{slice_.label}: {note}")
        return slice_

    def _begin(self, slices: Sequence[Slice], numbers: Mapping[WorkUnitId, int]) -> list[Slice]:
        progress = StepProgress(self._ports.clock, self._ports.say, "sequences begun", len(slices))

        def begin(some: Sequence[Slice]) -> None:
            self._store.begin(*(self._new_sequence(slice_, numbers) for slice_ in some))
            progress.add(len(some))

        begun = []
        errors = do_together(slices, begin, lambda slice_: len(slice_.plan.work_units))
        for slice_, error in zip(slices, errors, strict=True):
            if error is None:
                begun.append(slice_)
            else:
                self._keep([(slice_.state.dataset_id, failure_of(slice_.urn, slice_.partition, error))])
        return begun

    def _new_sequence(self, slice_: Slice, numbers: Mapping[WorkUnitId, int]) -> NewSequence:
        return NewSequence(
            sequence_id=slice_.sequence_id,
            dataset_id=slice_.state.dataset_id,
            run_id=self._run_id,
            partition=partition_text(slice_.partition),
            mode=slice_.plan.mode,
            replaces=slice_.plan.replaces,
            fence=slice_.lease.fence,
            root_uri=self._ports.destination.root_uri,
            work_units=tuple((numbers.get(unit.id), unit) for unit in slice_.plan.work_units),
            lease_ttl_s=self._request.job.lease.ttl_s,
            slots_keep_s=self._ports.destination.slots_keep_s,
            reuse_keep_s=self._ports.destination.reuse_keep_s,
        )

    # Extract --------------------------------------------------------------------------------------------

    def _work(self, session: Session, slices: list[Slice]) -> None:
        units = [unit for slice_ in slices for unit in slice_.units_to_read()]
        splits = {slice_.urn: slice_.plan.split for slice_ in slices}
        capacities = {slice_.urn: slice_.plan.task_capacities for slice_ in slices}
        packed = pack_run(self._request.job, units, splits, capacities)
        numbers = {unit.id: multi.number for multi in packed for unit in multi.work_units}
        self._schemas.look_up(slices)
        begun = self._begin(slices, numbers)
        self._publisher.expect(len(begun))
        owners = {unit.id: slice_ for slice_ in begun for unit in slice_.plan.work_units}
        tasks = [task for multi in packed for task in group_orders(make_orders(multi, owners))]
        tasks += [[TaskOrder(slice_, 0, ())] for slice_ in _find_undescribed(begun)]
        for order in itertools.chain.from_iterable(tasks):
            order.slice.open_tasks += 1
        for slice_ in begun:
            slice_.results += [
                UnitResult(unit, succeeded=True, attempt=None) for unit in slice_.plan.work_units if unit.is_empty
            ]
        self._publisher.publish([slice_ for slice_ in begun if slice_.open_tasks == 0], self._started_at)
        if tasks:
            self._run_tasks(session, tasks, sum_rows(units))

    def _run_tasks(self, session: Session, tasks: list[list[TaskOrder]], estimated_rows: int) -> None:
        # A stream goes on after a failure that time mends, and all tasks of before have ended.
        self._stopping.clear()
        runner = TaskRunner(
            job=self._job,
            store=self._store,
            destination=self._ports.destination,
            leftovers=Leftovers(self._store, self._ports.open_file_system, self._ports.interrupt, self._ports.say),
            worker=session.open_worker(),
            clock=self._ports.clock,
            retry=self._request.job.retry,
            require=self._keeper.require,
            say=self._ports.say,
            wait=self._stopping.wait,
            rate_limit=self._rate_limit,
        )
        progress = Progress(
            self._ports.clock,
            self._ports.say,
            task_count=sum(len(orders) for orders in tasks),
            estimated_rows=estimated_rows,
        )
        pool = ThreadPoolExecutor(self._request.job.parallelism, thread_name_prefix="gobblin-task")
        try:
            running = {pool.submit(runner.run_together, orders): orders for orders in tasks}
            while running:
                ended, _others = wait(running, timeout=_TICK_S, return_when=FIRST_COMPLETED)
                progress.tick()
                runner.cancel_lost(self._keeper.is_lost)
                # In the order of submission, so that equal runs do the same.
                for future in [each for each in running if each in ended]:
                    outcomes = zip(running.pop(future), future.result(), strict=True)
                    over = [order.slice for order, result in outcomes if self._take(order, result, progress)]
                    self._publisher.publish(over, self._started_at)
        except BaseException:
            # Terminated from outside: no new task starts, and running tasks are interrupted.
            self._stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
            runner.cancel_all()
            raise
        finally:
            pool.shutdown(wait=True)

    def _take(self, order: TaskOrder, result: TaskResult, progress: Progress) -> bool:
        """Take a task's result. True if it was the last task of its slice."""
        slice_ = order.slice
        if isinstance(result, GobblinError) and not order.units and not isinstance(result, FencedError):
            # Only its columns stay unknown.
            self._ports.say(f"{slice_.label}: its columns could not be determined: {result}")
        elif isinstance(result, GobblinError):
            slice_.error = result if isinstance(result, FencedError) else slice_.error or result
            slice_.results += [UnitResult(unit, succeeded=False, attempt=None) for unit in order.units]
            self._ports.say(f"{slice_.label}: {result}")
        else:
            slice_.staged.append(result)
            slice_.results += [UnitResult(unit, succeeded=True, attempt=result.attempt_id) for unit in order.units]
            progress.add(
                rows=sum(segment.row_count for segment in result.segments),
                file_bytes=sum(segment.file_bytes for segment in result.segments),
            )
        slice_.open_tasks -= 1
        return slice_.open_tasks == 0

    # Clean ----------------------------------------------------------------------------------------------

    def clean(self, leases: Mapping[DatasetUrn, Lease]) -> None:
        """Remove staging and retired files, except of datasets whose log is behind their storage."""
        reach(Failpoint.EVENTS_BEFORE_CLEANUP)
        self._tidying.clean({urn: lease for urn, lease in leases.items() if urn not in self._behind})

    # Compact --------------------------------------------------------------------------------------------

    def compact(self, leases: Mapping[DatasetUrn, Lease]) -> None:
        """Compact partitions at rest, if the job says so and the dataset has no open sequence."""
        spec = self._request.job.compaction
        compaction = open_compaction(self._request, self._ports, self._run_id, self._driver, self._keeper.require)
        if spec is not None and compaction is not None:
            held = {urn: lease for urn, lease in leases.items() if urn not in self._behind}
            compaction.compact_all(held, spec)


def _oldest_first(partitions: Iterable[AssetPartition]) -> list[AssetPartition]:
    """A past window is planned before the open one, which takes everything that no other window takes."""
    return sorted(partitions, key=lambda partition: _BEFORE_ALL if partition.window is None else partition.window.start)


def _find_undescribed(slices: Iterable[Slice]) -> list[Slice]:
    """The first partition of each dataset without rows to read whose publication has to record its columns.

    A source that does not know columns without records has no columns in its plan.
    """
    empty = [each for each in slices if not each.units_to_read() and each.plan.columns and each.lacks_schema()]
    return list({each.urn: each for each in reversed(empty)}.values())
