"""All stores over one Postgres."""

from sqlalchemy import Engine

from gobblin_assets.commit.postgres import PostgresCommitStepStore, PostgresDestinationStore
from gobblin_assets.commit.postgres.lanes import PostgresLaneStore
from gobblin_assets.commit.published.postgres import PostgresPublishedFiles
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.postgres import (
    PostgresDatasetStore,
    PostgresEventStore,
    PostgresLeaseStore,
    PostgresRateShareStore,
    PostgresRunStore,
    PostgresSinkWindowStore,
    PostgresSinkWorkerStore,
)
from gobblin_assets.state.postgres.heartbeats import PostgresHeartbeatStore
from gobblin_assets.state.postgres.log_drains import PostgresLogDrainStore
from gobblin_assets.state.postgres.reports import PostgresReportStore
from gobblin_assets.state.postgres.tickets import PostgresTicketStore
from gobblin_assets.state.postgres.wires import PostgresWireStore
from gobblin_assets.state.postgres.worker_tickets import PostgresWorkerTicketStore


def open_stores(engine: Engine) -> Stores:
    """The stores over one engine, which stays the caller's to dispose of."""
    return Stores(
        leases=PostgresLeaseStore(engine),
        datasets=PostgresDatasetStore(engine),
        runs=PostgresRunStore(engine),
        commits=PostgresCommitStepStore(engine),
        lanes=PostgresLaneStore(engine),
        published=PostgresPublishedFiles(engine),
        destinations=PostgresDestinationStore(engine),
        events=PostgresEventStore(engine),
        reports=PostgresReportStore(engine),
        sink_workers=PostgresSinkWorkerStore(engine),
        sink_windows=PostgresSinkWindowStore(engine),
        rate_shares=PostgresRateShareStore(engine),
        tickets=PostgresTicketStore(engine),
        worker_tickets=PostgresWorkerTicketStore(engine),
        heartbeats=PostgresHeartbeatStore(engine),
        wires=PostgresWireStore(engine),
        drains=PostgresLogDrainStore(engine),
    )
