"""A log in memory, whose readers cut and order the chunks of an epoch anew at each reading, as the port allows."""

import datetime as dt
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.log_port import NEVER_CUT, Barrier, LogItem, StreamChunk, UpdateVnodeBitmap

STARTED_AT: Final = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class _Epoch:
    """``ends``: the position of each vnode at its barrier."""

    number: int
    ends: Mapping[str, int]
    is_checkpoint: bool
    at: dt.datetime


@dataclass
class FakeLog:
    """Positions count records of a vnode from 0. ``end_epoch`` puts a barrier behind what was appended.

    A position may be skipped (``skip``), as control records of a real log do.
    """

    vnodes: Sequence[str]
    schema: pa.Schema
    _records: dict[str, list[pa.RecordBatch | None]] = field(default_factory=dict)
    _epochs: list[_Epoch] = field(default_factory=list)
    _truncated: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._records = {vnode: [] for vnode in self.vnodes}
        self._truncated = dict.fromkeys(self.vnodes, 0)

    def append(self, vnode: str, rows: pa.RecordBatch) -> None:
        self._records[vnode] += [rows.slice(place, 1) for place in range(rows.num_rows)]

    def skip(self, vnode: str) -> None:
        self._records[vnode].append(None)

    def end_epoch(self, *, is_checkpoint: bool = True, after_s: float = 1.0) -> None:
        """``after_s``: seconds since the barrier before."""
        at = (self._epochs[-1].at if self._epochs else STARTED_AT) + dt.timedelta(seconds=after_s)
        self._epochs.append(_Epoch(len(self._epochs) + 1, self.ends(), is_checkpoint, at))

    def ends(self) -> dict[str, int]:
        return {vnode: len(records) for vnode, records in self._records.items()}

    def open_reader(self, seed: int) -> "FakeReader":
        return FakeReader(self, random.Random(seed))

    def rows_of(self, vnode: str, start: int, end: int) -> list[pa.RecordBatch]:
        if start < self._truncated[vnode]:
            raise RejectedError(
                f"the log has nothing before {self._truncated[vnode]} of {vnode!r}, and {start} is asked for",
                field="position",
            )
        return [each for each in self._records[vnode][start:end] if each is not None]

    def drop(self, vnode: str, position: int) -> None:
        self._truncated[vnode] = max(self._truncated[vnode], position)

    def truncated(self) -> dict[str, int]:
        """Where each vnode begins now."""
        return dict(self._truncated)

    def epoch_after(self, vnode: str, position: int) -> int:
        """The index of the epoch that begins at the position. RejectedError if no barrier was there."""
        begins = [0, *(each.ends[vnode] for each in self._epochs)]
        if position not in begins or position < self._truncated[vnode]:
            raise RejectedError(f"{position} is no place of a barrier in {vnode!r}", field="position")
        return len(begins) - 1 - begins[::-1].index(position)

    def find_epoch(self, index: int) -> _Epoch | None:
        return self._epochs[index] if index < len(self._epochs) else None


@dataclass(slots=True)
class _Place:
    """Where a reader is: ``barrier``: position of the last one, ``given``: records behind it that were given."""

    index: int
    barrier: int
    given: set[int] = field(default_factory=set)


@dataclass
class FakeReader:
    """``LogReader`` of one FakeLog. A read ends at a random item, or at the end of the log; it never waits.

    Like a consumer of Kafka's, it can't be read once it is closed.

    Records of an epoch that has not ended are given as well.
    """

    log: FakeLog
    chance: random.Random
    _places: dict[str, _Place] = field(default_factory=dict)
    _has_new_vnodes: bool = False
    _chunk_id: int = 0
    _is_closed: bool = False

    def assign(self, positions: Mapping[str, int], *, epochs: Mapping[str, int] = NEVER_CUT) -> None:
        # The numbers of epochs are the log's own: those behind a position are above the one of its barrier.
        del epochs
        self._places = {
            vnode: self._places[vnode]
            if vnode in self._places and self._places[vnode].barrier == position
            else _Place(self.log.epoch_after(vnode, position), position)
            for vnode, position in positions.items()
        }
        self._has_new_vnodes = True

    def read(self, *, wait_s: float) -> Iterator[LogItem]:
        del wait_s
        if self._has_new_vnodes:
            self._has_new_vnodes = False
            yield UpdateVnodeBitmap(frozenset(self._places))
        while self._places:
            index = min(each.index for each in self._places.values())
            mine = {vnode: each for vnode, each in self._places.items() if each.index == index}
            for chunk in self._cut(index, mine):
                yield chunk
                assert not self._is_closed, "read after its end"
                if self.chance.random() < 0.1:
                    return
            epoch = self.log.find_epoch(index)
            if epoch is None:
                return
            for vnode, place in mine.items():
                place.index, place.barrier, place.given = index + 1, epoch.ends[vnode], set()
            yield Barrier(epoch.number, {vnode: epoch.ends[vnode] for vnode in mine}, epoch.is_checkpoint, epoch.at)

    def _cut(self, index: int, places: Mapping[str, _Place]) -> Iterator[StreamChunk]:
        """What was not given of the epoch, in chunks of any size, of all vnodes in any order."""
        epoch = self.log.find_epoch(index)
        ends = self.log.ends() if epoch is None else epoch.ends
        chunks: list[tuple[str, list[int]]] = []
        for vnode, place in places.items():
            left = [each for each in range(place.barrier, ends[vnode]) if each not in place.given]
            while left:
                count = self.chance.randint(1, len(left))
                chunks.append((vnode, left[:count]))
                left = left[count:]
        self.chance.shuffle(chunks)
        for vnode, records in chunks:
            # Marked before it is given: whoever stops the reading has the chunk.
            places[vnode].given.update(records)
            rows = [row for each in records for row in self.log.rows_of(vnode, each, each + 1)]
            if rows:
                self._chunk_id += 1
                yield StreamChunk(vnode, pa.concat_batches(rows), self._chunk_id)

    def rewind(self, vnode: str, position: int) -> None:
        self._places[vnode] = _Place(self.log.epoch_after(vnode, position), position)

    def truncate(self, published: Mapping[str, int]) -> None:
        for vnode, position in published.items():
            self.log.drop(vnode, position)

    def measure_lag(self) -> Mapping[str, int]:
        ends = self.log.ends()
        return {vnode: ends[vnode] - place.barrier for vnode, place in self._places.items()}

    def close(self) -> None:
        self._places = {}
        self._is_closed = True
