"""Records of a lane that are only counted, since Spark reads them again at the cut."""

from collections import Counter

import pyarrow as pa

from gobblin_assets.jobs.sink.lane_files import CutFile, PlacedRows
from gobblin_assets.model.urn import Role


class RecordCounts:
    """``Gathering`` of nothing. ``size_bytes``: as Arrow has the records, without a memory of them."""

    held_bytes = 0

    def __init__(self) -> None:
        self.size_bytes = 0
        self.row_counts: Counter[Role] = Counter()

    def require_columns(self, role: Role, found: pa.Schema) -> None:
        """Records have the log's columns."""

    def change_columns(self, columns: pa.Schema) -> None:
        """Records are counted, whatever their columns."""

    def add(self, placed: PlacedRows) -> None:
        self.size_bytes += placed.rows.nbytes
        self.row_counts[placed.role] += placed.rows.num_rows

    def encode_held(self) -> None:
        """Nothing is held."""

    def close(self) -> tuple[CutFile, ...]:
        self.discard()
        return ()

    def discard(self) -> None:
        self.size_bytes = 0
        self.row_counts = Counter()
