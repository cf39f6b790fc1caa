"""Alembic's entry point: ``gobblin_assets.db.alembic_runs`` runs it on a connection that holds the upgrade's lock."""

from alembic import context

from gobblin_assets.db.alembic_runs import SCHEMA_OPTIONS
from gobblin_assets.db.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, **SCHEMA_OPTIONS)
with context.begin_transaction():
    context.run_migrations()
