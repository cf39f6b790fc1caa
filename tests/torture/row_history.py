"""The verdict on rows, after everything has come to rest: the log, the files, the events and the sources must agree."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.torture.history import Destination, check_history, check_log
from tests.torture.observer import Connection, Remembered, Subject
from tests.torture.row_watch import FileReader, Rows, describe, find_active
from tests.torture.tally import Tally


@dataclass(frozen=True, slots=True)
class RowDestination(Destination):
    """``root``: that of the published files. ``sources``: the job's datasets with the rows of their sources."""

    root: Path
    sources: Mapping[Subject, Rows]


def check_rows(
    connect: Callable[[], Connection], destinations: Sequence[RowDestination], seen: Remembered, tally: Tally
) -> None:
    """Report every difference to ``tally``. ``seen``: an observer's view on the way; the end must agree with it."""
    with connect() as connection:
        for destination in destinations:
            visible: list[str] = []
            for subject, source in destination.sources.items():
                visible += _check_dataset(connection, subject, source, seen, tally)
            check_storage(destination.job, destination.root, visible, tally)
            check_history(connection, destination, destination.sources, seen, tally)
        check_log(connection, tally)


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
    tally.add("rows at the sources", source.total())
    tally.add("rows published", found.total())
    if found != source:
        tally.violate(f"{subject} is not exactly its source: {describe(found, source)}")
    if position != source.total() or position < seen.positions.get(subject, 0):
        tally.violate(f"{subject}: the watermark is {position} at the end, with {source.total()} rows at the source")
    return list(files)


def check_storage(job: str, root: Path, visible: Sequence[str], tally: Tally) -> None:
    """Below the root of a destination, the visible files are all that readers can find."""
    stored = {
        str(path)
        for path in root.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(root).parts)
    }
    twice = [path for path, count in Counter(visible).items() if count > 1]
    if twice:
        tally.violate(f"{job}: published under one name twice: {twice[:3]}")
    phantoms = sorted(stored - set(visible))
    if phantoms:
        tally.violate(f"{job}: {len(phantoms)} files that the log does not know, such as {phantoms[:3]}")
