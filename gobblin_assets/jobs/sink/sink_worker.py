"""A worker of a sink: it holds its share of the lanes, reads their vnodes, and publishes what is due at barriers.

All workers are equal, and any number of them may run, on any machines. Each looks at the log every half second: how
many workers live, which lanes are free, which vnodes have no lane, which should move. It takes its fair share of the
free lanes, recovers each before it reads a vnode of it, and gives back what is above its share, behind a forced cut.

A lane changes (it joins, leaves, gets or gives vnodes) at a barrier only, when nothing of it waits. A lane that fails
is given back and rests, and its next holder goes on from the log; the others go on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from gobblin_assets.commit.abandonment import Abandonment
from gobblin_assets.commit.cleanup import Cleanup
from gobblin_assets.commit.driver import Driver
from gobblin_assets.commit.lanes import DatasetLanes
from gobblin_assets.commit.sequence import Publication
from gobblin_assets.errors import FencedError, GobblinError, RejectedError
from gobblin_assets.jobs.sink.cut_publishing import CutPublisher
from gobblin_assets.jobs.sink.dataset_sink import DatasetSink
from gobblin_assets.jobs.sink.held_lane import HeldLane, LaneCut
from gobblin_assets.jobs.sink.lane_holding import REST_S, REST_S_MAX, LaneHolding
from gobblin_assets.jobs.sink.lane_shares import decide_quota, decide_shares, lanes_in_use, plan_moves, plan_places
from gobblin_assets.jobs.sink.lane_writer import Cut, VnodeSpan
from gobblin_assets.jobs.sink.sink_ports import SinkPorts
from gobblin_assets.jobs.sink.sink_progress import SinkProgress
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.state import DatasetId, LaneId, RunId, WorkingState
from gobblin_assets.model.urn import JobName, Role
from gobblin_assets.run.runner import owner_text
from gobblin_assets.sources.log_port import Barrier, StreamChunk
from gobblin_assets.spec.partition_keys import open_partition
from gobblin_assets.state.datasets import NewRun
from gobblin_assets.state.leases import Holder, LeaseKeeper
from gobblin_assets.state.sink_workers import SinkWorkerRow

LOOK_EVERY_S: Final = 0.5
CLEAN_EVERY_S: Final = 10.0
DISCOVER_EVERY_S: Final = 30.0
"""How often a log is asked for new vnodes."""

_IDLE_S: Final = 0.2
_READ_S: Final = 0.1


@dataclass(slots=True)
class SinkWorker:
    """Call ``run`` once."""

    ports: SinkPorts
    sinks: Mapping[DatasetId, DatasetSink]
    _run_id: RunId = field(init=False)
    _holding: LaneHolding = field(init=False)
    _publisher: CutPublisher = field(init=False)
    _progress: SinkProgress = field(init=False)
    _look_at_s: float = 0.0
    _clean_at_s: float = 0.0
    _is_drained: bool = False

    def __post_init__(self) -> None:
        ports = self.ports
        self._run_id = RunId(ports.clock.new_id())
        keeper = LeaseKeeper(ports.stores.leases, ports.clock, ttl_s=ports.job.lease.ttl_s, say=ports.say)
        driver = Driver(
            ports.stores.commits,
            ports.open_file_system,
            keeper.require,
            ports.job.publish_tries_max,
            ports.clock.sleep,
        )
        self._publisher = CutPublisher(
            run_id=self._run_id,
            store=ports.stores.commits,
            destination=ports.destination,
            fs=ports.fs,
            driver=driver,
            clock=ports.clock,
            lease_ttl_s=ports.job.lease.ttl_s,
            partition_of=self._partition_of,
            describe=lambda lane: self.sinks[lane.dataset_id].describe(),
            judge=lambda lane, cut: self.sinks[lane.dataset_id].judge(cut),
        )
        self._holding = LaneHolding(
            ports,
            keeper,
            Holder(owner_text(), self._run_id),
            driver,
            Abandonment(ports.stores.commits, ports.open_file_system, ports.interrupt),
            self._publisher.open_files,
        )
        self._progress = SinkProgress(ports.clock, ports.say)

    def run(self) -> None:
        """Work until the ports' ``wait`` says to stop; then end behind a cut, and give all lanes back."""
        ports, keeper, job = self.ports, self._holding.keeper, JobName(self.ports.job.job)
        ports.stores.runs.begin(NewRun(self._run_id, job, self._holding.holder.owner))
        state, error = WorkingState.FAILED, None
        keeper.start()
        try:
            while not ports.wait(0.0) and not self._is_drained:
                self._turn()
            self._drain()
            state = WorkingState.COMMITTED
        except GobblinError as failure:
            error = str(failure)
            raise
        finally:
            for sink in self.sinks.values():
                self._drop(sink, list(sink.lanes.values()))
            keeper.stop()
            self._leave(state, error)

    def _leave(self, state: WorkingState, error: str | None) -> None:
        try:
            self.ports.stores.sink_workers.leave(self._run_id)
            self.ports.stores.runs.end(self._run_id, state, error=error, figures=self._progress.figures)
        except GobblinError as second:
            self.ports.say(f"the end of the worker could not be recorded: {second}")

    def _turn(self) -> None:
        now_s = self.ports.clock.monotonic()
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_EVERY_S
            self._look(now_s)
        reading = [sink for sink in self.sinks.values() if sink.reader is not None]
        if not reading:
            self.ports.wait(_IDLE_S)
        for sink in reading:
            self._read(sink)
        if now_s >= self._clean_at_s:
            self._clean_at_s = now_s + CLEAN_EVERY_S
            self._clean()
        self._progress.tick(self._measure_lag)

    # Lanes ----------------------------------------------------------------------------------------------

    def _look(self, now_s: float) -> None:
        ports = self.ports
        me = SinkWorkerRow(self._run_id, self._holding.holder.owner, ports.configuration)
        workers = ports.stores.sink_workers.beat(JobName(ports.job.job), me, ttl_s=ports.job.lease.ttl_s)
        self._is_drained = any(each.is_drained for each in workers if each.run_id == self._run_id)
        for other in workers:
            # The newer one yields: whoever joins by mistake never ends those that are at work.
            if other.configuration != ports.configuration and other.run_id < self._run_id:
                raise RejectedError(
                    f"{other.owner} works on the sink {ports.job.job} by another job file, or another release",
                    field="sink",
                    hint="Stop the workers that have the old one first: `gobblin-assets sink status` shows them.",
                )
        self._forget_lost()
        found = ports.stores.lanes.load(*self.sinks)
        ready = [sink for sink in self.sinks.values() if self._is_started(sink, now_s)]
        usable = [lane for sink in ready for lane in lanes_in_use(found[sink.dataset_id])]
        mine = frozenset(lane_id for sink in self.sinks.values() for lane_id in sink.lanes)
        quota = decide_quota([each.run_id for each in workers], self._run_id, len(usable))
        shares = decide_shares(usable, mine, quota, self._holding.list_resting())
        self._progress.note_share(len(mine), quota, len(workers), len(usable))
        by_lane = {lane.lane_id: sink for sink in ready for lane in found[sink.dataset_id].lanes}
        for lane in self._holding.take({lane_id: by_lane[lane_id] for lane_id in shares.take}):
            by_lane[lane.lane_id].lanes[lane.lane_id] = lane
        for lane_id in shares.give_back:
            by_lane[lane_id].lanes[lane_id].is_leaving = True
        if shares.take:
            found = ports.stores.lanes.load(*self.sinks)
        for sink in ready:
            self._note_changes(sink, found[sink.dataset_id])

    def _is_started(self, sink: DatasetSink, now_s: float) -> bool:
        """Whether the log has said where its vnodes begin."""
        if now_s < sink.not_before_s:
            return False
        if sink.start is not None and now_s - sink.started_s < DISCOVER_EVERY_S:
            return True
        try:
            state = self.ports.stores.datasets.load(JobName(self.ports.job.job), [sink.urn])[sink.urn]
            start = sink.source.find_start(state)
        except GobblinError as error:
            self._fail(sink, error)
            return False
        if sink.start is None:
            for note in (*start.notes, *start.degraded):
                self.ports.say(f"{sink.urn}: {note}")
        sink.start, sink.started_s = start, now_s
        return True

    def _note_changes(self, sink: DatasetSink, found: DatasetLanes) -> None:
        """What each of the dataset's lanes is to do at its next barrier; vnodes without a lane get one."""
        places = plan_places(found, sorted(sink.vnodes))
        moves = plan_moves(found, sink.vnodes)
        of_lane = {state.lane_id: state for state in found.lanes}
        for lane in sink.lanes.values():
            state = of_lane[lane.lane_id]
            new = [vnode for vnode, number in places.items() if number == lane.number]
            placed = self.ports.stores.lanes.place(lane.lease, new) if new else frozenset()
            lane.moves = {
                v: to for v, to in moves.get(lane.number, {}).items() if v in lane.read_to or v in state.vnodes
            }
            lane.joining = (
                frozenset((set(state.vnodes) | placed) & sink.vnodes) - lane.read_to.keys() - lane.moves.keys()
            )
        if any(lane.wants_change for lane in sink.lanes.values()) and sink.reader is None:
            self._change(sink)

    def _change(self, sink: DatasetSink) -> None:
        """Carry out what lanes are to do. All vnodes of the dataset are at a barrier, or none is read yet."""
        changing = [lane for lane in sink.lanes.values() if lane.wants_change and lane.writer.can_commit]
        cuts = [LaneCut(lane, cut) for lane in changing if (cut := lane.writer.commit()) is not None]
        failed = self._publish(sink, cuts)
        changing = [lane for lane in changing if lane.lane_id not in failed]
        leaving = [lane for lane in changing if lane.is_leaving]
        for lane in leaving:
            self.ports.say(f"{lane.label}: given back")
        self._drop(sink, leaving)
        staying = [lane for lane in changing if not lane.is_leaving]
        for lane in staying:
            try:
                self._move_vnodes(lane)
                self._join_vnodes(sink, lane)
            except GobblinError as error:
                self._rest(sink, lane, error)
        self._assign(sink)

    def _move_vnodes(self, lane: HeldLane) -> None:
        by_target: dict[int, list[str]] = {}
        for vnode, target in lane.moves.items():
            by_target.setdefault(target, []).append(vnode)
        for target, vnodes in by_target.items():
            moved = self.ports.stores.lanes.move(lane.lease, target, vnodes)
            for vnode in moved:
                lane.read_to.pop(vnode, None)
                lane.positions.pop(vnode, None)
        lane.moves = {}

    def _join_vnodes(self, sink: DatasetSink, lane: HeldLane) -> None:
        """Read the lane's vnodes from where they are published up to. The log learns where a new one begins first."""
        job = JobName(self.ports.job.job)
        state = self.ports.stores.datasets.load(job, [sink.urn])[sink.urn]
        start = sink.source.find_start(state) if lane.joining else sink.start
        if start is None:
            raise AssertionError(f"{sink.urn} was not started")
        for vnode in sorted(lane.joining & start.vnodes.keys()):
            begin = start.vnodes[vnode]
            lane.positions[vnode] = begin.watermark
            lane.read_to[vnode] = begin.position
        lane.joining = frozenset()
        lane.writer.assign(lane.read_to)
        unsaid = {vnode: position for vnode, position in lane.read_to.items() if lane.positions[vnode] != position}
        if unsaid:
            now = self.ports.clock.now()
            spans = {vnode: VnodeSpan(position, position) for vnode, position in unsaid.items()}
            cut = Cut(spans=spans, files=(), row_counts={}, epoch=lane.epoch or 0, opened_at=now, at=now)
            self._raise_first(self._publisher.publish([LaneCut(lane, cut)]), lane)

    def _raise_first(self, outcomes: Sequence[Publication | GobblinError], lane: HeldLane) -> None:
        for outcome in outcomes:
            if isinstance(outcome, GobblinError):
                raise outcome
            self._note_published(lane, outcome, lane.read_to)

    def _assign(self, sink: DatasetSink) -> None:
        positions = {vnode: at for lane in sink.lanes.values() for vnode, at in lane.read_to.items()}
        epochs = {vnode: lane.epoch for lane in sink.lanes.values() if lane.epoch is not None for vnode in lane.read_to}
        try:
            if not positions:
                self._close_reader(sink)
                return
            if sink.reader is None and sink.start is not None:
                sink.reader = sink.source.open_reader(sink.start)
            if sink.reader is not None:
                sink.reader.assign(positions, epochs=epochs)
        except GobblinError as error:
            self._fail(sink, error)

    # Reading --------------------------------------------------------------------------------------------

    def _read(self, sink: DatasetSink) -> None:
        """Take items up to the next barrier, or for a moment."""
        reader = sink.reader
        if reader is None:
            return
        try:
            for item in reader.read(wait_s=_READ_S):
                if isinstance(item, StreamChunk):
                    self._write(sink, item)
                elif isinstance(item, Barrier):
                    self._pass(sink, item)
                    return
        except GobblinError as error:
            self._fail(sink, error)

    def _write(self, sink: DatasetSink, item: StreamChunk) -> None:
        lane = sink.owner_of(item.vnode)
        if lane is None:
            return
        if lane.attempt is None:
            self._publisher.open_attempts([each for one in self.sinks.values() for each in one.lanes.values()])
        decoded = sink.source.decoder.decode(item.chunk)
        lane.writer.write_batch(item.vnode, decoded.rows)
        if decoded.dead_letters.num_rows:
            lane.writer.write_batch(item.vnode, decoded.dead_letters, Role.DEAD_LETTER)
        lane.writer.try_commit()
        self._progress.read(item.chunk.num_rows, item.chunk.nbytes)

    def _pass(self, sink: DatasetSink, barrier: Barrier) -> None:
        cuts = []
        for lane in list(sink.lanes.values()):
            mine = {vnode: at for vnode, at in barrier.positions.items() if vnode in lane.read_to}
            if not mine:
                continue
            cut = lane.writer.barrier(Barrier(barrier.epoch, mine, barrier.is_checkpoint, barrier.at))
            lane.read_to |= mine
            lane.epoch = barrier.epoch
            is_over = (
                lane.attempt is not None and lane.attempt.ends_at is not None and barrier.at >= lane.attempt.ends_at
            )
            if cut is None and is_over and lane.writer.can_commit:
                cut = lane.writer.commit()
            if cut is not None:
                cuts.append(LaneCut(lane, cut))
        self._publish(sink, cuts)
        if sink.reader is not None and any(lane.wants_change for lane in sink.lanes.values()):
            self._change(sink)

    def _publish(self, sink: DatasetSink, cuts: Sequence[LaneCut]) -> frozenset[LaneId]:
        """Publish the cuts; the lanes that failed are given up, and are returned."""
        failed: set[LaneId] = set()
        for each, outcome in zip(cuts, self._publisher.publish(cuts) if cuts else (), strict=True):
            if isinstance(outcome, GobblinError):
                failed.add(each.lane.lane_id)
                self._rest(sink, each.lane, outcome)
                continue
            self._note_published(each.lane, outcome, {vnode: span.end for vnode, span in each.cut.spans.items()})
            for vnode, span in each.cut.spans.items():
                if sink.reader is not None:
                    sink.reader.truncate(vnode, span.end)
        if failed:
            self._assign(sink)
        return frozenset(failed)

    def _note_published(self, lane: HeldLane, publication: Publication, positions: Mapping[str, int]) -> None:
        lane.version = publication.lane_version
        lane.positions |= positions
        lane.is_described = True
        self._holding.failures.pop(lane.lane_id, None)
        self._progress.publish(publication)
        self.ports.stores.commits.mark_announced(publication.sequence_id)

    # Ends and failures ----------------------------------------------------------------------------------

    def _forget_lost(self) -> None:
        for sink in self.sinks.values():
            lost = [lane for lane in sink.lanes.values() if self._holding.keeper.is_lost(lane.lease)]
            if lost:
                self._drop(sink, lost)
                self._assign(sink)

    def _rest(self, sink: DatasetSink, lane: HeldLane, error: GobblinError) -> None:
        lane.writer.discard()
        self._publisher.close_attempts([lane])
        sink.lanes.pop(lane.lane_id, None)
        if isinstance(error, FencedError):
            self.ports.say(f"{lane.label}: taken over: {error}")
            self._holding.release([lane.lease])
        else:
            self._holding.rest(lane.lease, lane.label, error)

    def _fail(self, sink: DatasetSink, error: GobblinError) -> None:
        """The log of the dataset fails: its lanes are given up, and all of it rests."""
        sink.failures += 1
        rest_s = min(REST_S_MAX, REST_S * 2 ** (sink.failures - 1))
        sink.not_before_s = self.ports.clock.monotonic() + rest_s
        sink.start = None
        self.ports.say(f"{sink.urn}: rests for {rest_s:.0f} s: {error}")
        self._drop(sink, list(sink.lanes.values()))

    def _drop(self, sink: DatasetSink, lanes: Sequence[HeldLane]) -> None:
        for lane in lanes:
            lane.writer.discard()
            sink.lanes.pop(lane.lane_id, None)
        self._publisher.close_attempts(lanes)
        if lanes:
            self._holding.release([lane.lease for lane in lanes])
        if not sink.lanes:
            self._close_reader(sink)

    def _close_reader(self, sink: DatasetSink) -> None:
        if sink.reader is not None:
            sink.reader.close()
        sink.reader = None

    def _drain(self) -> None:
        """Wait for the next barrier of each log, and give its lanes back behind a cut."""
        waiting_s = 2 * self.ports.job.sink.every_s + 5.0
        deadline = self.ports.clock.monotonic() + waiting_s
        for sink in self.sinks.values():
            for lane in sink.lanes.values():
                lane.is_leaving = True
        while any(sink.reader is not None for sink in self.sinks.values()):
            if self.ports.clock.monotonic() > deadline:
                self.ports.say(f"no barrier came in {waiting_s:.0f} s: what was read since the last cut is read again")
                return
            for sink in self.sinks.values():
                self._read(sink)

    # Upkeep ---------------------------------------------------------------------------------------------

    def _clean(self) -> None:
        """A failure here never fails a lane: the next cleanup does it."""
        ports = self.ports
        leases = [lane.lease for sink in self.sinks.values() for lane in sink.lanes.values()]
        if not leases:
            return
        cleanup = Cleanup(ports.stores.commits, ports.open_file_system, ports.interrupt, self._holding.keeper.require)
        try:
            outcomes = cleanup.clean_all(
                leases,
                root_uri=ports.destination.root_uri,
                retire_grace_s=ports.job.retire_grace_s,
                fold=ports.job.log.bounds,
            )
            for error in (each for each in outcomes if isinstance(each, GobblinError)):
                ports.say(f"cleanup is left to the next time: {error}")
            for sink in self.sinks.values():
                if any(lane.number == 0 for lane in sink.lanes.values()):
                    ports.destination.prune(sink.urn)
            ports.events.deliver()
        except GobblinError as error:
            ports.say(f"cleanup is left to the next time: {error}")

    def _measure_lag(self) -> int:
        readers: Iterable[partial[Mapping[str, int]]] = [
            partial(sink.reader.measure_lag) for sink in self.sinks.values() if sink.reader is not None
        ]
        try:
            return sum(sum(measure().values()) for measure in readers)
        except GobblinError:
            return 0

    def _partition_of(self, lane: HeldLane) -> AssetPartition:
        return open_partition(self.sinks[lane.dataset_id].spec, self.ports.clock.now())
