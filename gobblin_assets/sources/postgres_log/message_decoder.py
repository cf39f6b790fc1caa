"""Messages of one prefix, written by ``pg_logical_emit_message``, as rows: an outbox as a dataset."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import pyarrow as pa

from gobblin_assets.errors import CorruptionError
from gobblin_assets.rows.arrow_types import arrow_schema
from gobblin_assets.sources.epoch_source import DecodedRows

MESSAGE_COLUMNS: Final[Mapping[str, str]] = MappingProxyType({
    "content": "binary",
    "_lsn": "bigint",
    "_seq": "bigint",
    "_xid": "bigint",
    "_commit_at": "timestamp",
})  # fmt: skip
"""Name to Spark type. Of a message outside of transactions, ``_lsn`` is its own place, and what follows is NULL."""

MESSAGE_SCHEMA: Final = arrow_schema(list(MESSAGE_COLUMNS.items()))


class MessageDecoder:
    """``RowDecoder`` of messages, which are rows already."""

    may_change = False

    @property
    def columns(self) -> Sequence[tuple[str, str]]:
        return list(MESSAGE_COLUMNS.items())

    @property
    def source_columns(self) -> Sequence[tuple[str, str]]:
        return self.columns

    @property
    def dead_letter_columns(self) -> Sequence[tuple[str, str]]:
        return ()

    def decode(self, records: pa.RecordBatch) -> DecodedRows:
        if records.schema != MESSAGE_SCHEMA:
            raise CorruptionError("messages have other columns than messages have")
        return DecodedRows(records, pa.RecordBatch.from_arrays([], schema=pa.schema([])), 0)
