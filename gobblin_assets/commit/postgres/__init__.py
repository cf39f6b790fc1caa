"""The commit step store over Postgres: one module for each role, and the whole. Beside it, the destinations."""

from gobblin_assets.commit.postgres.destinations import PostgresDestinationStore
from gobblin_assets.commit.postgres.finishing import PostgresSequenceFinisher
from gobblin_assets.commit.postgres.folding import PostgresSequenceFolder
from gobblin_assets.commit.postgres.sealing import PostgresSequenceSealer

__all__ = ["PostgresCommitStepStore", "PostgresDestinationStore"]


class PostgresCommitStepStore(PostgresSequenceSealer, PostgresSequenceFinisher, PostgresSequenceFolder):
    """``CommitStepStore`` over one engine, each method one transaction. Safe to share between threads."""
