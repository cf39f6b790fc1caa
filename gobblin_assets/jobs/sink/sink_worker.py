"""A worker of a sink: it holds its share of the lanes, reads their vnodes, and publishes what is due at barriers.

All workers are equal, and any number of them may run, on any machines. Each looks at the log every half second: how
many workers live, which lanes are free, which vnodes have no lane, which should move. It takes its fair share of the
free lanes, recovers each before it reads a vnode of it, and gives back what is above its share, behind a forced cut.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.commit.abandonment import Abandonment
from gobblin_assets.commit.cleanup import Cleanup
from gobblin_assets.commit.driver import Driver
from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.jobs.sink.cut_publishing import CutPublisher
from gobblin_assets.jobs.sink.cut_rereading import CutRereading
from gobblin_assets.jobs.sink.dataset_sink import DatasetSink, HeldLane, LaneCut
from gobblin_assets.jobs.sink.lane_holding import LaneHolding
from gobblin_assets.jobs.sink.lane_writer import Cut
from gobblin_assets.jobs.sink.sink_lanes import SinkLanes
from gobblin_assets.jobs.sink.sink_log import SinkLog, SinkLogs, gather_logs
from gobblin_assets.jobs.sink.sink_ports import SinkPorts
from gobblin_assets.jobs.sink.sink_progress import SinkProgress
from gobblin_assets.jobs.sink.sink_rules import lag_unit_of
from gobblin_assets.model.defects import find_family, traceback_of
from gobblin_assets.model.state import DatasetId, RunId, WorkingState
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.runner import owner_text
from gobblin_assets.sources.log_port import Barrier, StreamChunk, VnodeFailure
from gobblin_assets.state.datasets import NewRun
from gobblin_assets.state.leases import Holder, Lease, LeaseKeeper

LOOK_EVERY_S: Final = 0.5
WORKER_BYTES_MAX: Final = 256 << 20
"""Bytes of rows that all lanes of a worker hold in memory before they are encoded; a lane alone holds less."""

CLEAN_EVERY_S: Final = 10.0
UNUSED_EVERY_S: Final = 600.0
"""How often lanes that are out of use are looked at: what killed workers left there is looked at for a day."""

LEFT_OVER_MAX: Final = 100
"""Publications that nobody marked, in one look."""

_IDLE_S: Final = 0.2
_READ_S: Final = 0.1
"""For the next records of all datasets of a worker together: those without any keep no other one waiting for long."""


@dataclass(slots=True)
class SinkWorker:
    """A worker of a sink, for the life of its process. Call ``run`` once."""

    ports: SinkPorts
    sinks: Mapping[DatasetId, DatasetSink]
    _logs: SinkLogs = field(init=False)
    _lanes: SinkLanes = field(init=False)
    _rereading: CutRereading = field(init=False)
    _publisher: CutPublisher = field(init=False)
    _progress: SinkProgress = field(init=False)
    _look_at_s: float = 0.0
    _clean_at_s: float = 0.0
    _unused_at_s: float = 0.0
    _is_out_of_reach: bool = False

    def __post_init__(self) -> None:
        ports = self.ports
        run_id = ports.run_id or RunId(ports.clock.new_id())
        keeper = LeaseKeeper(
            ports.stores.leases,
            ports.clock,
            ttl_s=ports.job.lease.ttl_s,
            say=ports.say,
            # Also while a broker keeps this thread waiting: a worker that holds lanes is counted.
            also=self._count_in,
        )
        driver = Driver(
            ports.stores.commits,
            ports.open_file_system,
            keeper.require,
            ports.job.publish_tries_max,
            ports.clock.sleep,
        )
        self._rereading = CutRereading(ports, keeper.require)
        self._publisher = CutPublisher(
            run_id=run_id,
            store=ports.stores.commits,
            destination=ports.destination,
            fs=ports.fs,
            driver=driver,
            clock=ports.clock,
            lease_ttl_s=ports.job.lease.ttl_s,
            reread=self._rereading.reread,
        )
        holding = LaneHolding(
            ports,
            keeper,
            Holder(owner_text(), run_id, ports.dagster_run_id),
            driver,
            Abandonment(ports.stores.commits, ports.open_file_system, ports.interrupt),
            self._publisher.open_files,
        )
        self._progress = SinkProgress(ports.clock, ports.say, lag_unit_of(ports.job))
        self._logs = gather_logs(list(self.sinks.values()))
        self._lanes = SinkLanes(ports, self.sinks, self._logs, run_id, holding, self._publisher, self._progress)

    def run(self) -> None:
        """Work until the ports' ``wait`` says to stop; then end behind a cut, and give all lanes back."""
        ports, holding, job = self.ports, self._lanes.holding, JobName(self.ports.job.job)
        ports.stores.runs.begin(NewRun(self._lanes.run_id, job, holding.holder.owner, ports.dagster_run_id))
        state, error = WorkingState.FAILED, None
        holding.keeper.start()
        try:
            while not ports.wait(0.0) and not self._lanes.is_drained:
                self._turn()
            self._drain()
            state = WorkingState.COMMITTED
        except Exception as failure:
            error = str(failure) or type(failure).__name__
            raise
        finally:
            for sink in self.sinks.values():
                self._lanes.drop(sink, list(sink.lanes.values()))
            holding.keeper.stop()
            self._leave(state, error)

    def _count_in(self) -> None:
        self._lanes.count_in()

    def _leave(self, state: WorkingState, error: str | None) -> None:
        try:
            self.ports.stores.sink_workers.leave(self._lanes.run_id)
            self.ports.stores.runs.end(self._lanes.run_id, state, error=error, figures=self._progress.figures)
        except Exception as second:  # noqa: BLE001  its row runs out
            self.ports.say(f"the end of the worker could not be recorded: {second}")

    def _turn(self) -> None:
        """Work once. An unexpected error stops what this worker holds for a while, and never the worker."""
        try:
            self._work()
        except GobblinError:
            raise
        except Exception as error:  # noqa: BLE001  of a library, at a place that belongs to no dataset
            failure = self._lanes.explain("the worker", error)
            for log in self._logs.logs:
                self._lanes.fail_log(log, failure)

    def _work(self) -> None:
        self._rereading.require_session()
        now_s = self.ports.clock.monotonic()
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_EVERY_S
            self._look(now_s)
        reading = self._list_reading()
        if not reading:
            self.ports.wait(_IDLE_S)
        for log in reading:
            self._read(log, wait_s=_READ_S / len(reading))
        if now_s >= self._clean_at_s:
            self._clean_at_s = now_s + CLEAN_EVERY_S
            self._clean()
        self._progress.tick(self._measure_lag)

    def _look(self, now_s: float) -> None:
        """A log that is out of reach is waited for: what is held is published as long as the leases last."""
        try:
            self._lanes.look(now_s)
            self._is_out_of_reach = False
        except RejectedError:
            # Another job file, or other datasets: this worker has no business here.
            raise
        except Exception as error:  # noqa: BLE001  nothing of it belongs to a dataset
            failure = find_family("the commit log could not be looked at", error)
            if not self._is_out_of_reach:
                self.ports.say(f"the commit log is out of reach, and is asked again: {failure}")
                if traceback_of(failure):
                    self.ports.say(traceback_of(failure))
            self._is_out_of_reach = True

    def _list_held(self) -> list[HeldLane]:
        return [lane for sink in self.sinks.values() for lane in sink.lanes.values()]

    # Reading --------------------------------------------------------------------------------------------

    def _list_reading(self) -> list[SinkLog]:
        return [log for log in self._logs.logs if log.reader is not None]

    def _read(self, log: SinkLog, *, wait_s: float) -> None:
        """Take items up to the next barrier, or for ``wait_s``."""
        reader = log.reader
        if reader is None:
            return
        try:
            for item in reader.read(wait_s=wait_s):
                if isinstance(item, StreamChunk):
                    self._take(log, item)
                    if log.reader is not reader:
                        # The last lane of the log failed, and its reader is closed.
                        return
                elif isinstance(item, VnodeFailure):
                    self._give_up(log, item)
                    if log.reader is not reader:
                        return
                elif isinstance(item, Barrier):
                    self._pass(log, item)
                    return
        except Exception as error:  # noqa: BLE001  the failure of what comes from this log
            self._lanes.fail_log(log, self._lanes.explain(log.label, error))

    def _take(self, log: SinkLog, item: StreamChunk) -> None:
        lane = log.owner_of(item.vnode)
        if lane is None:
            return
        if lane.attempt is None and not self._open_attempts(lane):
            return
        try:
            lane.write(item.vnode, item.chunk)
            self._progress.read(item.chunk.num_rows)
        except Exception as error:  # noqa: BLE001  the failure of this lane; others of its log go on
            self._lanes.fail(lane, error)
        self._bound_memory()

    def _give_up(self, log: SinkLog, item: VnodeFailure) -> None:
        """One dataset of those that come together; where it goes on is asked anew."""
        lane = log.owner_of(item.vnode)
        if lane is not None:
            if traceback_of(item.error):
                self.ports.say(traceback_of(item.error))
            self._lanes.fail_dataset(lane.sink, item.error)

    def _bound_memory(self) -> None:
        """Whatever the number of lanes: beyond the bound, rows of the lane that holds most are encoded."""
        held = self._list_held()
        while sum(lane.writer.held_bytes for lane in held) > WORKER_BYTES_MAX:
            lane = max(held, key=lambda each: each.writer.held_bytes)
            try:
                lane.writer.encode_held()
            except Exception as error:  # noqa: BLE001  the failure of the lane whose rows they are
                held.remove(lane)
                self._lanes.fail(lane, error)

    def _open_attempts(self, wanted: HeldLane) -> bool:
        """Open the attempts of all lanes together; lanes that fail back off. Whether the wanted one is open."""
        held = self._list_held()
        errors = self._publisher.open_attempts(held)
        for lane in held:
            if lane.lane_id in errors:
                self._lanes.fail(lane, errors[lane.lane_id])
        return wanted.attempt is not None

    def _pass(self, log: SinkLog, barrier: Barrier) -> None:
        cuts = []
        for lane, cut in self._pass_in_all(log, barrier):
            if not lane.is_held:
                continue
            learnt = [
                facts for vnode, facts in barrier.facts.items() if vnode in barrier.positions and vnode in lane.read_to
            ]
            for facts in learnt:
                lane.sink.learn(facts)
            if cut is None and (lane.is_window_over(barrier.at) or learnt) and lane.writer.can_commit:
                given = self._lanes.cut(lane)
                if given is None:
                    # Without rows: those that come belong to the window that is open then, and this one can close.
                    self._publisher.close_attempts([lane])
                else:
                    cuts.append(given)
            elif cut is not None:
                cuts.append(LaneCut(lane, cut))
        # Positions that moved without rows fit whatever is published of the others.
        if log.is_shared and any(each.cut.row_counts for each in cuts):
            cuts += self._cut_beside(log, cuts)
        # A failure may have stopped the whole log meanwhile.
        held = {lane.lane_id for lane in log.lanes}
        self._lanes.publish(log, [each for each in cuts if each.lane.lane_id in held])
        if log.reader is not None and any(lane.wants_change for lane in log.lanes):
            self._lanes.change(log)

    def _pass_in_all(self, log: SinkLog, barrier: Barrier) -> list[tuple[HeldLane, Cut | None]]:
        """End the epoch in all lanes that the barrier has, and then give those up that failed.

        A lane that fails has the vnodes of the others assigned anew, each from its lane's last barrier. One that had
        not passed this barrier yet would be read again from the barrier before.
        """
        passed: list[tuple[HeldLane, Cut | None]] = []
        failed: list[tuple[HeldLane, Exception]] = []
        for lane in log.lanes:
            if barrier.positions.keys() & lane.read_to.keys():
                try:
                    passed.append((lane, lane.pass_barrier(barrier)))
                except Exception as error:  # noqa: BLE001  the failure of this lane; others of its log go on
                    failed.append((lane, error))
        for lane, failure in failed:
            self._lanes.fail(lane, failure)
        return passed

    def _cut_beside(self, log: SinkLog, cuts: Sequence[LaneCut]) -> list[LaneCut]:
        """Cuts of the other lanes with rows, at the same barrier: what is published of the datasets fits together."""
        due = {each.lane.lane_id for each in cuts}
        beside = [lane for lane in log.lanes if lane.lane_id not in due and lane.writer.has_rows]
        return [cut for lane in beside if lane.writer.can_commit and (cut := self._lanes.cut(lane))]

    def _drain(self) -> None:
        """Wait for the next barrier of each log, and give its lanes back behind a cut."""
        waiting_s = 2 * self.ports.job.sink.every_s + 5.0
        deadline = self.ports.clock.monotonic() + waiting_s
        for lane in self._list_held():
            lane.leave()
        while reading := self._list_reading():
            if self.ports.clock.monotonic() > deadline:
                self.ports.say(f"no barrier came in {waiting_s:.0f} s: what was read since the last cut is read again")
                return
            for log in reading:
                self._read(log, wait_s=_READ_S / len(reading))

    # Upkeep ---------------------------------------------------------------------------------------------

    def _clean(self) -> None:
        """A failure here never fails a lane: the next cleanup does it."""
        ports = self.ports
        leases = [lane.lease for lane in self._list_held()]
        if not leases:
            return
        holding = self._lanes.holding
        cleanup = Cleanup(ports.stores.commits, ports.open_file_system, ports.interrupt, holding.keeper.require)
        unused: list[Lease] = []
        try:
            unused = self._take_unused()
            outcomes = cleanup.clean_all(
                [*leases, *unused],
                root_uri=ports.destination.root_uri,
                retire_grace_s=ports.job.retire_grace_s,
                fold=ports.job.log.bounds,
            )
            for error in (each for each in outcomes if isinstance(each, GobblinError)):
                ports.say(f"cleanup is left to the next time: {error}")
            self._mark_left_over()
            for sink in self.sinks.values():
                if any(lane.number == 0 for lane in sink.lanes.values()):
                    ports.destination.prune(sink.urn)
            ports.events.deliver()
        except Exception as error:  # noqa: BLE001  the next cleanup does it
            ports.say(f"cleanup is left to the next time: {error}")
        finally:
            if unused:
                holding.release(unused)

    def _mark_left_over(self) -> None:
        """Mark publications of the lanes held here of which nobody did so: their holder died behind their end."""
        store = self.ports.stores.commits
        held = {(lane.dataset_id, lane.number) for lane in self._list_held()}
        found = store.list_unannounced(job=JobName(self.ports.job.job), limit=LEFT_OVER_MAX)
        # A run's own is reported by the next run, or by a recovery.
        mine = [each for each in found if (each.dataset_id, each.lane_number) in held and "epoch" in each.details]
        if mine:
            store.mark_announced(*(each.sequence_id for each in mine))

    def _take_unused(self) -> list[Lease]:
        now_s = self.ports.clock.monotonic()
        if now_s < self._unused_at_s:
            return []
        self._unused_at_s = now_s + UNUSED_EVERY_S
        return [lane.lease for lane in self._lanes.take_unused()]

    def _measure_lag(self) -> int | None:
        """The lag; None: not known, since a log is not read, or has not answered."""
        reading = [(log, log.reader) for log in self._logs.logs if log.reader is not None]
        if not reading:
            return None
        try:
            lags = [(log, reader.measure_lag().values()) for log, reader in reading]
            # The tables of a stream wait for the same log.
            return sum(max(behind, default=0) if log.is_shared else sum(behind) for log, behind in lags)
        except Exception:  # noqa: BLE001  a figure for people
            return None
