"""The verdict, after everything has come to rest: the log, the files, the events and the sources must agree."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.torture.observer import Connection, FileReader, Remembered, Rows, Subject, describe, find_active
from tests.torture.tally import Tally

# Below a job's directory; readers ignore names that begin with a dot.
_STAGING: Final = ".staging"
_HIDDEN: Final = frozenset({_STAGING, ".markers"})
# A run that is killed while it probes a destination leaves a few bytes: see ``fs.posix_probe``.
_OF_PROBES: Final = ".gobblin-probe-"


@dataclass(frozen=True, slots=True)
class Destination:
    """A job's root, its datasets with the rows of their sources, and the files that its runners wrote."""

    root: Path
    job: str
    sources: Mapping[Subject, Rows]
    events: Path
    acknowledged: Path


def check_history(
    connect: Callable[[], Connection], destinations: Sequence[Destination], seen: Remembered, tally: Tally
) -> None:
    """Report every difference to ``tally``. ``seen``: an observer's view on the way; the end must agree with it."""
    with connect() as connection:
        for destination in destinations:
            visible: list[str] = []
            for subject, source in destination.sources.items():
                visible += _check_dataset(connection, subject, source, seen, tally)
            _check_storage(destination, visible, tally)
            _check_events(connection, destination, tally)
        _check_log(connection, tally)


def _check_dataset(
    connection: Connection,
    subject: Subject,
    source: Rows,
    seen: Remembered,
    tally: Tally,
) -> list[str]:
    position, files = find_active(connection, subject)
    reader = FileReader()
    found: Rows = Counter()
    for path in files:
        try:
            found.update(reader.read(path))
        except FileNotFoundError:
            tally.violate(f"{subject}: a published file is gone: {path}")
    tally.add("rows published", found.total())
    if found != source:
        tally.violate(f"{subject} is not exactly its source: {describe(found, source)}")
    if position != source.total() or position < seen.positions.get(subject, 0):
        tally.violate(f"{subject}: the watermark is {position} at the end, with {source.total()} rows at the source")
    _check_versions(connection, subject, seen, tally)
    _check_ledger(connection, subject, position, tally)
    return list(files)


def _check_versions(connection: Connection, subject: Subject, seen: Remembered, tally: Tally) -> None:
    rows = connection.execute(
        "SELECT s.result_version, s.sequence_id::text, d.version FROM gobblin.commit_sequence s"
        " JOIN gobblin.dataset d USING (dataset_id)"
        " WHERE d.job = %s AND d.urn = %s AND s.state = 'DONE' ORDER BY s.result_version",
        [subject.job, subject.urn],
    ).fetchall()
    numbers = [int(str(number)) for number, _sequence, _version in rows]
    if numbers != list(range(1, len(rows) + 1)) or (rows and int(str(rows[0][2])) != len(rows)):
        tally.violate(f"{subject}: the versions are not one after the other: {numbers}")
    now = {int(str(number)): str(sequence) for number, sequence, _version in rows}
    done = seen.done.get(subject, {})
    changed = {number: sequence for number, sequence in done.items() if now.get(number) != sequence}
    if changed:
        tally.violate(f"{subject}: versions that were seen are not what they were: {changed}")


def _check_ledger(connection: Connection, subject: Subject, position: int, tally: Tally) -> None:
    rows = connection.execute(
        "SELECT coalesce((l.low ->> 'value')::bigint, 0), (l.high ->> 'value')::bigint FROM gobblin.ledger l"
        " JOIN gobblin.watermark_key k USING (key_id) JOIN gobblin.dataset d USING (dataset_id)"
        " WHERE d.job = %s AND d.urn = %s AND l.active AND NOT l.is_generation AND l.low IS DISTINCT FROM l.high"
        " ORDER BY 2",
        [subject.job, subject.urn],
    ).fetchall()
    reached = 0
    for low, high in rows:
        if int(str(low)) != reached:
            tally.violate(f"{subject}: the ledger's intervals have a gap or an overlap at {reached}, {low}")
        reached = int(str(high))
    if reached != position:
        tally.violate(f"{subject}: the ledger ends at {reached}, the watermark is {position}")


def _check_storage(destination: Destination, visible: Sequence[str], tally: Tally) -> None:
    job = destination.root / destination.job
    stored = {
        str(path)
        for path in destination.root.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(destination.root).parts)
    }
    twice = [path for path, count in Counter(visible).items() if count > 1]
    if twice:
        tally.violate(f"{destination.job}: published under one name twice: {twice[:3]}")
    phantoms = sorted(stored - set(visible))
    if phantoms:
        tally.violate(f"{destination.job}: {len(phantoms)} files that the log does not know, such as {phantoms[:3]}")
    hidden = {name for name in _list_names(job, tally) if name.startswith(".")} - _HIDDEN
    if hidden:
        tally.violate(f"{destination.job}: hidden directories that nobody announced: {sorted(hidden)}")
    left = _list_names(job / _STAGING, tally)
    if left:
        tally.violate(f"{destination.job}: {len(left)} left in staging, such as {left[:3]}")


def _list_names(directory: Path, tally: Tally) -> list[str]:
    names = sorted(path.name for path in directory.iterdir()) if directory.exists() else []
    probes = [name for name in names if name.startswith(_OF_PROBES)]
    tally.add("probe files that a killed run left", len(probes))
    return [name for name in names if name not in probes]


def _check_events(connection: Connection, destination: Destination, tally: Tally) -> None:
    rows = connection.execute(
        "SELECT s.sequence_id::text, s.announced_at FROM gobblin.commit_sequence s"
        " JOIN gobblin.dataset d USING (dataset_id) WHERE d.job = %s AND s.state = 'DONE'",
        [destination.job],
    ).fetchall()
    done = {str(sequence) for sequence, _announced in rows}
    sent = _read_words(destination.events)
    if done - sent or any(announced is None for _sequence, announced in rows):
        tally.violate(f"{destination.job}: {len(done - sent)} finished sequences without an event")
    if sent - done:
        tally.violate(f"{destination.job}: events for what was never finished: {sorted(sent - done)[:3]}")
    told = _read_words(destination.acknowledged)
    if told - done:
        tally.violate(f"{destination.job}: runs were told that these are published: {sorted(told - done)[:3]}")


def _check_log(connection: Connection, tally: Tally) -> None:
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
