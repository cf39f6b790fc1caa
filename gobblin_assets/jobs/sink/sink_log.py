"""Streams of records that a worker reads, and where they begin: the log of one dataset, or of several together.

Datasets that come together (the tables of a replication slot) have one reader, which one worker has at a time. They are
cut at the same barrier, so that what is published of them fits together.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from gobblin_assets.commit.lanes import DatasetLanes, LaneState
from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.jobs.sink.dataset_sink import DatasetSink, HeldLane
from gobblin_assets.jobs.sink.lane_shares import lanes_in_use
from gobblin_assets.jobs.sink.sink_ports import SinkPorts
from gobblin_assets.model.defects import find_family
from gobblin_assets.model.state import DatasetId, DatasetState, LaneId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.wording import join_some
from gobblin_assets.run.progress import said_if_slow
from gobblin_assets.sources.log_port import CopiedLog, EpochSource, LogReader, LogStart

DISCOVER_EVERY_S: Final = 30.0
"""How often a log is asked for new vnodes."""

SLOW_S: Final = 8.0

Failures = Sequence[tuple[DatasetSink, GobblinError]]
"""Datasets whose logs don't go on, and why."""


@dataclass(slots=True, eq=False)
class SinkLog:
    """A stream of records that this worker may read. ``reader`` is open while lanes are held.

    ``opened_for``: the starts of the datasets, as the reader got them. ``is_shared``: its datasets come together.
    ``is_contested``: another worker holds lanes of them as well, and gives them back at its next look.
    """

    sinks: tuple[DatasetSink, ...]
    is_shared: bool
    reader: LogReader | None = None
    opened_for: tuple[object, ...] = ()
    is_contested: bool = False

    @property
    def lanes(self) -> list[HeldLane]:
        """The lanes that this worker holds."""
        return [lane for sink in self.sinks for lane in sink.lanes.values()]

    @property
    def label(self) -> str:
        """The names of the datasets, for people."""
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
        """The published end of each vnode that was ever begun, also of datasets that nobody reads now."""
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


def ask_starts(
    sources: Mapping[DatasetUrn, EpochSource], states: Mapping[DatasetUrn, DatasetState]
) -> dict[DatasetUrn, LogStart | GobblinError]:
    """Where the datasets begin: one alone, or some of one stream, whose server is asked once. ``states`` come before.

    RejectedError may only say that another worker has published since ``states``: the log is then ahead of them.
    """
    said: Any = None
    shared = [source for source in sources.values() if isinstance(source, CopiedLog)]
    try:
        if shared:
            said = shared[0].ask_server()
    except Exception as error:  # noqa: BLE001  the failure of all that come together
        return dict.fromkeys(sources, find_family("the log's server could not be asked", error))
    return {urn: _find_start(source, said, states[urn]) for urn, source in sources.items()}


def _find_start(source: EpochSource, said: Any, state: DatasetState) -> LogStart | GobblinError:
    try:
        return source.find_start_in(said, state) if isinstance(source, CopiedLog) else source.find_start(state)
    except Exception as error:  # noqa: BLE001  the failure of this dataset; others go on
        return find_family("where it begins could not be asked", error)


@dataclass(frozen=True, slots=True)
class SinkStarts:
    """The starts of a worker's datasets, which are asked for, and noted in them.

    The server of a stream is asked once for all of its datasets.
    """

    ports: SinkPorts

    def find_ready(self, log: SinkLog, now_s: float) -> tuple[list[DatasetSink], Failures]:
        """The datasets of which it is known where they begin; those that are due are asked anew."""
        awake = [sink for sink in log.sinks if now_s >= sink.back_off_until_s]
        due = [sink for sink in awake if sink.start is None or now_s - sink.started_s >= DISCOVER_EVERY_S]
        if not due:
            return awake, ()
        # What the commit log does not answer is no fault of the datasets' log.
        states = self._load_states(due)
        with self._said_if_slow(due):
            found = ask_starts({sink.urn: sink.source for sink in due}, states)
        failed = [(sink, error) for sink in due if isinstance(error := found[sink.urn], GobblinError)]
        # Another worker may have published since: such a dataset is asked anew in the next round.
        refused = [sink for sink, error in failed if isinstance(error, RejectedError)]
        newer = self._load_states(refused) if refused else {}
        late = {sink.urn for sink in refused if newer[sink.urn] != states[sink.urn]}
        for sink in due:
            start = found[sink.urn]
            if isinstance(start, LogStart):
                self._note(sink, start, now_s)
        unready = {sink.urn for sink, _error in failed}
        return [sink for sink in awake if sink.urn not in unready], [each for each in failed if each[0].urn not in late]

    def renew(self, sinks: Sequence[DatasetSink]) -> Failures:
        """Ask anew where these datasets of one log begin, behind what is published."""
        try:
            states = self._load_states(sinks) if sinks else {}
        except Exception as error:  # noqa: BLE001  the failure of these datasets
            failure = find_family("their states could not be loaded", error)
            return [(sink, failure) for sink in sinks]
        with self._said_if_slow(sinks):
            found = ask_starts({sink.urn: sink.source for sink in sinks}, states)
        failed = []
        for sink in sinks:
            start = found[sink.urn]
            if isinstance(start, GobblinError):
                failed.append((sink, start))
            else:
                sink.note_start(start)
        return failed

    def _said_if_slow(self, sinks: Sequence[DatasetSink]) -> AbstractContextManager[None]:
        """A client of brokers tries for half a minute before it says what is wrong."""
        if not sinks:
            return nullcontext()
        more = f" and {len(sinks) - 1} more" if len(sinks) > 1 else ""
        asked = f"the connection {self.ports.job.source.connection} has not answered for {SLOW_S:g} s"
        line = f"{sinks[0].urn}{more}: {asked}, and is asked on"
        return said_if_slow(self.ports.say, line, after_s=SLOW_S)

    def _note(self, sink: DatasetSink, start: LogStart, now_s: float) -> None:
        if sink.start is None:
            for note in (*start.notes, *start.degraded):
                self.ports.say(f"{sink.urn}: {note}")
        sink.note_start(start, now_s)

    def _load_states(self, sinks: Sequence[DatasetSink]) -> Mapping[DatasetUrn, DatasetState]:
        return self.ports.stores.datasets.load(JobName(self.ports.job.job), [sink.urn for sink in sinks])
