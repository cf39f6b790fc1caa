"""A table as of its dataset's watermark, rebuilt from the published files of its change log.

If there is a base generation (``base_generations``), it stands for the log up to its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from gobblin_assets.commit.published.postgres import Database, published_files_of
from gobblin_assets.commit.published.published_port import PublishedFiles, PublishedSource
from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.model.column_names import pair_names
from gobblin_assets.model.urn import DatasetUrn, JobName, Role, parse_job_name, parse_urn
from gobblin_assets.rows.base_generations import (
    TABLE_FACT,
    BaseGeneration,
    BaseOrigin,
    choose_base,
    describe_base,
    find_base_files,
)
from gobblin_assets.rows.change_log import LOG_COLUMNS, KnownRows, RebuiltTable, rebuild_table
from gobblin_assets.rows.dataset_reader import read_found, refuse_unknown
from gobblin_assets.rows.joined_columns import parse_joined
from gobblin_assets.rows.schema_merge import parse_schema
from gobblin_assets.run.log import open_log

_OP: Final = "_op"


def read_current(spark: SparkSession, urn: str, *, job: str, database: Database | None = None) -> DataFrame:
    """The rows that a table had at the dataset's watermark; ``database`` as for ``read_dataset``.

    The dataset is the change log of the table. The result has the columns that the table has now. A Spark job looks
    over the log first, at columns that are read fast; two or more if keys were changed by updates that left out large
    values. The result itself is lazy. Of a log with a base generation, only the base is read, and what came since.

    A query on the result fails with a message that names the dataset if the log does not give the rows any more: the
    key was changed, or a column was added with a DEFAULT to a table without a key.

    Raises:
        RejectedError: no such dataset, or it is no change log of a table, or its first copy is not complete.
        CorruptionError: a published file is missing, or the log's record of one can't be read.

    """
    if database is None:
        with open_log() as log:
            return read_current(spark, urn, job=job, database=log.stores.published)
    view = find_current(published_files_of(database), parse_job_name(job), parse_urn(urn))
    return view.rebuild(spark).rows


@dataclass(frozen=True, slots=True)
class CurrentView:
    """A table's view of one moment: what there is to read. ``base`` None: the whole log.

    ``copies_max``: the newest copy that is whole, while another one is made and a part of it is published.
    """

    port: PublishedFiles
    job: JobName
    urn: DatasetUrn
    log: PublishedSource
    key: Sequence[str] | None
    base: BaseGeneration | None
    copies_max: int | None = None

    @property
    def changes_behind(self) -> int:
        """The number of rows of the log that no base has."""
        if self.base is not None:
            return self.base.changes_behind
        return sum(segment.row_count for segment in self.log.files.segments)

    def rebuild(self, spark: SparkSession) -> RebuiltTable:
        """Raises as ``read_current``."""
        later = self.log.files if self.base is None else self.base.later
        changes = read_found(spark, self.port, later, self.job, self.urn, Role.DATA)
        if self.copies_max is not None:
            changes = changes.where(f.col("_copy") <= self.copies_max)
        known = None
        if self.base is not None:
            # Columns that came since are NULL, and a type that was widened is the log's.
            rows = read_found(
                *(spark, self.port, self.base.files, self.job, self.base.urn, Role.DATA), schema=changes.schema
            )
            known = KnownRows(rows, self.base.origin.place)
        return rebuild_table(
            changes,
            key=self.key,
            columns=_columns_now(changes.columns, self.log),
            label=f"the change log {self.urn!a} of job {self.job}",
            known=known,
            joined=parse_joined(self.log.source_facts),
        )

    def describe_base(self, rebuilt: RebuiltTable) -> BaseOrigin | None:
        """Of a base with the rows that were rebuilt of the view; None: there is nothing to keep."""
        if rebuilt.place is None:
            return None
        return describe_base(self.log, self.urn, rebuilt.place)


def find_current(port: PublishedFiles, job: JobName, urn: DatasetUrn) -> CurrentView:
    """RejectedError if there is no such dataset, or if it is no change log."""
    bases = find_base_files(port, job, urn)
    found = port.find_source(job, urn, role=Role.DATA)
    if found is None:
        raise refuse_unknown(port, job, urn)
    whole = _whole_copy_of(found, job, urn)
    key = _key_of(found, job, urn)
    _require_table(found, job, urn)
    return CurrentView(port, job, urn, found, key, choose_base(port, bases, found, urn), whole)


def _key_of(found: PublishedSource, job: JobName, urn: DatasetUrn) -> Sequence[str] | None:
    fact = found.source_facts.get(TABLE_FACT)
    if not isinstance(fact, Mapping):
        raise RejectedError(
            f"{urn!a} of job {job} is no change log",
            field="urn",
            hint="Read its rows with read_dataset; change logs are datasets of a source of the type postgres_log.",
        )
    match fact.get("key", ()):
        case None:
            return None
        case [*names] if names and all(isinstance(name, str) for name in names):
            return names
        case other:
            raise CorruptionError(f"what is recorded of the change log {urn!a} has no key", fact=TABLE_FACT, key=other)


def _require_table(found: PublishedSource, job: JobName, urn: DatasetUrn) -> None:
    if any(_OP not in parse_schema(each).names for each in found.files.file_schemas):
        raise RejectedError(
            f"{urn!a} of job {job} has messages, and no rows of a table",
            field="urn",
            hint="Read the messages with read_dataset.",
        )


def _whole_copy_of(found: PublishedSource, job: JobName, urn: DatasetUrn) -> int | None:
    """The copy before the one that is being made and has published a part of itself; None: there is no such copy."""
    fact = found.source_facts.get(TABLE_FACT)
    copying = fact.get("copying") if isinstance(fact, Mapping) else None
    if not isinstance(copying, Mapping):
        return None
    whole = copying.get("whole")
    if isinstance(whole, int):
        return whole
    raise RejectedError(
        f"the first copy of {urn!a} of job {job} is not complete",
        field="urn",
        hint="Let its worker go on; sink status says how far it is. read_dataset gives what there is.",
    )


def _columns_now(logged: Sequence[str], found: PublishedSource) -> list[str]:
    """The table's columns, without those that it had only in the past."""
    names = [name for name in logged if name not in LOG_COLUMNS]
    if found.source_columns is None:
        return names
    present = pair_names(found.source_columns, names).values()
    return [name for name in names if name in present]
