"""Lines that a worker says of itself, at most one every few seconds, and its measures of the logs that it reads."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.commit.sequence import Publication
from gobblin_assets.jobs.sink.dataset_sink import DatasetSink
from gobblin_assets.jobs.sink.sink_log import SinkLog, SinkLogs
from gobblin_assets.jobs.sink.stream_status import say_kept
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.state import DatasetId
from gobblin_assets.model.urn import Role
from gobblin_assets.model.wording import count_of, join_some
from gobblin_assets.run.progress import MIB
from gobblin_assets.sources.log_port import CopiedLog
from gobblin_assets.state.sinks import SinkBackOff

MEASURE_EVERY_S: Final = 5.0
"""How often the lag is measured anew."""

KEPT_EVERY_S: Final = 60.0
"""How often it is said what a stream's server keeps for datasets that back off."""

LINE_EVERY_S: Final = 10.0
IDLE_LINE_EVERY_S: Final = 300.0
"""While no record comes. A worker says at once that it has become idle, and that records come again."""


@dataclass(slots=True)
class SinkMeasures:
    """Measures of lags, and of what is kept for datasets that back off. ``lags``: of what the worker reads."""

    sinks: Mapping[DatasetId, DatasetSink]
    logs: SinkLogs
    say: Callable[[str], None]
    lags: Mapping[DatasetId, int] = field(default_factory=dict)
    _measure_at_s: float = 0.0
    _kept_at_s: float = 0.0

    def measure_lags(self, now_s: float) -> None:
        """Measure the lags of the datasets that are read. A log that does not answer leaves its dataset out."""
        if now_s < self._measure_at_s:
            return
        self._measure_at_s = now_s + MEASURE_EVERY_S
        lags: dict[DatasetId, int] = {}
        for dataset_id, sink in self.sinks.items():
            reader = self.logs.of(sink).reader
            if reader is not None:
                with suppress(Exception):
                    behind = reader.measure_lag()
                    lags[dataset_id] = sum(behind.get(vnode, 0) for vnode in _list_read(sink))
        self.lags = lags

    def say_kept(self, back_offs: Sequence[SinkBackOff], now_s: float) -> None:
        """Say what it costs that some datasets of a stream back off while others are followed."""
        if now_s < self._kept_at_s:
            return
        ids = {each.dataset_id for each in back_offs}
        for log in self.logs.logs:
            waiting = [sink for sink in log.sinks if sink.dataset_id in ids and not sink.lanes]
            if waiting and log.reader is not None:
                self._kept_at_s = now_s + KEPT_EVERY_S
                self._say_kept_for(log, waiting)

    def _say_kept_for(self, log: SinkLog, waiting: Sequence[DatasetSink]) -> None:
        source = log.sinks[0].source
        if isinstance(source, CopiedLog):
            with suppress(Exception):
                kept = say_kept(source.look_at_stream())
                self.say(f"{join_some([sink.urn for sink in waiting])}: backs off, and {kept}")


def _list_read(sink: DatasetSink) -> list[str]:
    return [vnode for lane in sink.lanes.values() for vnode in lane.read_to]


@dataclass(slots=True)
class SinkProgress:
    """The counts of what is read and published. ``lag_unit``: in what the lag is measured."""

    clock: Clock
    say: Callable[[str], None]
    lag_unit: str
    _counts: dict[str, int] = field(
        default_factory=lambda: {"records": 0, "rows": 0, "dead_letters": 0, "bytes": 0, "files": 0, "publications": 0}
    )
    _share: tuple[int, int, int, int] = (-1, 0, 0, 0)
    _said_s: float | None = None
    _said_records: int = 0
    _idle_since_s: float | None = None
    _idle_said_s: float = 0.0

    @property
    def figures(self) -> dict[str, int]:
        return dict(self._counts)

    def read(self, records: int) -> None:
        self._counts["records"] += records

    def publish(self, publication: Publication) -> None:
        self._counts["rows"] += publication.rows_by_role.get(Role.DATA, 0)
        self._counts["dead_letters"] += publication.rows_by_role.get(Role.DEAD_LETTER, 0)
        self._counts["bytes"] += publication.file_bytes
        self._counts["files"] += publication.file_count
        self._counts["publications"] += 1

    def note_share(self, held: int, quota: int, workers: int, lanes: int) -> None:
        """Say once what the worker's share is, when it changes."""
        share = (held, quota, workers, lanes)
        # Without lanes, all datasets back off, and why was said.
        if share == self._share or not lanes:
            return
        self._share = share
        idle = "; there are more workers than lanes, and this one idles" if quota == 0 else ""
        self.say(
            f"{held} of {lanes} lanes held, of a share of {quota} among {count_of(workers, 'worker', 'workers')}{idle}"
        )

    def tick(self, measure_lag: Callable[[], int | None]) -> None:
        """``measure_lag`` gives None where it is not known how far the worker is behind."""
        now_s = self.clock.monotonic()
        if self._said_s is None:
            self._said_s = now_s
        elapsed_s = now_s - self._said_s
        if elapsed_s < LINE_EVERY_S:
            return
        records = self._counts["records"]
        rate = (records - self._said_records) / elapsed_s
        came = records - self._said_records
        self._said_s, self._said_records = now_s, records
        if came:
            self._idle_since_s = None
        elif self._idle_since_s is None:
            self._idle_since_s = now_s - elapsed_s
        elif now_s - self._idle_said_s < IDLE_LINE_EVERY_S:
            return
        pace = f"{rate:,.0f} records/s"
        if self._idle_since_s is not None:
            self._idle_said_s = now_s
            pace = f"no record has come for {now_s - self._idle_since_s:.0f} s"
        behind = measure_lag()
        lag = "how far it is behind is not known" if behind is None else f"{behind:,} {self.lag_unit} behind"
        self.say(
            f"{records:,} records, {self._counts['rows']:,} rows in {self._counts['files']:,} files published "
            f"({self._counts['bytes'] / MIB:,.1f} MiB, {self._counts['publications']:,} publications), {pace}, {lag}"
        )
