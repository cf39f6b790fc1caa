"""Worlds of sinks whose rows go elsewhere than into files: what a person does to their log."""

from dataclasses import dataclass

from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.state import RunId, SequenceId
from gobblin_assets.state.leases import Holder
from tests.support.sink_lake import SinkWorld


@dataclass
class LoadedSinkWorld(SinkWorld):
    def operations(self) -> LogOperations:
        clock = SystemClock()
        return LogOperations(
            store=self.stores.commits,
            leases=self.stores.leases,
            open_file_system=open_file_system,
            interrupt=lambda _attempt: None,
            clock=clock,
            holder=Holder("test", RunId(clock.new_id())),
            say=self.lines.append,
            lease_ttl_s=self.lake.lease_ttl_s,
        )

    def open_sequences(self) -> list[SequenceId]:
        return [each.sequence_id for each in self.stores.commits.list_open(None, limit=10)]
