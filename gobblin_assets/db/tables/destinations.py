"""The destinations of jobs."""

from sqlalchemy import Column, Table, Text

from gobblin_assets.db.table_metadata import metadata, moment

destination = Table(
    "destination",
    metadata,
    Column("job", Text, primary_key=True),
    Column("root_uri", Text, nullable=False),
    # The identity in the file at the root; null if an earlier release published, until the next run has looked.
    Column("identity", Text),
    moment("bound_at", nullable=False, default_now=True),
)
