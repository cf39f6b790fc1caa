"""Alembic's entry point: ``gobblin_assets.db.alembic_runs`` runs it on a connection that holds the upgrade's lock."""

from gobblin_assets.db.alembic_runs import run_environment

run_environment()
