"""Reads the ledger of one partition as moves that leave it unchanged, for another generation of the same rows."""

from collections import defaultdict
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from gobblin_assets.commit.sequence import KeyMove, PublishedInterval
from gobblin_assets.commit.standing import stand
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.state import DatasetId
from gobblin_assets.model.watermark import parse_watermark

_STANDING: Final = text("""
    SELECT k.name, k.partition, k.watermark, l.is_generation, l.low, l.high, l.reread_from
      FROM gobblin.commit_sequence s
      JOIN gobblin.ledger l USING (sequence_id)
      JOIN gobblin.watermark_key k USING (key_id)
     WHERE s.dataset_id = :dataset_id AND s.partition = :partition AND s.state = 'DONE' AND l.active
     ORDER BY k.name, k.partition, l.low_bytes NULLS FIRST
""")


def list_standing_moves(connection: Connection, dataset_id: DatasetId, partition: str) -> list[KeyMove]:
    rows = connection.execute(_STANDING, {"dataset_id": dataset_id, "partition": partition}).all()
    found: dict[tuple[str, str], list[Row[Any]]] = defaultdict(list)
    for row in rows:
        found[row.name, row.partition].append(row)
    return [
        stand(
            *place,
            None if entries[0].watermark is None else parse_watermark(entries[0].watermark),
            [_interval_of(entry) for entry in entries if not entry.is_generation],
            is_generation=any(entry.is_generation for entry in entries),
        )
        for place, entries in found.items()
    ]


def _interval_of(row: Row[Any]) -> PublishedInterval:
    low = None if row.low is None else parse_watermark(row.low)
    again = None if row.reread_from is None else parse_watermark(row.reread_from)
    return PublishedInterval(Interval(low, parse_watermark(row.high)), again)
