"""The commit step store over Postgres: one module for each part of a sequence's life. Beside it, the destinations."""

from gobblin_assets.commit.postgres.destinations import PostgresDestinationStore
from gobblin_assets.commit.postgres.store import PostgresCommitStepStore

__all__ = ["PostgresCommitStepStore", "PostgresDestinationStore"]
