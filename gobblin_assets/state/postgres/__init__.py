"""The stores between runs, in Postgres. Every statement's clock is the database's."""

from gobblin_assets.state.postgres.datasets import PostgresDatasetStore
from gobblin_assets.state.postgres.leases import PostgresLeaseStore
from gobblin_assets.state.postgres.runs import PostgresRunStore

__all__ = ["PostgresDatasetStore", "PostgresLeaseStore", "PostgresRunStore"]
