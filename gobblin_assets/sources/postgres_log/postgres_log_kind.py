"""The change log of a Postgres database as a kind of source."""

from typing import Final

from gobblin_assets.sources.postgres_log.log_rules import REFUSED, check_log_job, check_logged_dataset
from gobblin_assets.sources.postgres_log.postgres_log_spec import LoggedOptions, PostgresLogSourceSpec
from gobblin_assets.spec.source_kind import Scaffold, SourceKind

POSTGRES_LOG: Final = SourceKind(
    name="postgres_log",
    noun="table",
    title="Postgres log",
    spec=PostgresLogSourceSpec,
    dataset_options=LoggedOptions,
    refused=REFUSED,
    connection="gobblin_assets.sources.postgres_log.log_database:LogDatabase",
    shown_as="postgres",
    scaffold=Scaffold(
        dataset="public.orders",
        address="jdbc:postgresql://db.example.com:5432/sales",
        beside="_USER, _PASSWORD",
        source="publication: lake",
        datasets="""\
  datasets:
    # A table of the publication, with all of its changes. Write a list of those that you have.
{datasets}
""",
    ),
    check_job=check_log_job,
    check_dataset=check_logged_dataset,
)
