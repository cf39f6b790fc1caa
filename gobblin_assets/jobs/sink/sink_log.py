"""One stream of records that a worker reads: the log of one dataset, or of several that come together.

Datasets that come together (the tables of a replication slot) have one reader, which one worker has at a time. They are
cut at the same barrier, so that what is published of them fits together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gobblin_assets.commit.lanes import DatasetLanes, LaneState
from gobblin_assets.jobs.sink.dataset_sink import DatasetSink, HeldLane
from gobblin_assets.jobs.sink.lane_shares import lanes_in_use
from gobblin_assets.model.state import DatasetId, LaneId
from gobblin_assets.model.wording import join_some
from gobblin_assets.sources.log_port import LogReader


@dataclass(slots=True, eq=False)
class SinkLog:
    """A stream of records that this worker may read. ``reader`` is open while lanes are held.

    ``opened_for``: what the reader was told of the starts of the datasets. ``is_shared``: its datasets come together.
    ``is_contested``: another worker holds lanes of them as well, and gives them back at its next look.
    """

    sinks: tuple[DatasetSink, ...]
    is_shared: bool
    reader: LogReader | None = None
    opened_for: tuple[object, ...] = ()
    is_contested: bool = False

    @property
    def lanes(self) -> list[HeldLane]:
        """Those that this worker holds."""
        return [lane for sink in self.sinks for lane in sink.lanes.values()]

    @property
    def label(self) -> str:
        """For people."""
        return join_some([sink.urn for sink in self.sinks])

    @property
    def is_reading(self) -> bool:
        """Whether the lanes that this worker holds have vnodes to read."""
        return any(lane.read_to for lane in self.lanes)

    @property
    def memories(self) -> tuple[object, ...]:
        return tuple(sink.start.memory for sink in self.sinks if sink.start is not None)

    def owner_of(self, vnode: str) -> HeldLane | None:
        return next((lane for lane in self.lanes if vnode in lane.read_to), None)

    def list_units(
        self, ready: Sequence[DatasetSink], found: Mapping[DatasetId, DatasetLanes]
    ) -> list[list[LaneState]]:
        """The lanes in use of its datasets that are ``ready``, in groups that one worker holds together."""
        mine = [sink for sink in self.sinks if sink in ready]
        lanes = [lane for sink in mine for lane in lanes_in_use(found[sink.dataset_id])]
        return ([lanes] if lanes else []) if self.is_shared else [[lane] for lane in lanes]

    def is_held_elsewhere(self, found: Mapping[DatasetId, DatasetLanes]) -> bool:
        """Whether another worker has the stream, which nobody else may read then."""
        if not self.is_shared or self.lanes:
            return False
        return any(self._list_foreign(found))

    def note_contest(self, found: Mapping[DatasetId, DatasetLanes]) -> None:
        self.is_contested = self.is_shared and any(self._list_foreign(found))

    def list_published(self) -> dict[str, int]:
        """Up to where each vnode is published that was ever begun; also of datasets that nobody reads now."""
        published: dict[str, int] = {}
        for sink in self.sinks:
            published |= sink.published
        for lane in self.lanes:
            published |= {vnode: at for vnode, at in lane.positions.items() if at is not None}
        return published

    def _list_foreign(self, found: Mapping[DatasetId, DatasetLanes]) -> list[LaneId]:
        mine = {lane.lane_id for lane in self.lanes}
        return [
            lane.lane_id
            for sink in self.sinks
            for lane in found[sink.dataset_id].lanes
            if lane.is_live and lane.lane_id not in mine
        ]


@dataclass(frozen=True, slots=True)
class SinkLogs:
    """The logs of a worker's datasets."""

    logs: tuple[SinkLog, ...]
    _of: Mapping[DatasetId, SinkLog] = field(repr=False)

    def of(self, sink: DatasetSink) -> SinkLog:
        return self._of[sink.dataset_id]


def gather_logs(sinks: Sequence[DatasetSink]) -> SinkLogs:
    """Datasets whose sources name the same stream come together."""
    shared: dict[str, list[DatasetSink]] = {}
    logs: list[SinkLog] = []
    for sink in sinks:
        if sink.source.stream is None:
            logs.append(SinkLog((sink,), is_shared=False))
        else:
            shared.setdefault(sink.source.stream, []).append(sink)
    logs += [SinkLog(tuple(some), is_shared=True) for some in shared.values()]
    return SinkLogs(tuple(logs), {sink.dataset_id: log for log in logs for sink in log.sinks})
