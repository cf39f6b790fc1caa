"""The proof: all that is at each flow's source against all that is where the flow publishes, as multisets."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from pyiceberg.exceptions import NoSuchTableError
from rich.table import Table

from demo.into.loaded_rows import read_iceberg
from demo.service.places import CATALOG, list_copied
from demo.service.sources import CHANGED, RECORD, TOPIC, Rows, WeatherStations, plain_row, read_table
from demo.stage import console
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.log import open_log

NAMESPACE: Final = "nyc"
INGESTED: Final = ("flights", "airlines")
"""The tables that become datasets of the lake, and are copied from there."""

_IN_ORDER: Final = ("_lsn", "_seq")


@dataclass(frozen=True, slots=True)
class Comparison:
    """``what``: for people; ``source`` and ``found``: rows, each with how often it is there."""

    what: str
    source: Rows
    found: Rows

    @property
    def is_equal(self) -> bool:
        return self.source == self.found and self.source.total() > 0


def compare_tables(source: EmbeddedServer, job: str) -> Iterator[Comparison]:
    """The tables at the source, and the datasets in the lake, by the files that the ledger lists."""
    for table in INGESTED:
        columns, rows = read_table(source, table)
        yield Comparison(f"table {table}, dataset in the lake", rows, read_published(job, f"public.{table}", columns))


def compare_copy(source: EmbeddedServer) -> Iterator[Comparison]:
    """The tables at the source, and what any reader of Parquet files finds in the directories of the second lake."""
    for table in INGESTED:
        columns, rows = read_table(source, table)
        yield Comparison(f"table {table}, its copy in the second lake", rows, read_parquet(list_copied(table), columns))


def compare_changes(source: EmbeddedServer, job: str) -> Iterator[Comparison]:
    """The tables as they are, and what their published changes make of an empty table, one after the other."""
    for table, key in CHANGED.items():
        columns, rows = read_table(source, table)
        yield Comparison(f"table {table}, its changes in the lake", rows, replay_changes(job, table, columns, key))


def compare_records(stations: WeatherStations) -> Iterator[Comparison]:
    """What the producer sent to the broker at the edge, and the table of Iceberg in the office."""
    rows: Rows = Counter()
    # Before the first publication there is no table.
    with suppress(NoSuchTableError):
        for row, times in read_iceberg(CATALOG, NAMESPACE, TOPIC, list(RECORD)).items():
            rows[plain_row(row)] += times
    yield Comparison(f"topic {TOPIC}, table of Iceberg", stations.sent, rows)


def read_published(job: str, urn: str, columns: Sequence[str]) -> Rows:
    """By Arrow, from the files that the ledger lists."""
    return read_parquet(list_published(job, urn), columns)


def list_published(job: str, urn: str) -> list[Path]:
    with open_log() as log:
        found = log.stores.published.find(JobName(job), DatasetUrn(urn), role=Role.DATA)
        return [Path(file.path) for segment in found.segments for file in segment.files()] if found else []


def say_comparisons(comparisons: Sequence[Comparison]) -> bool:
    """Print them; returns whether all are equal."""
    table = Table("flow", title="source and destination, row for row, as multisets", title_justify="left")
    for name in ("source rows", "rows there", "missing", "extra or doubled"):
        table.add_column(name, justify="right")
    table.add_column("")
    for each in comparisons:
        missing, extra = (each.source - each.found).total(), (each.found - each.source).total()
        numbers = (each.source.total(), each.found.total(), missing, extra)
        verdict = "[green]equal[/green]" if each.is_equal else "[red]DIFFERENT[/red]"
        table.add_row(each.what, *(f"{number:,}" for number in numbers), verdict)
    console.print(table)
    return all(each.is_equal for each in comparisons)


def are_equal(compare: Callable[[], Iterator[Comparison]]) -> bool:
    return all(each.is_equal for each in compare())


def replay_changes(job: str, table: str, columns: Sequence[str], key: str) -> Rows:
    """What the published changes of a table make of an empty one. ``key``: the column by which its rows are known."""
    at_key = columns.index(key)
    changes = [
        row
        for path in list_published(job, f"public.{table}")
        for row in pq.ParquetFile(path).read(columns=[*_IN_ORDER, "_op", *columns]).to_pylist()
    ]
    changes.sort(key=lambda row: tuple(row[name] for name in _IN_ORDER))
    rows: dict[Any, tuple[Any, ...]] = {}
    for change in changes:
        values = tuple(change[name] for name in columns)
        # A copied row, an inserted one, and one behind an update; else the key of a row that is no more.
        if change["_op"] in {"r", "c", "u"}:
            rows[values[at_key]] = values
        else:
            rows.pop(values[at_key], None)
    return Counter(rows.values())


def read_parquet(paths: Sequence[Path], columns: Sequence[str]) -> Rows:
    """The rows of files of Parquet."""
    rows: Rows = Counter()
    for path in paths:
        table = pq.ParquetFile(path).read(columns=list(columns))
        rows.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return rows
