"""Rows of a copy as records of the log: typed already, with what the copy was in their schema's metadata."""

import datetime as dt
import json
from typing import Final

import pyarrow as pa

from gobblin_assets.sources.postgres_log.logged_table import table_to_json
from gobblin_assets.sources.postgres_log.table_copy import CopiedFrom

_MICROS: Final = dt.timedelta(microseconds=1)
_EPOCH_START: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def describe_copied_rows(rows: pa.RecordBatch, source: CopiedFrom, copy: int) -> pa.RecordBatch:
    """The batch, with the metadata that the decoder reads."""
    return _describe(rows, source, copy, begins=False)


def begin_copied_rows(source: CopiedFrom, copy: int) -> pa.RecordBatch:
    """A record that begins a copy behind another one, or behind a part of one: the rows before it do not count."""
    return _describe(pa.RecordBatch.from_pylist([], schema=source.schema), source, copy, begins=True)


def _describe(rows: pa.RecordBatch, source: CopiedFrom, copy: int, *, begins: bool) -> pa.RecordBatch:
    said = {"lsn": source.partial.place, "at": (source.at - _EPOCH_START) // _MICROS, "begins": begins}
    return rows.replace_schema_metadata(
        {b"table": table_to_json(source.table), b"copy": str(copy), b"copied": json.dumps(said)}
    )
