"""Measures that a worker takes of the logs that it reads: lags, and what is kept for datasets that rest."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.jobs.sink.dataset_sink import DatasetSink
from gobblin_assets.jobs.sink.sink_log import SinkLog, SinkLogs
from gobblin_assets.jobs.sink.stream_status import say_kept
from gobblin_assets.model.state import DatasetId
from gobblin_assets.model.wording import join_some
from gobblin_assets.sources.epoch_source import CopiedLog
from gobblin_assets.state.sinks import SinkRest

MEASURE_EVERY_S: Final = 5.0
"""How often the lag is measured anew."""

KEPT_EVERY_S: Final = 60.0
"""How often it is said what a stream's server keeps for datasets that rest."""


@dataclass(slots=True)
class SinkMeasures:
    """The measures of one worker. ``lags``: of the datasets that the worker reads."""

    sinks: Mapping[DatasetId, DatasetSink]
    logs: SinkLogs
    say: Callable[[str], None]
    lags: Mapping[DatasetId, int] = field(default_factory=dict)
    _measure_at_s: float = 0.0
    _kept_at_s: float = 0.0

    def measure_lags(self, now_s: float) -> None:
        """Of the datasets that are read. A log that does not answer leaves its dataset out."""
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

    def say_kept(self, rests: Sequence[SinkRest], now_s: float) -> None:
        """What it costs that some datasets of a stream rest while others are followed."""
        if now_s < self._kept_at_s:
            return
        resting = {each.dataset_id for each in rests}
        for log in self.logs.logs:
            at_rest = [sink for sink in log.sinks if sink.dataset_id in resting and not sink.lanes]
            if at_rest and log.reader is not None:
                self._kept_at_s = now_s + KEPT_EVERY_S
                self._say_kept_for(log, at_rest)

    def _say_kept_for(self, log: SinkLog, at_rest: Sequence[DatasetSink]) -> None:
        source = log.sinks[0].source
        if isinstance(source, CopiedLog):
            with suppress(Exception):
                kept = say_kept(source.look_at_stream())
                self.say(f"{join_some([sink.urn for sink in at_rest])}: at rest, and {kept}")


def _list_read(sink: DatasetSink) -> list[str]:
    return [vnode for lane in sink.lanes.values() for vnode in lane.read_to]
