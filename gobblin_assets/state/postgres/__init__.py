"""The stores between runs, in Postgres. Every statement uses the database's clock."""

from gobblin_assets.state.postgres.datasets import PostgresDatasetStore
from gobblin_assets.state.postgres.events import PostgresEventStore
from gobblin_assets.state.postgres.leases import PostgresLeaseStore
from gobblin_assets.state.postgres.rate_shares import PostgresRateShareStore
from gobblin_assets.state.postgres.runs import PostgresRunStore
from gobblin_assets.state.postgres.sinks import PostgresSinkWindowStore, PostgresSinkWorkerStore

__all__ = [
    "PostgresDatasetStore",
    "PostgresEventStore",
    "PostgresLeaseStore",
    "PostgresRateShareStore",
    "PostgresRunStore",
    "PostgresSinkWindowStore",
    "PostgresSinkWorkerStore",
]
