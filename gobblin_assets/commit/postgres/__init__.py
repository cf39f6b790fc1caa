"""The commit step store over Postgres: one module for each part of a sequence's life."""

from gobblin_assets.commit.postgres.store import PostgresCommitStepStore

__all__ = ["PostgresCommitStepStore"]
