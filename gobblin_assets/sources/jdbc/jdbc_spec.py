"""What a job says of a database: the source."""

from typing import Literal

from pydantic import Field

from gobblin_assets.spec.source_spec import SourceSpec


class JdbcSourceSpec(SourceSpec):
    """Tables of one JDBC connection."""

    type: Literal["jdbc"] = "jdbc"
    connection: str = Field(description="Name of a JDBC connection resource.")
    include: tuple[str, ...] = Field((), description="Patterns of table names, such as public.*; from discovery.")
    read_timeout_s: int = Field(3600, ge=1, description="Statement timeout of each read.")
    packages: tuple[str, ...] = Field(
        (),
        description="Maven coordinates (group:artifact:version) of JDBC drivers; those of known databases come by "
        "themselves.",
    )
    jars: tuple[str, ...] = Field((), description="Jar files of JDBC drivers, by path.")
