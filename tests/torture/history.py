"""The verdict on the log's history, after everything has come to rest: versions, intervals, events and open work."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.torture.observer import Connection, Remembered, Subject
from tests.torture.tally import Tally

# In a job's directory; readers ignore names that begin with a dot.
_STAGING: Final = ".staging"
_HIDDEN: Final = frozenset({_STAGING, ".markers"})
# A run that is killed while it probes a destination leaves a few bytes: see ``fs.posix.prove_publication``.
_OF_PROBES: Final = ".gobblin-probe-"
_VERSIONS: Final = """
    SELECT s.result_version, s.sequence_id::text, s.publication_count, d.version
      FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)
     WHERE d.job = %s AND d.urn = %s AND s.state = 'DONE' ORDER BY s.result_version
"""
_INTERVALS: Final = """
    SELECT k.name || ' ' || k.partition, coalesce((k.watermark ->> 'value')::bigint, 0),
           coalesce((l.low ->> 'value')::bigint, 0), coalesce((l.high ->> 'value')::bigint, 0)
      FROM gobblin.watermark_key k JOIN gobblin.dataset d USING (dataset_id)
      LEFT JOIN gobblin.ledger l ON l.key_id = k.key_id AND l.active AND NOT l.is_generation
                                AND l.low IS DISTINCT FROM l.high
     WHERE d.job = %s AND d.urn = %s ORDER BY 1, 4
"""
# A folded sequence is no row of its own any more.
_FINISHED: Final = """
    SELECT s.sequence_id::text, s.announced_at IS NOT NULL
      FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)
     WHERE d.job = %(job)s AND s.state = 'DONE'
     UNION ALL
    SELECT p.sequence_id::text, true FROM gobblin.past_sequence p JOIN gobblin.dataset d USING (dataset_id)
     WHERE d.job = %(job)s AND p.state = 'DONE'
"""


@dataclass(frozen=True, slots=True)
class Destination:
    """A job's directory of staging and markers, and the files that its runners wrote, if they tell anybody."""

    job: str
    work: Path
    events: Path | None
    acknowledged: Path | None


def check_history(
    connection: Connection,
    destination: Destination,
    subjects: Iterable[Subject],
    seen: Remembered,
    tally: Tally,
    gaps: Collection[tuple[str, int, int]] = (),
) -> None:
    """Report every difference to ``tally``. ``seen``: an observer's view on the way; the end must agree with it.

    ``gaps``: what a person left out, by key, from a position to another one.
    """
    finished = {
        str(sequence): bool(announced)
        for sequence, announced in connection.execute(_FINISHED, {"job": destination.job}).fetchall()
    }
    for subject in subjects:
        _check_versions(connection, subject, seen, finished.keys(), tally)
        _check_ledger(connection, subject, gaps, tally)
    _check_work(destination, tally)
    if destination.events is not None and destination.acknowledged is not None:
        _check_events(destination.job, destination.events, destination.acknowledged, finished, tally)


def _check_versions(
    connection: Connection, subject: Subject, seen: Remembered, finished: Iterable[str], tally: Tally
) -> None:
    rows = connection.execute(_VERSIONS, [subject.job, subject.urn]).fetchall()
    now = {int(str(number)): str(sequence) for number, sequence, _count, _version in rows}
    last = int(str(rows[-1][3])) if rows else 0
    # A fold has the number of its newest publication.
    total = sum(int(str(count)) for _number, _sequence, count, _version in rows)
    if len(now) != len(rows) or min(now, default=1) < 1 or max(now, default=0) != last or total != last:
        tally.violate(f"{subject}: the versions are not one after the other: {sorted(now)}")
    known = set(finished)
    changed = {
        number: sequence
        for number, sequence in seen.done.get(subject, {}).items()
        if now.get(number) != sequence and (number in now or sequence not in known)
    }
    if changed:
        tally.violate(f"{subject}: versions that were seen are not what they were: {changed}")


def _check_ledger(
    connection: Connection, subject: Subject, gaps: Collection[tuple[str, int, int]], tally: Tally
) -> None:
    """The intervals of each key lead from its start to its watermark."""
    reached: dict[str, int] = {}
    positions: dict[str, int] = {}
    for partition, position, low, high in connection.execute(_INTERVALS, [subject.job, subject.urn]).fetchall():
        key = str(partition)
        positions[key] = int(str(position))
        is_left_out = (key.rstrip(), reached.get(key, 0), int(str(low))) in gaps
        if int(str(low)) != reached.get(key, 0) and not is_left_out:
            tally.violate(f"{subject} {key}: the ledger's intervals have a gap or an overlap at {low}")
        reached[key] = int(str(high))
    for key, position in positions.items():
        if reached[key] != position and (key.rstrip(), reached[key], position) not in gaps:
            tally.violate(f"{subject} {key}: the ledger ends at {reached[key]}, the watermark is {position}")


def _check_work(destination: Destination, tally: Tally) -> None:
    hidden = {name for name in _list_names(destination.work, tally) if name.startswith(".")} - _HIDDEN
    if hidden:
        tally.violate(f"{destination.job}: hidden directories that nobody announced: {sorted(hidden)}")
    left = _list_names(destination.work / _STAGING, tally)
    if left:
        tally.violate(f"{destination.job}: {len(left)} left in staging, such as {left[:3]}")


def _list_names(directory: Path, tally: Tally) -> list[str]:
    names = sorted(path.name for path in directory.iterdir()) if directory.exists() else []
    probes = [name for name in names if name.startswith(_OF_PROBES)]
    tally.add("probe files that a killed run left", len(probes))
    return [name for name in names if name not in probes]


def _check_events(job: str, events: Path, acknowledged: Path, finished: dict[str, bool], tally: Tally) -> None:
    done = finished.keys()
    sent = _read_words(events)
    if done - sent or not all(finished.values()):
        tally.violate(f"{job}: {len(done - sent)} finished sequences without an event")
    if sent - done:
        tally.violate(f"{job}: events for what was never finished: {sorted(sent - done)[:3]}")
    told = _read_words(acknowledged)
    if told - done:
        tally.violate(f"{job}: runs were told that these are published: {sorted(told - done)[:3]}")


def check_log(connection: Connection, tally: Tally) -> None:
    """Nothing of any job is open or uncleaned."""
    rows = connection.execute(
        "SELECT state, count(*) FROM gobblin.commit_sequence WHERE state NOT IN ('DONE', 'ABORTED') GROUP BY state"
    ).fetchall()
    if rows:
        tally.violate(f"sequences are still open: {rows}")
    left = connection.execute("SELECT count(*) FROM gobblin.attempt WHERE cleaned_at IS NULL").fetchone()
    if left and left[0]:
        tally.violate(f"{left[0]} attempts were never cleaned up")


def _read_words(path: Path) -> set[str]:
    return set(path.read_text(encoding="ascii").split()) if path.exists() else set()
