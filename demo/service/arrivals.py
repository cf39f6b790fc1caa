"""Whether all rows of tables have come, by their numbers: that is asked often, and costs less than to compare them."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq

from demo.flights_source import count_rows
from demo.service.places import list_copied
from demo.service.proof import INGESTED, list_published
from gobblin_assets.db.embedded import EmbeddedServer


def are_published(source: EmbeddedServer, job: str) -> bool:
    """Whether the datasets in the lake have as many rows as the tables at the source."""
    counts = count_rows(source)
    return all(_count(list_published(job, f"public.{table}")) == counts[table] for table in INGESTED)


def are_copied(source: EmbeddedServer) -> bool:
    """Whether the directories of the second lake have as many."""
    counts = count_rows(source)
    return all(_count(list_copied(table)) == counts[table] for table in INGESTED)


def _count(paths: Iterable[Path]) -> int:
    """Of a file that a copier has just removed, another one has the rows: the next look finds it."""
    try:
        return sum(pq.ParquetFile(path).metadata.num_rows for path in paths)
    except FileNotFoundError:
        return -1
