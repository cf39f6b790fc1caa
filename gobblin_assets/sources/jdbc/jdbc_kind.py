"""Databases over JDBC as a kind of source, with the source options of a job."""

from typing import Final, Literal

from pydantic import Field

from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.source_kind import Scaffold, SourceKind
from gobblin_assets.spec.source_spec import SourceSpec


class JdbcSourceSpec(SourceSpec):
    """Tables of one JDBC connection."""

    type: Literal["jdbc"] = "jdbc"
    connection: str = Field(description="Name of a JDBC connection resource.")
    include: tuple[str, ...] = Field((), description="Patterns of table names, such as public.*; from discovery.")
    reader: Literal["auto", "jdbc", "arrow"] = Field(
        "auto",
        description="Who reads the tables: arrow (Postgres; in this process, without Spark), or jdbc (Spark). auto "
        "takes arrow for tables of up to arrow_rows_max rows, unless the job needs Spark for them.",
    )
    arrow_rows_max: int = Field(
        20_000_000, ge=0, description="With reader: auto, tables of more rows (estimated) are read by Spark."
    )
    read_timeout_s: int = Field(3600, ge=1, description="Statement timeout of each read.")
    packages: tuple[str, ...] = Field(
        (),
        description="Maven coordinates (group:artifact:version) of JDBC drivers; drivers of known databases need no "
        "entry.",
    )
    jars: tuple[str, ...] = Field((), description="Jar files of JDBC drivers, by path.")


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
