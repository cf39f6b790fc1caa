"""An observer that looks at the log and at the files all the time, and knows what must never be visible.

It uses none of the product's readers: plain SQL in one snapshot, Arrow for the segments, Parquet for the rows.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Final

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from tests.torture.tally import Tally

Rows = Counter[tuple[int, str]]
Connection = psycopg.Connection[tuple[object, ...]]

SAMPLE_EVERY_S: Final = 0.2

# One statement, so one snapshot: a transaction could see exactly this at that moment.
_LOOK = """
    SELECT d.job, d.urn, d.version, coalesce(l.fence, 0), coalesce(k.position, 0), s.done, s.last, g.rows
      FROM gobblin.dataset d
      LEFT JOIN gobblin.lease l USING (dataset_id)
      LEFT JOIN LATERAL (SELECT max((w.watermark ->> 'value')::bigint) AS position FROM gobblin.watermark_key w
                          WHERE w.dataset_id = d.dataset_id) k ON true
      LEFT JOIN LATERAL (SELECT count(*) AS done, coalesce(max(q.result_version), 0) AS last
                           FROM gobblin.commit_sequence q
                          WHERE q.dataset_id = d.dataset_id AND q.state = 'DONE') s ON true
      LEFT JOIN LATERAL (SELECT coalesce(sum(e.row_count), 0)::bigint AS rows
                           FROM gobblin.segment e JOIN gobblin.commit_sequence q USING (sequence_id)
                          WHERE e.dataset_id = d.dataset_id AND e.sealed AND e.retired_by IS NULL
                            AND q.state = 'DONE') g ON true
"""
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
_DONE = """
    SELECT result_version, sequence_id::text FROM gobblin.commit_sequence q JOIN gobblin.dataset d USING (dataset_id)
     WHERE d.job = %s AND d.urn = %s AND q.state = 'DONE' AND q.result_version > %s
"""


@dataclass(frozen=True, slots=True)
class Subject:
    """A dataset under torture. Its rows are numbered from 0 without a gap, and each row has its dataset's name."""

    job: str
    urn: str

    def rows_below(self, position: int) -> Rows:
        return Counter((number, f"{self.urn}-{number}") for number in range(position))


@dataclass(frozen=True, slots=True)
class Seen:
    """The log's state of a dataset at one moment. No part of it may ever go back."""

    version: int
    fence: int
    position: int


@dataclass(frozen=True, slots=True)
class Remembered:
    """How far the log of each dataset had come when it was last seen, and which sequence made which version."""

    positions: Mapping[Subject, int]
    done: Mapping[Subject, Mapping[int, str]]


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


class Observer:
    """Samples until it is stopped. While Postgres is away, it sees nothing."""

    def __init__(self, connect: Callable[[], Connection], subjects: Sequence[Subject], tally: Tally) -> None:
        self._connect = connect
        self._subjects = subjects
        self._tally = tally
        self._seen: dict[Subject, Seen] = {}
        self._files = FileReader()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._observe, daemon=True)
        self._done: dict[Subject, dict[int, str]] = {subject: {} for subject in subjects}
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def pause(self) -> None:
        """Wait for about one sample."""
        self._stopping.wait(SAMPLE_EVERY_S)

    def remember(self) -> Remembered:
        return Remembered({subject: seen.position for subject, seen in self._seen.items()}, self._done)

    def _observe(self) -> None:
        turns = cycle(self._subjects)
        connection: Connection | None = None
        while not self._stopping.wait(SAMPLE_EVERY_S):
            try:
                connection = connection or self._connect()
                self._look_at_the_log(connection)
                self._look_at_the_files(connection, next(turns))
                self._tally.add("samples")
            except (psycopg.Error, OSError) as error:
                if not isinstance(error, psycopg.Error):
                    self._tally.violate(f"the observer could not read: {error}")
                if connection is not None:
                    connection.close()
                connection = None
            except Exception as error:  # noqa: BLE001  an observer that dies unseen would see nothing wrong
                self._tally.violate(f"the observer failed: {error!r}")
        if connection is not None:
            connection.close()

    def _look_at_the_log(self, connection: Connection) -> None:
        known = {(subject.job, subject.urn): subject for subject in self._subjects}
        for job, urn, version, fence, position, done, last, rows in connection.execute(_LOOK).fetchall():
            subject = known[str(job), str(urn)]
            now = Seen(int(str(version)), int(str(fence)), int(str(position)))
            before = self._seen.get(subject, Seen(0, 0, 0))
            self._check(subject, before, now, int(str(done)), int(str(last)), int(str(rows)))
            self._seen[subject] = now
            if now.version > before.version:
                new = connection.execute(_DONE, [subject.job, subject.urn, before.version]).fetchall()
                self._done[subject].update({int(str(number)): str(sequence) for number, sequence in new})

    def _check(self, subject: Subject, before: Seen, now: Seen, done: int, last: int, rows: int) -> None:
        if now.version < before.version or now.fence < before.fence or now.position < before.position:
            self._tally.violate(f"{subject}: something went back, from {before} to {now}")
        if not now.version == done == last:
            self._tally.violate(f"{subject}: version {now.version}, {done} finished sequences, the last of them {last}")
        if rows != now.position:
            self._tally.violate(f"{subject}: {rows} rows are published at watermark {now.position}")

    def _look_at_the_files(self, connection: Connection, subject: Subject) -> None:
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
        elif rows != subject.rows_below(position):
            self._tally.violate(f"{subject} at watermark {position}: {describe(rows, subject.rows_below(position))}")
        else:
            self._tally.add("samples with all rows of a dataset")


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
