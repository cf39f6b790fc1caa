"""The proof: every row of the source against every row of the datasets, as multisets, by two separate readers."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from psycopg import sql
from pyspark.sql import SparkSession

from demo.flights_source import TABLES, connect_source
from gobblin_assets.commit.published.published_port import PublishedFiles
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.rows.dataset_reader import read_dataset

Rows = Counter[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Verdict:
    """``missing`` rows are in the source only, ``extra`` rows in the dataset only; a doubled row is an extra row."""

    table: str
    source_rows: int
    dataset_rows: int
    missing: int
    extra: int

    @property
    def is_equal(self) -> bool:
        return self.missing == self.extra == 0 and self.source_rows == self.dataset_rows


def compare(server: EmbeddedServer, spark: SparkSession, published: PublishedFiles) -> list[Verdict]:
    """Compares each table's whole rows, with all columns, counted in this process."""
    return [_compare_one(table, server, spark, published) for table in TABLES]


def _compare_one(table: str, server: EmbeddedServer, spark: SparkSession, published: PublishedFiles) -> Verdict:
    frame = read_dataset(spark, f"public.{table}", job="nyc", database=published)
    with connect_source(server) as connection:
        columns = sql.SQL(", ").join(map(sql.Identifier, frame.columns))
        statement = sql.SQL("SELECT {} FROM {}").format(columns, sql.Identifier("public", table))
        source: Rows = Counter(connection.execute(statement))
    arrow = frame.toArrow()
    dataset: Rows = Counter(zip(*(column.to_pylist() for column in arrow.columns), strict=True))
    return Verdict(table, source.total(), dataset.total(), (source - dataset).total(), (dataset - source).total())
