"""The source options of a job that reads a database."""

from typing import Literal

from pydantic import Field

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
