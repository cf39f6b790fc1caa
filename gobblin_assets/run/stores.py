"""The log, the state, and what is published, as ports."""

from dataclasses import dataclass

from gobblin_assets.commit.destination import DestinationStore
from gobblin_assets.commit.lanes import LaneStore
from gobblin_assets.commit.published.published_port import PublishedFiles
from gobblin_assets.commit.store import CommitStepStore
from gobblin_assets.state.datasets import DatasetStore, RunStore
from gobblin_assets.state.events import EventStore
from gobblin_assets.state.heartbeats import HeartbeatStore
from gobblin_assets.state.leases import LeaseStore
from gobblin_assets.state.log_drains import LogDrainStore
from gobblin_assets.state.rate_shares import RateShareStore
from gobblin_assets.state.reports import ReportStore
from gobblin_assets.state.sinks import SinkWindowStore, SinkWorkerStore
from gobblin_assets.state.tickets import TicketStore
from gobblin_assets.state.wires import WireStore
from gobblin_assets.state.worker_tickets import WorkerTicketStore


@dataclass(frozen=True, slots=True)
class Stores:
    """The log, the state, and what is published, as ports."""

    leases: LeaseStore
    datasets: DatasetStore
    runs: RunStore
    commits: CommitStepStore
    lanes: LaneStore
    published: PublishedFiles
    destinations: DestinationStore
    events: EventStore
    reports: ReportStore
    sink_workers: SinkWorkerStore
    sink_windows: SinkWindowStore
    rate_shares: RateShareStore
    tickets: TicketStore
    worker_tickets: WorkerTicketStore
    heartbeats: HeartbeatStore
    wires: WireStore
    drains: LogDrainStore
