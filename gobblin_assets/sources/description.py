"""A source's description of a dataset before it is read, for the author of the job. The port of `discover`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.watermark import WatermarkType
from gobblin_assets.spec.job_spec import DatasetSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class ColumnDescription:
    """A column as the source has it and as the dataset would.

    ``spark_type``: Spark's type in the dataset, before converters; None where Spark can't hold the column.

    Then ``problem`` says why, and ``cast`` is the text to write under ``casts``. ``key_place``: the place in the
    primary key, from 1, or None. ``watermark_type``: how the values compare as positions; None: they can't be used so.
    """

    name: str
    source_type: str
    nullable: bool
    spark_type: str | None
    key_place: int | None = None
    watermark_type: WatermarkType | None = None
    problem: str | None = None
    cast: str | None = None
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table, topic or folder as the author of a job needs to know it.

    ``table``: its full name at the source. ``watermark``: a column that may be one, judged by type and name alone.

    ``error``: why the source could not describe the table, which then has no columns here.
    """

    urn: DatasetUrn
    table: str
    columns: tuple[ColumnDescription, ...] = ()
    watermark: str | None = None
    comment: str | None = None
    error: str | None = None

    @property
    def primary_key(self) -> tuple[str, ...]:
        keys = [(column.key_place, column.name) for column in self.columns if column.key_place is not None]
        return tuple(name for _place, name in sorted(keys))

    @property
    def casts(self) -> dict[str, str]:
        """The entries to add to the dataset's ``casts``."""
        return {column.name: column.cast for column in self.columns if column.cast is not None}


@runtime_checkable
class DescribedSource(Protocol):
    """A source that can list the columns of its datasets before they are read."""

    def describe(
        self, spark: "Callable[[], SparkSession]", datasets: Mapping[DatasetUrn, DatasetSpec]
    ) -> Sequence[TableDescription]:
        """The source's description of each dataset's table. Costs some questions each, so ask for few tables."""
        ...
