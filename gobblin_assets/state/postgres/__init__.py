"""The stores between runs, in Postgres. Every statement uses the database's clock."""

from gobblin_assets.state.postgres.datasets import PostgresDatasetStore
from gobblin_assets.state.postgres.events import PostgresEventStore
from gobblin_assets.state.postgres.leases import PostgresLeaseStore
from gobblin_assets.state.postgres.rate_shares import PostgresRateShareStore
from gobblin_assets.state.postgres.runs import PostgresRunStore
from gobblin_assets.state.postgres.sink_windows import PostgresSinkWindowStore
from gobblin_assets.state.postgres.sink_workers import PostgresSinkWorkerStore

__all__ = [
    "PostgresDatasetStore",
    "PostgresEventStore",
    "PostgresLeaseStore",
    "PostgresRateShareStore",
    "PostgresRunStore",
    "PostgresSinkWindowStore",
    "PostgresSinkWorkerStore",
]
