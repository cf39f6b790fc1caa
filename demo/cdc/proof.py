"""The proof: every row of the shop's tables against every row that ``read_current`` gives, as multisets.

The tables are read by psycopg, the change logs' counts by pyarrow: neither shares anything with ``read_current``.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from psycopg import sql
from pyspark.sql import SparkSession

from demo.cdc.followers import urn_of
from demo.cdc.places import JOB
from demo.cdc.shop_database import TABLES, ShopDatabase
from gobblin_assets import read_current
from gobblin_assets.commit.published.published_port import PublishedFiles
from gobblin_assets.model.urn import DatasetUrn, JobName, Role

_COUNTED: Final = ("_op", "_lsn", "_unchanged")

_Rows = Counter[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """``missing`` rows are in the source only, ``extra`` ones in the rebuilt table only.

    ``copied``, ``changes``, ``before``: rows of the change log, the last of tuples before a change. ``transactions``:
    the places of their ends in the server's log.
    """

    table: str
    copied: int
    changes: int
    before: int
    unsent: int
    transactions: frozenset[int]
    source_rows: int
    current_rows: int
    missing: int
    extra: int

    @property
    def is_equal(self) -> bool:
        return self.missing == self.extra == 0 and self.source_rows == self.current_rows > 0


def compare_tables(shop: ShopDatabase, spark: SparkSession, published: PublishedFiles) -> Sequence[TableVerdict]:
    """Nobody writes to the shop meanwhile."""
    return [_compare(table, shop, spark, published) for table in TABLES]


def _compare(table: str, shop: ShopDatabase, spark: SparkSession, published: PublishedFiles) -> TableVerdict:
    urn = urn_of(table)
    current = read_current(spark, urn, job=JOB, database=published)
    with shop.connect() as connection:
        columns = sql.SQL(", ").join(map(sql.Identifier, current.columns))
        source: _Rows = Counter(connection.execute(sql.SQL("SELECT {} FROM {}").format(columns, sql.Identifier(table))))
    arrow = current.toArrow()
    rows: _Rows = Counter(zip(*(column.to_pylist() for column in arrow.columns), strict=True))
    ops, lsns, unchanged = _read_log(published, urn)
    counts = Counter(ops)
    copied = counts.pop("r", 0)
    before = counts.pop("b", 0)
    return TableVerdict(
        table=table,
        copied=copied,
        changes=counts.total(),
        before=before,
        unsent=sum(1 for names in unchanged if names),
        transactions=frozenset(lsn for op, lsn in zip(ops, lsns, strict=True) if op != "r"),
        source_rows=source.total(),
        current_rows=rows.total(),
        missing=(source - rows).total(),
        extra=(rows - source).total(),
    )


def _read_log(published: PublishedFiles, urn: DatasetUrn) -> list[list[Any]]:
    found = published.find(JobName(JOB), urn, role=Role.DATA)
    paths = [file.path for segment in found.segments for file in segment.files()] if found else []
    log = pa.concat_tables([pq.ParquetFile(path).read(list(_COUNTED)) for path in paths])
    return [log[name].to_pylist() for name in _COUNTED]
