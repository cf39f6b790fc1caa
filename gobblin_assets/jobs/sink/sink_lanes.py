"""The lanes that a worker holds: looking at the log, taking and giving back, moving vnodes, publishing, failing.

A lane changes (it joins, leaves, gets or gives vnodes) at a barrier only, when nothing of it waits. A lane that fails
is given back and left alone for a while. Its next holder goes on from the log; the other lanes go on.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gobblin_assets.commit.lanes import DatasetLanes
from gobblin_assets.commit.sequence import Publication
from gobblin_assets.errors import FencedError, GobblinError, OutcomeUnknownError, RetryableError
from gobblin_assets.jobs.sink.alike_workers import refuse_other
from gobblin_assets.jobs.sink.cut_publishing import CutPublisher
from gobblin_assets.jobs.sink.dataset_sink import DatasetSink, HeldLane, LaneCut
from gobblin_assets.jobs.sink.lane_holding import LaneHolding, decide_back_off_s, list_back_offs
from gobblin_assets.jobs.sink.lane_shares import (
    decide_quota,
    decide_shares,
    lanes_out_of_use,
    plan_moves,
    plan_places,
)
from gobblin_assets.jobs.sink.lane_writer import Cut, VnodeSpan
from gobblin_assets.jobs.sink.sink_log import Failures, SinkLog, SinkLogs, SinkStarts
from gobblin_assets.jobs.sink.sink_ports import SinkPorts
from gobblin_assets.jobs.sink.sink_progress import SinkMeasures, SinkProgress
from gobblin_assets.model.defects import explain_exception
from gobblin_assets.model.state import DatasetId, LaneId, RunId
from gobblin_assets.model.urn import JobName
from gobblin_assets.model.wording import join_some
from gobblin_assets.sources.log_port import LogStart
from gobblin_assets.state.datasets import keep_loss
from gobblin_assets.state.sinks import SinkBackOff, SinkWorkerRow


@dataclass(slots=True)
class SinkLanes:
    """The lanes of a worker, of all its datasets. ``is_drained``: somebody asked the worker to end.

    ``looked_at``: the worker's clock when it last looked at the log. A sequence that it begins from then on has a
    window that is open then, or later. A sequence that it began before is in the log. ``back_offs``: what was left
    alone when the last look ended.
    """

    ports: SinkPorts
    sinks: Mapping[DatasetId, DatasetSink]
    logs: SinkLogs
    run_id: RunId
    holding: LaneHolding
    publisher: CutPublisher
    progress: SinkProgress
    is_drained: bool = False
    looked_at: dt.datetime | None = None
    back_offs: Sequence[SinkBackOff] = ()
    _starts: SinkStarts = field(init=False)
    _measures: SinkMeasures = field(init=False)

    def __post_init__(self) -> None:
        self._starts = SinkStarts(self.ports)
        self._measures = SinkMeasures(self.sinks, self.logs, self.ports.say)

    def count_in(self) -> Sequence[SinkWorkerRow]:
        """Be counted as alive for as long as leases last; returns all live workers. Any thread may call it."""
        ports = self.ports
        me = SinkWorkerRow(
            self.run_id,
            self.holding.holder.owner,
            ports.configuration,
            looked_at=self.looked_at,
            lags=self._measures.lags,
            back_offs=self.back_offs,
        )
        return ports.stores.sink_workers.beat(JobName(ports.job.job), me, ttl_s=ports.job.lease.ttl_s)

    def look(self, now_s: float) -> None:
        """Look at the log once: count the workers, take and give back, and note what the lanes are to do."""
        ports = self.ports
        self.looked_at = ports.clock.now()
        self._measures.measure_lags(now_s)
        workers = self.count_in()
        self.is_drained = any(each.is_drained for each in workers if each.run_id == self.run_id)
        for other in workers:
            # The newer one yields: whoever joins by mistake never ends those that are at work.
            if other.configuration != ports.configuration and other.run_id < self.run_id:
                raise refuse_other(ports.job, other)
        self._forget_lost()
        found = ports.stores.lanes.load(*self.sinks)
        ready = self._find_ready(found, now_s)
        units = [unit for log in self.logs.logs for unit in log.list_units(ready, found)]
        mine = frozenset(lane_id for sink in self.sinks.values() for lane_id in sink.lanes)
        quota = decide_quota([each.run_id for each in workers], self.run_id, len(units))
        shares = decide_shares(units, mine, quota, self.holding.list_backing_off())
        held = sum(any(lane.lane_id in mine for lane in unit) for unit in units)
        self.progress.note_share(held, quota, len(workers), len(units))
        by_lane = {lane.lane_id: sink for sink in ready for lane in found[sink.dataset_id].lanes}
        for lane in self.holding.take({lane_id: by_lane[lane_id] for lane_id in shares.take}):
            lane.hold()
        for lane_id in shares.give_back:
            by_lane[lane_id].lanes[lane_id].leave()
        if shares.take:
            found = ports.stores.lanes.load(*self.sinks)
        for log in self.logs.logs:
            self._note_log(log, [sink for sink in log.sinks if sink in ready], found)
        self.back_offs = list_back_offs(self.sinks.values(), self.holding, now_s)
        self._measures.say_kept(self.back_offs, now_s)

    def _find_ready(self, found: Mapping[DatasetId, DatasetLanes], now_s: float) -> list[DatasetSink]:
        ready: list[DatasetSink] = []
        failed: list[tuple[DatasetSink, GobblinError]] = []
        for log in self.logs.logs:
            if not log.is_held_elsewhere(found):
                started, failures = self._starts.find_ready(log, now_s)
                ready += started
                failed += failures
        self.fail_datasets(failed)
        return ready

    def _note_log(self, log: SinkLog, ready: Sequence[DatasetSink], found: Mapping[DatasetId, DatasetLanes]) -> None:
        log.note_contest(found)
        for sink in log.sinks:
            sink.note_published(found[sink.dataset_id])
        for sink in ready:
            try:
                self._note_changes(sink, found[sink.dataset_id])
            except (RetryableError, OutcomeUnknownError):
                raise
            except Exception as error:  # noqa: BLE001  the failure of this dataset; others go on
                self.fail_dataset(sink, self.explain(sink.urn, error))
        if log.reader is not None:
            return
        if log.is_contested:
            # Nothing was read here: the worker that has the log's other lanes waits for these.
            self._give_back(log, [lane for lane in log.lanes if lane.is_leaving])
        elif any(lane.wants_change for lane in log.lanes):
            self.change(log)

    def take_unused(self) -> list[HeldLane]:
        """The free lanes that are out of use, of datasets whose first lane is held here, recovered; give them back.

        Nobody else looks at what their last holders left.
        """
        mine = [sink for sink in self.sinks.values() if any(lane.number == 0 for lane in sink.lanes.values())]
        found = self.ports.stores.lanes.load(*(sink.dataset_id for sink in mine)) if mine else {}
        backing_off = self.holding.list_backing_off()
        unused = {
            lane.lane_id: sink
            for sink in mine
            for lane in lanes_out_of_use(found[sink.dataset_id])
            if not lane.is_live and lane.lane_id not in backing_off
        }
        return self.holding.take(unused)

    def _note_changes(self, sink: DatasetSink, found: DatasetLanes) -> None:
        """Note what each of the dataset's lanes is to do at its next barrier. Vnodes without a lane get one."""
        places = plan_places(found, sorted(sink.vnodes))
        moves = plan_moves(found, sink.vnodes)
        of_lane = {state.lane_id: state for state in found.lanes}
        for lane in list(sink.lanes.values()):
            state = of_lane[lane.lane_id]
            new = [vnode for vnode, number in places.items() if number == lane.number]
            try:
                placed = self.ports.stores.lanes.place(lane.lease, new) if new else frozenset()
            except FencedError as error:
                self.fail(lane, error)
                continue
            lane.plan_change(moves.get(lane.number, {}), state.vnodes.keys() | placed)

    def change(self, log: SinkLog) -> None:
        """Carry out what lanes are to do. All vnodes of the log are at a barrier, or none is read yet."""
        changing = [lane for lane in log.lanes if lane.wants_change and lane.writer.can_commit]
        cuts = [found for lane in changing if (found := self.cut(lane)) is not None]
        failed = self.publish(log, cuts)
        changing = [lane for lane in changing if lane.lane_id not in failed and lane.is_held]
        self._give_back(log, [lane for lane in changing if lane.is_leaving])
        staying = [lane for lane in changing if not lane.is_leaving]
        # The log is asked once for all of them: what joins a lane was the lane's before.
        joined = [sink for sink in log.sinks if any(lane.sink is sink and lane.joining for lane in staying)]
        self.fail_datasets(self._starts.renew(joined))
        for lane in staying:
            if lane.is_held:
                self._change_lane(lane)
        self.assign(log, is_at_barrier=True)

    def _give_back(self, log: SinkLog, leaving: Sequence[HeldLane]) -> None:
        for lane in leaving:
            self.ports.say(f"{lane.label}: given back")
        for sink in log.sinks:
            self.drop(sink, [lane for lane in leaving if lane.sink is sink])

    def _change_lane(self, lane: HeldLane) -> None:
        try:
            self._move_vnodes(lane)
            self._join_vnodes(lane, lane.sink.start)
        except Exception as error:  # noqa: BLE001  the failure of this lane; others go on
            self._back_off(lane, self.explain(lane.label, error))

    def _move_vnodes(self, lane: HeldLane) -> None:
        by_target: dict[int, list[str]] = {}
        for vnode, target in lane.moves.items():
            by_target.setdefault(target, []).append(vnode)
        lanes = self.ports.stores.lanes
        lane.give([v for target, vnodes in by_target.items() for v in lanes.move(lane.lease, target, vnodes)])

    def _join_vnodes(self, lane: HeldLane, start: LogStart | None) -> None:
        """Read the lane's vnodes from where they are published up to. The log learns where a new one begins first."""
        if start is None:
            raise AssertionError(f"{lane.urn} was not started")
        unsaid = lane.join(start)
        if unsaid:
            now = self.ports.clock.now()
            spans = {
                vnode: VnodeSpan(position, position, start.vnodes[vnode].history) for vnode, position in unsaid.items()
            }
            cut = Cut(spans=spans, files=(), row_counts={}, epoch=lane.epoch or 0, opened_at=now, at=now)
            (outcome,) = self.publisher.publish([LaneCut(lane, cut)])
            if isinstance(outcome, GobblinError):
                raise outcome
            self._announce([outcome])
            self._note_published(lane, outcome, unsaid)

    def assign(self, log: SinkLog, *, is_at_barrier: bool = False) -> None:
        """``is_at_barrier``: no record was given behind the last barrier, so that another reader may go on from it."""
        try:
            if is_at_barrier and log.opened_for != log.memories:
                self._close_reader(log)
            if log.reader is None and log.is_reading:
                self._renew_starts(log)
            if not log.is_reading:
                self._close_reader(log)
                return
            positions = {vnode: at for lane in log.lanes for vnode, at in lane.read_to.items()}
            epochs = {vnode: lane.epoch for lane in log.lanes if lane.epoch is not None for vnode in lane.read_to}
            starts = [sink.start for sink in log.sinks if sink.start is not None]
            if log.reader is None and starts:
                log.opened_for = log.memories
                log.reader = log.sinks[0].source.open_reader(starts, self.ports.say)
            if log.reader is not None:
                log.reader.assign(positions, epochs=epochs)
        except Exception as error:  # noqa: BLE001  the failure of what comes from this log
            self.fail_log(log, self.explain(log.label, error))

    def _renew_starts(self, log: SinkLog) -> None:
        """A new reader must know what the last one learnt: what a copy has, for instance."""
        self.fail_datasets(
            self._starts.renew([sink for sink in log.sinks if sink.start is not None and sink.is_start_old])
        )

    def cut(self, lane: HeldLane) -> LaneCut | None:
        """A cut of the lane at its last barrier; None: no position moved, or the lane has failed."""
        try:
            cut = lane.writer.commit()
        except Exception as error:  # noqa: BLE001  the failure of this lane; others go on
            self.fail(lane, error)
            return None
        return None if cut is None else LaneCut(lane, cut)

    def publish(self, log: SinkLog, cuts: Sequence[LaneCut]) -> frozenset[LaneId]:
        """Publish the cuts; the lanes that failed are given up, and are returned."""
        failed: set[LaneId] = set()
        outcomes = self._publish(log, cuts) if cuts else []
        self._announce(outcomes)
        for each, outcome in zip(cuts, outcomes, strict=True):
            if isinstance(outcome, GobblinError):
                failed.add(each.lane.lane_id)
                self._back_off(each.lane, outcome)
                continue
            each.lane.sink.note_success()
            self._note_published(each.lane, outcome, {vnode: span.end for vnode, span in each.cut.spans.items()})
        if log.reader is not None and len(failed) < len(cuts):
            try:
                log.reader.truncate(log.list_published())
            except Exception as error:  # noqa: BLE001  the failure of what comes from this log
                self.fail_log(log, self.explain(log.label, error))
        if failed:
            self.assign(log)
        return frozenset(failed)

    def _publish(self, log: SinkLog, cuts: Sequence[LaneCut]) -> Sequence[Publication | GobblinError]:
        try:
            return self.publisher.publish(cuts)
        except Exception as error:  # noqa: BLE001  the failure of these lanes; what is sealed is recovered
            return [self.explain(log.label, error)] * len(cuts)

    def _announce(self, outcomes: Sequence[Publication | GobblinError]) -> None:
        """A sink's publications are not reported one by one; old ones can be folded."""
        published = [each.sequence_id for each in outcomes if not isinstance(each, GobblinError)]
        if not published:
            return
        try:
            self.ports.stores.commits.mark_announced(*published)
        except Exception as error:  # noqa: BLE001  publications that are done are no failure
            self.ports.say(f"publications are marked later: {error}")

    def _note_published(self, lane: HeldLane, publication: Publication, positions: Mapping[str, int]) -> None:
        lane.note_published(publication, positions)
        self.holding.failures.pop(lane.lane_id, None)
        self.progress.publish(publication)

    # Ends and failures ----------------------------------------------------------------------------------

    def _forget_lost(self) -> None:
        for sink in self.sinks.values():
            lost = [lane for lane in sink.lanes.values() if self.holding.keeper.is_lost(lane.lease)]
            if lost:
                self.drop(sink, lost)
                self.assign(self.logs.of(sink))

    def explain(self, label: str, error: Exception) -> GobblinError:
        """The failure of a lane, or of datasets, by whatever a library has raised."""
        return explain_exception(label, error, self.ports.say)

    def fail(self, lane: HeldLane, error: Exception) -> None:
        """Let the lane back off; the others of its log go on."""
        self._back_off(lane, self.explain(lane.label, error))
        self.assign(self.logs.of(lane.sink))

    def _back_off(self, lane: HeldLane, error: GobblinError) -> None:
        lane.sink.note_failure(error)
        self._discard(lane)
        self.publisher.close_attempts([lane], str(error))
        lane.let_go()
        if isinstance(error, FencedError):
            self.ports.say(f"{lane.label}: taken over: {error}")
            self.holding.release([lane.lease])
        else:
            self.holding.back_off(lane.lease, lane.label, error)

    def fail_datasets(self, failures: Failures) -> None:
        """Let these datasets back off, for which the log does not go on: their lanes are given up.

        What has hit several at once is said once.
        """
        of_text: dict[str, list[tuple[DatasetSink, float]]] = {}
        for sink, error in failures:
            of_text.setdefault(str(error), []).append((sink, self._give_up(sink, error)))
        for text, hit in of_text.items():
            names, wait_s = join_some([sink.urn for sink, _wait_s in hit]), max(wait_s for _sink, wait_s in hit)
            self.ports.say(f"{names}: {'backs' if len(hit) == 1 else 'back'} off for {wait_s:.0f} s: {text}")

    def fail_log(self, log: SinkLog, error: GobblinError) -> None:
        """Let all datasets of a log that fails back off."""
        self.fail_datasets([(sink, error) for sink in log.sinks])

    def fail_dataset(self, sink: DatasetSink, error: GobblinError) -> None:
        """Let the dataset back off; those that come together with it go on."""
        self.fail_datasets([(sink, error)])
        self.assign(self.logs.of(sink))

    def _give_up(self, sink: DatasetSink, error: GobblinError) -> float:
        keep_loss(self.ports.stores.datasets, sink.dataset_id, error)
        wait_s = decide_back_off_s(sink.failures + 1)
        sink.back_off(error, self.ports.clock.monotonic() + wait_s)
        self.drop(sink, list(sink.lanes.values()))
        return wait_s

    def drop(self, sink: DatasetSink, lanes: Sequence[HeldLane]) -> None:
        for lane in lanes:
            self._discard(lane)
            lane.let_go()
        self.publisher.close_attempts(lanes)
        if lanes:
            self.holding.release([lane.lease for lane in lanes])
        log = self.logs.of(sink)
        if not log.lanes:
            self._close_reader(log)

    def _discard(self, lane: HeldLane) -> None:
        """Close the lane's files, however that goes: whoever recovers the lane removes them."""
        try:
            lane.writer.discard()
        except Exception as error:  # noqa: BLE001  what is given up can't fail
            self.ports.say(f"{lane.label}: its files were not closed: {error}")

    def _close_reader(self, log: SinkLog) -> None:
        reader, log.reader = log.reader, None
        if reader is not None:
            try:
                reader.close()
            except Exception as error:  # noqa: BLE001  what is given up can't fail
                self.ports.say(f"{log.label}: its reader was not closed: {error}")
