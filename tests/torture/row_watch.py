"""What an observer sees of rows: those of the published files are exactly the rows below the watermark.

It uses none of the product's readers: plain SQL in one snapshot, Arrow for the segments, Parquet for the rows.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.torture.observer import Connection, Seen, Subject
from tests.torture.tally import Tally

Rows = Counter[tuple[int, str]]

_ACTIVE = """
    SELECT g.segment_id::text, g.payload, coalesce((SELECT max((w.watermark ->> 'value')::bigint)
                                                      FROM gobblin.watermark_key w
                                                     WHERE w.dataset_id = d.dataset_id), 0)
      FROM gobblin.dataset d
      LEFT JOIN gobblin.segment g ON g.dataset_id = d.dataset_id AND g.sealed AND g.retired_by IS NULL
                                 AND EXISTS (SELECT FROM gobblin.commit_sequence s
                                              WHERE s.sequence_id = g.sequence_id AND s.state = 'DONE')
     WHERE d.job = %s AND d.urn = %s
"""


class FileReader:
    """The rows of published files. A published file never changes, so each is read once while its identity stays."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, int, int], list[tuple[int, str]]]] = {}

    def read(self, path: str) -> list[tuple[int, str]]:
        found = Path(path).stat()
        identity = (found.st_ino, found.st_mtime_ns, found.st_size)
        known = self._known.get(path)
        if known is None or known[0] != identity:
            table = pq.ParquetFile(path).read()
            known = (identity, list(zip(table["number"].to_pylist(), table["value"].to_pylist(), strict=True)))
            self._known[path] = known
        return known[1]


class RowWatch:
    """``Watch`` of datasets whose rows are numbered from 0 without a gap, and each row has its dataset's name."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._files = FileReader()

    def judge(self, subject: Subject, seen: Seen) -> None:
        if seen.rows != seen.position:
            self._tally.violate(f"{subject}: {seen.rows} rows are published at watermark {seen.position}")

    def look(self, connection: Connection, subject: Subject) -> None:
        position, paths = find_active(connection, subject)
        rows: Rows = Counter()
        missing = set()
        for path, segment in paths.items():
            try:
                rows.update(self._files.read(path))
            except FileNotFoundError:
                missing.add((path, segment))
        if missing:
            # A refresh may have retired and removed them since; if not, an acknowledged row is gone.
            still = set(find_active(connection, subject)[1].items()) & missing
            if still:
                self._tally.violate(f"{subject}: published files are gone: {sorted(still)[:3]}")
        elif rows != rows_below(subject, position):
            self._tally.violate(f"{subject} at watermark {position}: {describe(rows, rows_below(subject, position))}")
        else:
            self._tally.add("samples with all rows of a dataset")


def rows_below(subject: Subject, position: int) -> Rows:
    return Counter((number, f"{subject.urn}-{number}") for number in range(position))


def find_active(connection: Connection, subject: Subject) -> tuple[int, dict[str, str]]:
    """The watermark, and the published files with the segment of each, by one snapshot."""
    rows = connection.execute(_ACTIVE, [subject.job, subject.urn]).fetchall()
    position = int(str(rows[0][2])) if rows else 0
    files = {}
    for segment, payload, _position in rows:
        if isinstance(payload, bytes):
            files.update(dict.fromkeys(list_targets(payload), str(segment)))
    return position, files


def list_targets(payload: bytes) -> Iterator[str]:
    """The published paths in a segment, as ``commit.segment`` describes its columns."""
    with pa.ipc.open_stream(payload) as stream:
        table = stream.read_all()
    for directory, name in zip(table["target_directory"].to_pylist(), table["target_name"].to_pylist(), strict=True):
        if name is not None:
            yield f"{directory}/{name}"


def describe(found: Rows, expected: Rows) -> str:
    """The difference of two multisets as text for people."""
    missing, extra = expected - found, found - expected
    parts = []
    if missing:
        parts.append(f"{missing.total()} rows are missing, such as {sorted(missing)[:3]}")
    if extra:
        parts.append(f"{extra.total()} rows are too many, such as {sorted(extra)[:3]}")
    return "; ".join(parts)
