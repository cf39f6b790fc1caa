"""A Kafka topic as a log of epochs: ``LogReader`` over the partitions, by one consumer in this process.

A vnode is a partition, and is called like the partition's watermark key (``MyTopic:0``). Barriers come by time, or from
marker records in the topic. A position is the next offset. It also moves over what no reader sees: the markers of
transactions, records of aborted ones, and gaps of compaction. With read_committed it never passes an open transaction.

Before a barrier is given, the brokers are asked for the topics' ids: an epoch has no record of a topic that was made
anew under the same name.

``TopicEpochs`` is such a log for a sink: its records are decoded by Arrow.
"""

import datetime as dt
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from gobblin_assets.errors import CorruptionError, RejectedError, RetryableError
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.model.clock import Clock, SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import WHOLE
from gobblin_assets.model.state import DatasetState
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.sources.kafka.arrow_decoding import ArrowDecoder
from gobblin_assets.sources.kafka.client_messages import ClientMessage, build_records, offset_of_message, time_ms_of
from gobblin_assets.sources.kafka.cluster import Cluster, Isolation, RecordMark, TopicPartition, read_mark
from gobblin_assets.sources.kafka.epoch_markers import (
    EPOCH_HEADER,
    EpochAlignment,
    MarkerBarriers,
    Reached,
    find_marker,
    read_epoch,
    reject_marker,
)
from gobblin_assets.sources.kafka.kafka_kind import KafkaSourceSpec, topic_options
from gobblin_assets.sources.kafka.keys import parse_key
from gobblin_assets.sources.kafka.log_consumer import LogConsumer, PolledPartition
from gobblin_assets.sources.kafka.mark_reader import mark_record
from gobblin_assets.sources.kafka.start_positions import find_start_positions
from gobblin_assets.sources.log_port import (
    NEVER_CUT,
    Barrier,
    LogItem,
    LogStart,
    RowDecoder,
    StreamChunk,
    UpdateVnodeBitmap,
    VnodeStart,
)
from gobblin_assets.sources.source_port import SourceRequest
from gobblin_assets.spec.job_spec import DatasetSpec, SinkSpec

ASK_EVERY_S: Final = 10.0
"""A topic in which no barrier comes is asked for its id so often, since its silence may be that of the brokers."""

POLL_S: Final = 0.1
NO_STARTS: Final[Mapping[str, VnodeStart]] = MappingProxyType({})

_MICROS: Final = dt.timedelta(microseconds=1)
_EPOCH_START: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LATEST_MS: Final = (dt.datetime(9999, 1, 1, tzinfo=dt.UTC) - _EPOCH_START) // dt.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class TimeBarriers:
    """A barrier over all vnodes every ``every_s`` seconds; its epoch is its time in microseconds since 1970."""

    every_s: float


@dataclass(slots=True)
class _Vnode:
    """One partition that is followed.

    ``position``: behind the last record that was given. ``cut``: the position of the last barrier.

    ``held`` are records behind a marker at which the vnode waits. ``mark``: the last record before the position, which
    is ``last`` if it was read here.
    """

    name: TopicPartition
    position: int
    cut: int
    mark: RecordMark | None = None
    last: ClientMessage | None = None
    held: list[ClientMessage] = field(default_factory=list)

    @property
    def fetched_to(self) -> int:
        return offset_of_message(self.held[-1]) + 1 if self.held else self.position

    @property
    def leader_epoch(self) -> int | None:
        """Of the last record before ``fetched_to``, by which the client checks that the log still goes on from it."""
        last = self.held[-1] if self.held else self.last
        return last.leader_epoch() if last is not None else None if self.mark is None else self.mark.leader_epoch

    def settle_mark(self) -> RecordMark | None:
        """Once for all records that were read since the last call."""
        if self.last is not None:
            self.mark, self.last = mark_record(self.last), None
        return self.mark


class KafkaEpochLog:
    """``LogReader`` over topics of one cluster. ``topic_ids`` are their ids when the positions were found.

    ``starts``: of vnodes by name, as they were found last; whoever finds them anew changes it. A position that is
    assigned has the history of the start at the same position.

    Every Barrier is a checkpoint. ``Barrier.at`` is the time by ``clock``; of barriers in the log, it is the latest
    time of their markers. Headers are NULL unless ``with_headers``, and times unless ``with_times``. Chunks are in
    ``RECORD_SCHEMA``.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        *,
        topic_ids: Mapping[str, str],
        barriers: TimeBarriers | MarkerBarriers,
        starts: Mapping[str, VnodeStart] = NO_STARTS,
        isolation: Isolation = "read_committed",
        with_headers: bool = False,
        with_times: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._monotonic = self._clock.monotonic
        self._consumer = LogConsumer(connection, topic_ids, isolation, self._monotonic)
        self._barriers = barriers
        self._starts = starts
        self._with_headers = with_headers
        self._with_times = with_times
        self._vnodes: dict[str, _Vnode] = {}
        self._names: dict[TopicPartition, str] = {}
        self._items: deque[StreamChunk | UpdateVnodeBitmap] = deque()
        self._chunks = 0
        self._is_moved = False
        self._last_epoch = 0
        self._due_at = float("inf")
        self._alignment = EpochAlignment()
        self._ready: set[str] = set()
        self._marked_at = self._monotonic()

    def assign(self, positions: Mapping[str, int], *, epochs: Mapping[str, int] = NEVER_CUT) -> None:
        names = {_parse_vnode(vnode): vnode for vnode in positions}
        if len(names) != len(positions):
            raise RejectedError("two vnodes are of one partition", field="positions", hint="Assign the newer one.")
        before, self._vnodes, self._names = self._vnodes, {}, names
        for vnode, position in positions.items():
            known = before.get(vnode)
            if known is not None and known.cut == position:
                self._vnodes[vnode] = known
                continue
            self._drop_chunks(vnode)
            self._vnodes[vnode] = _Vnode(_parse_vnode(vnode), position, position, self._find_mark(vnode, position))
            self._alignment.begin(vnode, epochs.get(vnode))
        for vnode in before.keys() - self._vnodes.keys():
            self._drop_chunks(vnode)
            self._alignment.drop(vnode)
        self._last_epoch = self._alignment.last = max(self._last_epoch, *epochs.values(), 0)
        self._items = deque(item for item in self._items if not isinstance(item, UpdateVnodeBitmap))
        self._items.appendleft(UpdateVnodeBitmap(frozenset(self._vnodes)))
        self._is_moved = True
        self._marked_at = self._monotonic()
        if isinstance(self._barriers, TimeBarriers) and self._due_at == float("inf"):
            self._due_at = self._monotonic() + self._barriers.every_s

    def read(self, *, wait_s: float) -> Iterator[LogItem]:
        deadline = self._monotonic() + wait_s
        is_first = True
        while True:
            while self._items:
                yield self._items.popleft()
            barrier = self._find_barrier()
            if barrier is not None:
                yield barrier
                continue
            now = self._monotonic()
            if now >= deadline and not is_first:
                return
            is_first = False
            # A barrier that is due already waits for the brokers' answer, which is no reason to poll without a pause.
            due_s = self._due_at - now if self._due_at > now else POLL_S
            self._fetch(max(0.0, min(POLL_S, deadline - now, due_s)))

    def rewind(self, vnode: str, position: int) -> None:
        self._drop_chunks(vnode)
        name = self._vnodes[vnode].name
        self._vnodes[vnode] = _Vnode(name, position, position, self._find_mark(vnode, position))
        self._alignment.begin(vnode, None)
        self._is_moved = True

    def truncate(self, published: Mapping[str, int]) -> None:
        """Kafka drops records by the topic's own retention."""

    def measure_lag(self) -> Mapping[str, int]:
        """A vnode whose end the brokers have not said is left out."""
        ends = self._consumer.find_ends()
        return {vnode: max(0, ends[each.name] - each.cut) for vnode, each in self._vnodes.items() if each.name in ends}

    def close(self) -> None:
        self._consumer.close()

    def _fetch(self, timeout_s: float) -> None:
        if self._is_moved:
            self._consumer.assign(
                {each.name: (each.fetched_to, each.leader_epoch) for each in self._vnodes.values()},
                paused=[each.name for vnode, each in self._vnodes.items() if self._alignment.waits(vnode)],
            )
            self._is_moved = False
        for name, found in self._consumer.poll(0 if self._ready else timeout_s).items():
            vnode = self._names.get(name)
            if vnode is not None:
                self._take(vnode, found)
        self._advance()
        if self._vnodes and self._consumer.age_s > ASK_EVERY_S:
            self._consumer.check_topics()
        self._require_markers()

    def _take(self, vnode: str, found: PolledPartition) -> None:
        each = self._vnodes[vnode]
        messages = found.messages
        if messages and offset_of_message(messages[0]) < each.fetched_to:
            messages = [message for message in messages if offset_of_message(message) >= each.fetched_to]
        if isinstance(self._barriers, MarkerBarriers):
            # The end event says nothing here: positions are those of markers.
            each.held += messages
            self._ready.add(vnode)
            return
        self._give(vnode, messages)
        if found.end is not None:
            each.position = max(each.position, found.end)

    def _give(self, vnode: str, messages: Sequence[ClientMessage]) -> None:
        if not messages:
            return
        each = self._vnodes[vnode]
        chunk = build_records(
            messages, with_headers=self._with_headers, with_times=self._with_times, partition=each.name
        )
        self._chunks += 1
        self._items.append(StreamChunk(vnode, chunk, self._chunks))
        each.last = messages[-1]
        each.position = offset_of_message(each.last) + 1

    def _drop_chunks(self, vnode: str) -> None:
        self._items = deque(
            item for item in self._items if not isinstance(item, StreamChunk) or item.vnode != vnode
        )  # fmt: skip

    def _find_mark(self, vnode: str, position: int) -> RecordMark | None:
        start = self._starts.get(vnode)
        return read_mark(start.history) if start is not None and start.position == position else None

    def _list_histories(self) -> Mapping[str, Mapping[str, object]]:
        """Of all vnodes, which are at a barrier."""
        marks = {vnode: each.settle_mark() for vnode, each in self._vnodes.items()}
        return {vnode: mark.write() for vnode, mark in marks.items() if mark is not None}

    def _find_barrier(self) -> Barrier | None:
        """A barrier, if one is due and the brokers say that the topics are the same."""
        if not self._vnodes:
            return None
        if isinstance(self._barriers, MarkerBarriers):
            return self._find_aligned()
        if self._monotonic() < self._due_at or not self._consumer.check_topics():
            return None
        self._due_at = self._monotonic() + self._barriers.every_s
        at = self._clock.now()
        self._last_epoch = max((at - _EPOCH_START) // _MICROS, self._last_epoch + 1)
        for each in self._vnodes.values():
            each.cut = each.position
        positions = {vnode: each.cut for vnode, each in self._vnodes.items()}
        return Barrier(self._last_epoch, positions, is_checkpoint=True, at=at, histories=self._list_histories())

    def _find_aligned(self) -> Barrier | None:
        if not self._alignment.is_whole or not self._consumer.check_topics():
            return None
        found = self._alignment.complete()
        for vnode, position in found.positions.items():
            self._vnodes[vnode].cut = position
        self._consumer.resume([each.name for each in self._vnodes.values()])
        self._ready.update(self._vnodes)
        self._last_epoch = found.epoch
        # Producers write any times into their records.
        has_time = 0 <= found.at_ms < _LATEST_MS
        at = _EPOCH_START + dt.timedelta(milliseconds=found.at_ms) if has_time else self._clock.now()
        return Barrier(found.epoch, found.positions, is_checkpoint=True, at=at, histories=self._list_histories())

    def _advance(self) -> None:
        """Give the records that were held behind a marker, up to the next one."""
        while self._ready:
            vnode = self._ready.pop()
            if vnode in self._vnodes and not self._alignment.waits(vnode):
                self._give_marked(vnode)

    def _give_marked(self, vnode: str) -> None:
        each = self._vnodes[vnode]
        while each.held and not self._alignment.waits(vnode):
            place = find_marker(each.held)
            self._give(vnode, each.held[:place])
            each.held = [] if place is None else each.held[place:]
            if each.held:
                self._pass_marker(vnode, each)

    def _pass_marker(self, vnode: str, each: _Vnode) -> None:
        """The vnode's next record is a marker. If it can't be passed, it stays the next one."""
        marker = each.held[0]
        epoch, position = read_epoch(marker, each.name), offset_of_message(marker) + 1
        before = self._alignment.epoch_of(vnode)
        reached = self._alignment.reach(vnode, epoch, position, time_ms_of(marker))
        if reached is Reached.BACK:
            raise reject_marker(marker, each.name, f"the marker of epoch {epoch} comes after the one of {before}")
        each.held = each.held[1:]
        each.last, each.position = marker, position
        self._marked_at = self._monotonic()
        if reached is Reached.WAITS:
            self._consumer.pause([each.name])
            released = self._alignment.find_released()
            self._consumer.resume([self._vnodes[other].name for other in released])
            self._ready.update(released)

    def _require_markers(self) -> None:
        missing = self._alignment.find_missing()
        if (
            not missing
            or not isinstance(self._barriers, MarkerBarriers)
            or self._monotonic() - self._marked_at <= self._barriers.alignment_s
        ):
            return
        lacking = self._vnodes[missing[0]]
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise RetryableError(
            f"{lacking.name}{more}: no marker of epoch {self._alignment.find_target()} up to offset "
            f"{lacking.position}, for which other partitions have waited {self._barriers.alignment_s:g} s",
            hint=f"Write a record with the header {EPOCH_HEADER} to every partition of the topic at each epoch. "
            "The records since the last epoch are read again.",
            topic=lacking.name.topic,
            partition=lacking.name.partition,
        )


def _parse_vnode(vnode: str) -> TopicPartition:
    key = parse_key(vnode)
    if key is None:
        raise RejectedError(
            f"{vnode!r} is no vnode of a topic", field="positions", hint="Write it like MyTopic:0, as its watermark."
        )
    return key.partition


class TopicEpochs:
    """``EpochSource`` of one topic."""

    def __init__(
        self,
        cluster: Cluster,
        connection: KafkaConnection,
        source: KafkaSourceSpec,
        sink: SinkSpec,
        urn: DatasetUrn,
        dataset: DatasetSpec,
    ) -> None:
        options = topic_options(dataset)
        self._cluster = cluster
        self._connection = connection
        self._source = source
        self._sink = sink
        self._urn = urn
        self._dataset = dataset
        self._topic = options.topic or urn
        self._with_headers = "headers" in options.kafka.keep
        self._decoder: ArrowDecoder | None = None
        # Also of the reader, which looks up what it is assigned.
        self._starts: dict[str, VnodeStart] = {}

    @property
    def stream(self) -> None:
        """Each topic is read by itself."""

    @property
    def decoder(self) -> RowDecoder:
        """RejectedError names an option that only Spark carries out."""
        if self._decoder is None:
            read = topic_options(self._dataset).kafka
            self._decoder = ArrowDecoder(read, self._topic, field=f"datasets[{self._urn}].kafka")
        return self._decoder

    def find_start(self, state: DatasetState) -> LogStart:
        request = SourceRequest(
            urn=self._urn, partition=WHOLE, state=state, mode=Mode.APPEND, by_hand=False, spec=self._dataset
        )
        found = find_start_positions(self._cluster, request, isolation=self._source.isolation)
        self._starts |= found.vnodes
        return LogStart(
            found.vnodes, facts=found.facts, notes=found.notes, degraded=found.degraded, memory=found.topic_id
        )

    def open_reader(self, starts: Sequence[LogStart], say: Callable[[str], None]) -> KafkaEpochLog:
        del say
        (start,) = starts
        if not isinstance(start.memory, str):
            raise CorruptionError(f"{self._urn}: where its topic begins was not asked")
        barriers: TimeBarriers | MarkerBarriers = TimeBarriers(self._sink.every_s)
        if self._sink.barriers == "log":
            barriers = MarkerBarriers(self._sink.alignment_s)
        return KafkaEpochLog(
            self._connection,
            topic_ids={self._topic: start.memory},
            barriers=barriers,
            starts=self._starts,
            isolation=self._source.isolation,
            with_headers=self._with_headers,
            # Records whose rows come from Spark are only counted.
            with_times=self._decoder is not None and self._decoder.needs_times,
        )
