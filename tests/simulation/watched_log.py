"""The log of a simulated sink, whose calls are a process's: those of its source, of its readers, and of the decoder."""

from collections.abc import Iterator
from typing import Any

from gobblin_assets.sources.log_port import EpochSource, LogItem
from tests.simulation.process import Watched
from tests.simulation.stepping import SeenProcess


class WatchedSource(Watched):
    """A log's source whose decoder and readers are watched."""

    def __init__(self, process: SeenProcess, source: EpochSource) -> None:
        super().__init__(process, "source", source)
        self.stream = source.stream
        self.decoder: Any = Watched(process, "decoder", source.decoder)
        self._source = source

    def open_reader(self, starts: Any, say: Any) -> "WatchedReader":
        return self.watching.call("source.open_reader", lambda: WatchedReader(self, self._source, starts, say))


class WatchedReader(Watched):
    """Items are given one by one: whoever stops at one has not taken the next one."""

    def __init__(self, source: WatchedSource, inner: EpochSource, starts: Any, say: Any) -> None:
        self._reader = inner.open_reader(starts, say)
        super().__init__(source.watching, "reader", self._reader)

    def read(self, *, wait_s: float) -> Iterator[LogItem]:
        for item in self._reader.read(wait_s=wait_s):
            self.watching.call("reader.read", lambda: None)
            yield item
