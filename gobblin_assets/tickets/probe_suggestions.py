"""Answers to questions what a place has: its tables, the columns of one, its topics, its directories.

They are what `gobblin-assets discover` shows. Only a database that is read by Spark alone needs Spark for them.
"""

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.registry import open_tree, show_uri
from gobblin_assets.fs.tree import EntryKind, ListedWithoutFiles, TreeEntry
from gobblin_assets.jobs.ingest.engine_port import AnnouncedEngine
from gobblin_assets.jobs.ingest.running import open_source
from gobblin_assets.model.job_ticket import ProbeKind, ProbeQuestion
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.watermark import WatermarkType
from gobblin_assets.sources.connection import OffersPublications
from gobblin_assets.sources.environment import read_connection
from gobblin_assets.sources.source_port import (
    ColumnDescription,
    DescribedSource,
    OrderedSource,
    Source,
    TableDescription,
)
from gobblin_assets.spec.job_parsing import parse_job
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES_MAX: Final = 5_000
COLUMNS_MAX: Final = 500
"""Of all tables that are asked for at once."""

_COMMENT_CHARACTERS_MAX: Final = 200
READ_TIMEOUT_S: Final = 10
"""Of one query: a person waits for the answer."""

_POSTGRES_LOG: Final = "postgres_log"
_SOURCE_OPTIONS: Final[Mapping[str, Mapping[str, object]]] = {
    "jdbc": {"read_timeout_s": READ_TIMEOUT_S},
    # It is asked which publications there are.
    _POSTGRES_LOG: {"publication": "any"},
}


def answer_suggestion(question: ProbeQuestion, open_spark: Callable[[], AnnouncedEngine]) -> dict[str, Any]:
    """What the place has, in plain JSON. RejectedError names the connection's variable, the table or the directory."""
    if question.kind is ProbeKind.PATHS:
        return _list_paths(question)
    job = _make_job(question)
    if question.kind is ProbeKind.TABLES and job.source.type == _POSTGRES_LOG:
        return _list_published(job)
    source = open_source(job)

    def get_session() -> "SparkSession":
        return open_spark().get_session(job)

    if question.kind is ProbeKind.COLUMNS:
        return _describe(source, question.names, get_session)
    return {question.kind.value: list(source.discover(get_session))}


def _make_job(question: ProbeQuestion) -> JobSpec:
    """A job that reads the source: connections are opened for jobs. It is never run."""
    source = dict(question.source or {})
    options = _SOURCE_OPTIONS.get(str(source.get("type", "")), {})
    datasets = [{"urn": "probe"}]
    return parse_job({"job": "probe", "source": {**options, **source}, "destination": "/probe", "datasets": datasets})


def _list_published(job: JobSpec) -> dict[str, Any]:
    connection = read_connection(job.source, os.environ)
    if not isinstance(connection, OffersPublications):
        raise RejectedError("has no publications", field="source.type", hint="Ask for its tables otherwise.")
    found = connection.list_publications(job.source.connection)
    return {
        "tables": sorted({each for tables in found.values() for each in tables}),
        "publications": [{"publication": name, "tables": list(tables)} for name, tables in found.items()],
    }


def _describe(source: Source, tables: Sequence[str], spark: "Callable[[], SparkSession]") -> dict[str, Any]:
    """Of each table what is found, or the error. RejectedError: the only one that was asked for has an error."""
    if not isinstance(source, DescribedSource):
        raise RejectedError("has no columns before it is read", field="source.type", hint="Write the schema yourself.")
    urns = [DatasetUrn(f"probe{number}") for number in range(len(tables))]
    specs = {urn: DatasetSpec(urn=urn, table=table) for urn, table in zip(urns, tables, strict=True)}
    found = source.describe(spark, specs)
    if len(found) == 1 and found[0].error is not None:
        raise RejectedError(found[0].error, field="table", hint="Choose one of the tables that the place has.")
    columns_max = COLUMNS_MAX // len(specs)
    shown = zip(tables, found, strict=True)
    return {"tables": [{"table": table, **_show_table(source, each, columns_max, spark)} for table, each in shown]}


def _show_table(
    source: Source, found: TableDescription, columns_max: int, spark: "Callable[[], SparkSession]"
) -> dict[str, Any]:
    """``readable``: empty if all columns are; else those that can be read without a cast."""
    if found.error is not None:
        return {"error": found.error}
    times = {each.name for each in found.columns if each.watermark_type is not None and each.watermark_type.is_time}
    candidates = _list_candidates(found)
    by_time = [each for each in candidates if each in times]
    readable = [each.name for each in found.columns if each.problem is None]
    return {
        "error": None,
        "comment": _cut(found.comment),
        "primary_key": list(found.primary_key),
        "watermark_column": found.watermark,
        "watermark_columns": candidates,
        "partition_columns": by_time,
        "first": _find_firsts(source, found.table, by_time[:1], spark),
        "readable": readable if len(readable) < len(found.columns) else [],
        "column_count": len(found.columns),
        "columns": [_show_column(each) for each in found.columns[:columns_max]],
    }


def _cut(comment: str | None) -> str | None:
    return None if comment is None else comment[:_COMMENT_CHARACTERS_MAX]


def _list_candidates(found: TableDescription) -> list[str]:
    """The columns whose values may grow: the suggested one first, then times, then numbers; those with NULL last."""
    kinds = [kind for kind in WatermarkType if kind.is_time] + [WatermarkType.LONG]

    def rank(column: ColumnDescription) -> tuple[bool, bool, bool]:
        return column.name != found.watermark, column.nullable, column.watermark_type is WatermarkType.LONG

    usable = [each for each in found.columns if each.watermark_type in kinds and each.spark_type is not None]
    return [each.name for each in sorted(usable, key=rank)]


def _find_firsts(
    source: Source, table: str, columns: Sequence[str], spark: "Callable[[], SparkSession]"
) -> dict[str, str]:
    """The least value of each column: where the first partition may begin. What takes long to find is left out."""
    if not isinstance(source, OrderedSource):
        return {}
    firsts = {column: source.find_first(spark, table, column) for column in columns}
    return {column: str(first) for column, first in firsts.items() if first is not None}


def _show_column(column: ColumnDescription) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.source_type,
        "nullable": column.nullable,
        "key_place": column.key_place,
        "dataset_type": column.spark_type,
        "orders_as": None if column.watermark_type is None else column.watermark_type.value,
        "problem": column.problem,
        "comment": _cut(column.comment),
    }


def _list_paths(question: ProbeQuestion) -> dict[str, Any]:
    """The directories of one level, as paths below the root."""
    root, below = str(question.root), "".join(question.names[:1]).strip("/")
    if any(each in ("", ".", "..") for each in below.split("/")) and below:
        raise RejectedError("expected a path below the root", field="below", hint="Write such as photos/2026.")
    tree, place = open_tree(root, "root", hidden=frozenset(), follow_links=False)
    place = f"{place.rstrip('/')}/{below}" if below else place
    list_level = tree.list_without_files if isinstance(tree, ListedWithoutFiles) else tree.list_tree
    entries = list_level(place, _stay)
    found = [_join(below, each) for each in itertools.islice(filter(_is_shown, entries), NAMES_MAX + 1)]
    return {"root": show_uri(root), "below": below, "paths": found[:NAMES_MAX], "has_more": len(found) > NAMES_MAX}


def _stay(_path: str) -> bool:
    return False


def _is_shown(entry: TreeEntry) -> bool:
    return entry.kind is EntryKind.DIRECTORY and not entry.path.rpartition("/")[2].startswith((".", "_"))


def _join(below: str, entry: TreeEntry) -> str:
    return f"{below}/{entry.path}" if below else entry.path
