"""Logs that are functions of a seed, with a source and a decoder of their records, for sinks."""

import datetime as dt
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from gobblin_assets.jobs.sink.sink_rules import EMPTY_CUT_AGE_S
from gobblin_assets.model.state import DatasetState
from gobblin_assets.model.urn import Role
from gobblin_assets.sources.log_port import NEVER_CUT, Barrier, DecodedRows, LogItem, LogStart, VnodeStart
from tests.support.fake_log import STARTED_AT, FakeLog, FakeReader

COLUMNS: Final = (("vnode", "string"), ("n", "bigint"))
_RECORDS: Final = pa.schema([("vnode", pa.string()), ("n", pa.int64()), ("is_bad", pa.bool_())])
_PACE_S: Final = 0.005
"""Between barriers behind the log's end."""

Records = Counter[tuple[str, str, int]]
"""Role, vnode and number of each record."""


def make_random_log(seed: int, vnode_count: int, epoch_count: int, *, empty_share: float = 0.0) -> FakeLog:
    """A function of the seed: epochs with few records, gaps, and barriers at which nothing may be cut.

    ``empty_share``: of epochs, which last long, in which positions move and no record comes.
    """
    chance = random.Random(seed)
    log = FakeLog([f"p{number}" for number in range(vnode_count)], _RECORDS)
    numbers = itertools.count()
    for epoch in range(1, epoch_count + 1):
        is_last = epoch == epoch_count
        is_empty = not is_last and empty_share > 0 and chance.random() < empty_share
        for vnode in log.vnodes:
            count = 0 if is_empty else chance.randint(1 if is_last else 0, 4)
            rows = [{"vnode": vnode, "n": next(numbers), "is_bad": chance.random() < 0.2} for _row in range(count)]
            if is_empty or chance.random() < 0.3:
                log.skip(vnode)
            log.append(vnode, pa.RecordBatch.from_pylist(rows, schema=_RECORDS))
        log.end_epoch(is_checkpoint=is_last or chance.random() < 0.7, after_s=EMPTY_CUT_AGE_S if is_empty else 1.0)
    return log


def records_of(log: FakeLog) -> Records:
    """What a sink is to publish of the log, of which nothing is truncated yet."""
    return Counter(
        ((Role.DEAD_LETTER if row["is_bad"] else Role.DATA).value, vnode, row["n"])
        for vnode, end in log.ends().items()
        for record in log.rows_of(vnode, 0, end)
        for row in record.to_pylist()
    )


@dataclass(frozen=True)
class Decoder:
    """Records that are bad become dead letters."""

    columns: Sequence[tuple[str, str]] = COLUMNS
    dead_letter_columns: Sequence[tuple[str, str]] = COLUMNS
    may_change: bool = False
    source_columns: Sequence[tuple[str, str]] = COLUMNS

    def decode(self, records: pa.RecordBatch) -> DecodedRows:
        is_bad = records["is_bad"]
        rows = records.select(["vnode", "n"])
        return DecodedRows(rows.filter(pa.compute.invert(is_bad)), rows.filter(is_bad), 0)


@dataclass(frozen=True)
class FakeEpochSource:
    """``EpochSource`` over one FakeLog."""

    log: FakeLog
    decoder: Decoder = Decoder()
    chance: random.Random = field(default_factory=random.Random)
    pace_s: float = _PACE_S
    stream: str | None = None

    def find_start(self, state: DatasetState) -> LogStart:
        starts = {}
        for vnode in self.log.vnodes:
            watermark = state.find_watermark(vnode, "")
            position = None if watermark is None else int(watermark.value)
            starts[vnode] = VnodeStart(position or 0, position)
        return LogStart(starts)

    def open_reader(self, starts: Sequence[LogStart], say: Callable[[str], None]) -> "EndlessReader":
        del starts, say
        return EndlessReader(self.log.open_reader(self.chance.randrange(1 << 30)), self.pace_s)


@dataclass
class EndlessReader:
    """Behind the end of the log there are barriers for ever, as of a topic into which nobody writes."""

    inner: FakeReader
    pace_s: float
    _positions: dict[str, int] = field(default_factory=dict)
    _epoch: int = 0

    def assign(self, positions: Mapping[str, int], *, epochs: Mapping[str, int] = NEVER_CUT) -> None:
        self.inner.assign(positions, epochs=epochs)
        self._positions = dict(positions)
        self._epoch = max(self._epoch, *epochs.values(), 0)

    def read(self, *, wait_s: float) -> Iterator[LogItem]:
        for item in self.inner.read(wait_s=wait_s):
            if isinstance(item, Barrier):
                self._positions |= item.positions
                self._epoch = max(self._epoch, item.epoch)
            yield item
        if self._positions and not any(self.inner.measure_lag().values()):
            time.sleep(self.pace_s)
            self._epoch += 1
            at = STARTED_AT + dt.timedelta(days=1, seconds=self._epoch)
            yield Barrier(self._epoch, dict(self._positions), is_checkpoint=True, at=at)

    def rewind(self, vnode: str, position: int) -> None:
        self.inner.rewind(vnode, position)

    def truncate(self, published: Mapping[str, int]) -> None:
        self.inner.truncate(published)

    def measure_lag(self) -> Mapping[str, int]:
        return self.inner.measure_lag()

    def close(self) -> None:
        self.inner.close()
