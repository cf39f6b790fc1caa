"""Rows as arguments of one statement: an array for each column, which ``unnest`` turns into rows again."""

from collections.abc import Sequence
from typing import Any

from gobblin_assets.commit.segment import Segment
from gobblin_assets.db.statement_texts import to_jsonb
from gobblin_assets.model.watermark import Watermark


def in_columns(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """An array for each column. There must be a row."""
    return {name: [row[name] for row in rows] for name in rows[0]}


def segment_columns(segment: Segment) -> dict[str, Any]:
    """The columns of segments, without their sequence and attempt."""
    return {
        "role": segment.role.value,
        "partition": segment.partition,
        "payload": segment.payload,
        "digest": segment.digest,
        "step_count": segment.step_count,
        "file_count": segment.file_count,
        "row_count": segment.row_count,
        "file_bytes": segment.file_bytes,
        "file_schema": None if segment.file_schema is None else to_jsonb(segment.file_schema),
        "version": segment.version,
    }


def watermark_to_jsonb(watermark: Watermark | None) -> str | None:
    return None if watermark is None else to_jsonb(watermark.to_json())


def watermark_to_bytes(watermark: Watermark | None) -> bytes | None:
    """The bytes by which positions are compared."""
    return None if watermark is None else watermark.encode()
