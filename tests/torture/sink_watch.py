"""What a reader sees of a sink all the while: records that were published once stay, and none is there twice."""

from collections import Counter
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from tests.torture.observer import Connection, Seen, Subject
from tests.torture.row_watch import find_active
from tests.torture.tally import Tally

_PLACE: Final = (
    *("kafka_partition", "kafka_offset", "number"),
    *("dead_letter_partition", "dead_letter_offset", "dead_letter_value"),
)
"""Of rows, and of dead letters. A topic that was made again has other records at the same offsets."""

Place = tuple[object, ...]


class SinkWatch:
    """``Watch`` of datasets whose rows name their partitions and offsets. Of rows elsewhere it sees the count only."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._rows: dict[Subject, int] = {}
        self._places: dict[str, list[Place]] = {}
        self._seen: dict[Subject, set[Place]] = {}

    def judge(self, subject: Subject, seen: Seen) -> None:
        before = self._rows.get(subject, 0)
        if seen.rows < before:
            self._tally.violate(f"{subject}: {before} rows were published, and now there are {seen.rows}")
        self._rows[subject] = seen.rows

    def look(self, connection: Connection, subject: Subject) -> None:
        _position, paths = find_active(connection, subject)
        found: Counter[Place] = Counter()
        for path in paths:
            try:
                found.update(self._read(path))
            except FileNotFoundError:
                self._tally.violate(f"{subject}: a published file is gone: {path}")
        before = self._seen.get(subject, set())
        twice = [place for place, count in found.items() if count > 1]
        gone = before - found.keys()
        if twice or gone:
            self._tally.violate(
                f"{subject}: {len(twice)} records are there twice, such as {twice[:3]}; {len(gone)} that a "
                f"reader saw are gone, such as {[*gone][:3]}"
            )
        else:
            self._tally.add("samples with all rows of a dataset")
        self._seen[subject] = set(found)

    def _read(self, path: str) -> list[Place]:
        """A published file never changes, so that it is read once. It is opened each time: it has to be there."""
        with Path(path).open("rb") as file:
            if path not in self._places:
                parquet = pq.ParquetFile(file)
                table = parquet.read([name for name in _PLACE if name in parquet.schema_arrow.names])
                self._places[path] = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        return self._places[path]
