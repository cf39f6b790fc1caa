"""An observer that looks at the log and at the files all the time, and knows what must never be visible."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Final, Protocol

import psycopg

from tests.torture.tally import Tally

Connection = psycopg.Connection[tuple[object, ...]]

SAMPLE_EVERY_S: Final = 0.2

# One statement, so one snapshot: a transaction could see exactly this at that moment.
_LOOK = """
    SELECT d.job, d.urn, d.version, coalesce(l.fence, 0), coalesce(k.position, 0), s.done, s.last, g.rows
      FROM gobblin.dataset d
      LEFT JOIN gobblin.lease l ON l.lane_id = d.dataset_id
      LEFT JOIN LATERAL (SELECT max((w.watermark ->> 'value')::bigint) AS position FROM gobblin.watermark_key w
                          WHERE w.dataset_id = d.dataset_id) k ON true
      LEFT JOIN LATERAL (SELECT coalesce(sum(q.publication_count), 0)::bigint AS done,
                                coalesce(max(q.result_version), 0) AS last
                           FROM gobblin.commit_sequence q
                          WHERE q.dataset_id = d.dataset_id AND q.state = 'DONE') s ON true
      LEFT JOIN LATERAL (SELECT coalesce(sum(e.row_count), 0)::bigint AS rows
                           FROM gobblin.segment e JOIN gobblin.commit_sequence q USING (sequence_id)
                          WHERE e.dataset_id = d.dataset_id AND e.sealed AND e.retired_by IS NULL
                            AND q.state = 'DONE') g ON true
"""
_DONE = """
    SELECT result_version, sequence_id::text FROM gobblin.commit_sequence q JOIN gobblin.dataset d USING (dataset_id)
     WHERE d.job = %s AND d.urn = %s AND q.state = 'DONE' AND q.result_version > %s
"""


@dataclass(frozen=True, slots=True)
class Subject:
    """A dataset under torture."""

    job: str
    urn: str


@dataclass(frozen=True, slots=True)
class Seen:
    """The log's state of a dataset at one moment. Version, fence and position never go back."""

    version: int
    fence: int
    position: int
    rows: int


@dataclass(frozen=True, slots=True)
class Remembered:
    """How far the log of each dataset had come when it was last seen, and which sequence made which version."""

    positions: Mapping[Subject, int]
    done: Mapping[Subject, Mapping[int, str]]


class Watch(Protocol):
    """What an observer looks at besides versions and fences: the rows, or the files, of one kind of runner."""

    def judge(self, subject: Subject, seen: Seen) -> None:
        """Report what the log alone shows to be wrong."""
        ...

    def look(self, connection: Connection, subject: Subject) -> None:
        """Compare the published files with the log."""
        ...


class Observer:
    """Samples until it is stopped. While Postgres is away, it sees nothing."""

    def __init__(
        self, connect: Callable[[], Connection], subjects: Sequence[Subject], watch: Watch, tally: Tally
    ) -> None:
        self._connect = connect
        self._subjects = subjects
        self._tally = tally
        self._seen: dict[Subject, Seen] = {}
        self._watch = watch
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
                self._watch.look(connection, next(turns))
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
            now = Seen(int(str(version)), int(str(fence)), int(str(position)), int(str(rows)))
            before = self._seen.get(subject, Seen(0, 0, 0, 0))
            self._check(subject, before, now, int(str(done)), int(str(last)))
            self._seen[subject] = now
            if now.version > before.version:
                new = connection.execute(_DONE, [subject.job, subject.urn, before.version]).fetchall()
                self._done[subject].update({int(str(number)): str(sequence) for number, sequence in new})

    def _check(self, subject: Subject, before: Seen, now: Seen, done: int, last: int) -> None:
        if now.version < before.version or now.fence < before.fence or now.position < before.position:
            self._tally.violate(f"{subject}: something went back, from {before} to {now}")
        if not now.version == done == last:
            self._tally.violate(f"{subject}: version {now.version}, {done} finished sequences, the last of them {last}")
        self._watch.judge(subject, now)
