"""A table as a person must know it to write its dataset: columns, types, key, a watermark, needed casts."""

import re
from collections.abc import Collection
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.watermark import WatermarkType
from gobblin_assets.sources.description import ColumnDescription, TableDescription
from gobblin_assets.sources.jdbc.catalog import Catalog, Table, TableColumn
from gobblin_assets.sources.jdbc.names import parse_table_name
from gobblin_assets.spec.job_spec import DatasetSpec

_CHANGED: Final = re.compile(r"updat|modif|chang|touch", re.IGNORECASE)
_CREATED: Final = re.compile(r"creat|insert|added|(^|_)(at|ts|time|timestamp)$", re.IGNORECASE)


def describe_table(catalog: Catalog, urn: DatasetUrn, spec: DatasetSpec) -> TableDescription:
    """Ask about one table, without reading rows. For a refused table the description holds the error."""
    written = spec.table or urn
    try:
        name = parse_table_name(written, field=f"datasets[{urn}].table")
        table = catalog.find_table(name)
        if table is None:
            return TableDescription(urn, written, error="the source has no such table")
        return _describe(catalog, urn, spec, table)
    except RejectedError as error:
        return TableDescription(urn, written, error=str(error))


def _describe(catalog: Catalog, urn: DatasetUrn, spec: DatasetSpec, table: Table) -> TableDescription:
    names = [column.name for column in table.columns]
    casts = {name: text for name, text in spec.casts.items() if name in names}
    selected = catalog.select(table, names, casts)
    types = catalog.find_spark_types(table, [each for each in selected if each.problem is None])
    places = {name: place for place, name in enumerate(table.primary_key, 1)}
    columns = tuple(
        ColumnDescription(
            column.name,
            column.type_text,
            column.nullable,
            types.get(column.name),
            places.get(column.name),
            column.watermark_type,
            each.problem,
            None if each.problem is None else each.cast,
            column.comment,
        )
        for column, each in zip(table.columns, selected, strict=True)
    )
    return TableDescription(urn, str(table.name), columns, suggest_watermark(table, spec.casts), table.comment)


def suggest_watermark(table: Table, casts: Collection[str] = ()) -> str | None:
    """A time of change by its name, else a primary key of whole numbers, else a time of creation; else None. Pure.

    The suggestion looks only at names and types: the table's owner knows whether values grow with each change.
    """
    usable = [column for column in table.columns if column.name not in casts and not column.nullable]
    times = [column for column in table.columns if column.name not in casts and _is_time(column)]
    changed = [column.name for column in times if _CHANGED.search(column.name)]
    key = [c.name for c in usable if (c.name,) == table.primary_key and c.watermark_type is WatermarkType.LONG]
    created = [column.name for column in times if _CREATED.search(column.name)]
    return next(iter((*changed, *key, *created)), None)


def _is_time(column: TableColumn) -> bool:
    return column.watermark_type in (WatermarkType.TIMESTAMP, WatermarkType.LOCAL_TIMESTAMP)
