"""A table as of its dataset's watermark, rebuilt from the published files of its change log."""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from gobblin_assets.commit.published.port import PublishedSource
from gobblin_assets.commit.published.postgres import Database, published_files_of
from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.model.column_names import pair_names
from gobblin_assets.model.urn import DatasetUrn, JobName, Role, parse_job_name, parse_urn
from gobblin_assets.rows.change_log import LOG_COLUMNS, rebuild_rows
from gobblin_assets.rows.dataset_reader import read_found, refuse_unknown
from gobblin_assets.run.log import open_log

_FACT: Final = "postgres_log"
"""Under this name, the source keeps with the dataset what it knows of the table."""


def read_current(spark: SparkSession, urn: str, *, job: str, database: Database | None = None) -> DataFrame:
    """The rows that a table had at the dataset's watermark; ``database`` as for ``read_dataset``.

    The dataset is the change log of the table. The result has the columns that the table has now. A Spark job looks
    over the log first, at columns that are read fast; two or more if keys were changed by updates that left out large
    values. The result itself is lazy.

    A query on the result fails with a message that names the dataset if the log does not tell the rows any more: the
    key was changed, or a column was added with a DEFAULT to a table without a key.

    Raises:
        RejectedError: no such dataset, or it is no change log, or its first copy is not complete.
        CorruptionError: a published file is missing, or the log's record of one can't be read.

    """
    if database is None:
        with open_log() as log:
            return read_current(spark, urn, job=job, database=log.stores.published)
    job_name, name = parse_job_name(job), parse_urn(urn)
    port = published_files_of(database)
    found = port.find_source(job_name, name, role=Role.DATA)
    if found is None:
        raise refuse_unknown(port, job_name, name)
    whole = _whole_copy_of(found, job_name, name)
    key = _key_of(found, job_name, name)
    changes = read_found(spark, port, found.files, job_name, name, Role.DATA)
    if whole is not None:
        changes = changes.where(f.col("_copy") <= whole)
    columns = _columns_now(changes.columns, found)
    return rebuild_rows(changes, key=key, columns=columns, label=f"the change log {name!a} of job {job_name}")


def _key_of(found: PublishedSource, job: JobName, urn: DatasetUrn) -> Sequence[str] | None:
    fact = found.source_facts.get(_FACT)
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
            raise CorruptionError(f"what is recorded of the change log {urn!a} has no key", fact=_FACT, key=other)


def _whole_copy_of(found: PublishedSource, job: JobName, urn: DatasetUrn) -> int | None:
    """The copy before the one that is being made and has published a part of itself; None: there is no such copy."""
    fact = found.source_facts.get(_FACT)
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
