"""Databases over JDBC as a kind of source."""

from typing import Final

from gobblin_assets.sources.jdbc.jdbc_spec import JdbcSourceSpec
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.source_kind import Scaffold, SourceKind


def _demands_spark(job: JobSpec) -> bool:
    """Otherwise plain tables of Postgres are read in this process."""
    return isinstance(job.source, JdbcSourceSpec) and job.source.reader == "jdbc"


JDBC: Final = SourceKind(
    name="jdbc",
    noun="table",
    title="JDBC",
    spec=JdbcSourceSpec,
    connection="gobblin_assets.sources.jdbc.database_connection:DatabaseConnection",
    demands_spark=_demands_spark,
    scaffold=Scaffold(
        dataset="public.customers",
        address="jdbc:postgresql://db.example.com:5432/sales",
        beside="_USER, _PASSWORD",
        datasets="""\
  datasets:
    # A table that is published whole, again with each run. Write a list of those that you have.
{datasets}
    # What was added since the last run, month by month:
    # - table: public.orders
    #   extract: append_only
    #   watermark: {{column: updated_at, late_window: 600}}
    #   primary_key: [id]
    #   partitions: {{kind: monthly, start: 2026-01-01}}
""",
    ),
)
