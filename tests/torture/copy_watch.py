"""What an observer sees of copies: every name holds one whole version, and one that the log allows at that moment.

It uses none of the product's readers: plain SQL in one snapshot, Arrow for the segments, and the bytes of the files.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from tests.torture.copy_source import SourceTree
from tests.torture.observer import Connection, Seen, Subject
from tests.torture.proving_files import read_version
from tests.torture.tally import Tally

Identity = tuple[int, int, int]
"""Length, inode and modification time."""

Changes = dict[str, Identity | None]
"""What each name below the destination holds afterwards; None: nothing."""

_WHOLE_LOOKS: Final = "samples with all files of a dataset"
_OF_REMOVALS: Final = "remove_file"
_NAMES: Final = """
    SELECT d.version, q.given_up, q.undone, s.sequence_id::text, s.state, coalesce(g.version, s.result_version),
           g.payload
      FROM gobblin.dataset d
      LEFT JOIN LATERAL (SELECT count(*) FILTER (WHERE o.state IN ('ABANDONING', 'ABORTED')) AS given_up,
                                count(*) FILTER (WHERE o.state = 'ABORTED') AS undone
                           FROM gobblin.commit_sequence o
                          WHERE o.dataset_id = d.dataset_id AND o.prepared_at IS NOT NULL) q ON true
      LEFT JOIN gobblin.segment g ON g.dataset_id = d.dataset_id AND g.sealed
      LEFT JOIN gobblin.commit_sequence s ON s.sequence_id = g.sequence_id
                                         AND s.state IN ('DONE', 'PREPARED', 'BLOCKED', 'ABANDONING')
     WHERE d.job = %s AND d.urn = %s
     ORDER BY 6
"""


@dataclass(slots=True)
class NamesInLog:
    """What the log says of a dataset's names at one moment.

    ``current``: of all that is finished. ``newest``: the changes of each finished version. ``moving``: those of each
    sequence that is sealed and not over. ``given_up``: how many sealed sequences were abandoned; ``undone``: of how
    many that is over.
    """

    version: int = 0
    given_up: int = 0
    undone: int = 0
    current: Changes = field(default_factory=dict)
    newest: dict[int, Changes] = field(default_factory=lambda: defaultdict(dict))
    moving: dict[str, Changes] = field(default_factory=lambda: defaultdict(dict))


def read_names(connection: Connection, subject: Subject, root: Path) -> NamesInLog:
    """By one snapshot. Paths are those below ``root``."""
    found = NamesInLog()
    for version, given_up, undone, sequence, state, number, payload in connection.execute(
        _NAMES, [subject.job, subject.urn]
    ):
        found.version, found.given_up, found.undone = int(str(version)), int(str(given_up)), int(str(undone))
        if not isinstance(payload, bytes) or state is None:
            continue
        changes = dict(list_changes(payload, root))
        if state == "DONE":
            found.current.update(changes)
            found.newest[int(str(number))].update(changes)
        else:
            found.moving[str(sequence)].update(changes)
    return found


def list_changes(payload: bytes, root: Path) -> Iterator[tuple[str, Identity | None]]:
    """The changes of a segment, whose columns ``commit.segment`` and ``fixed_names.named_codecs`` describe."""
    with pa.ipc.open_stream(payload) as stream:
        table = stream.read_all()
    columns = ("kind", "target_directory", "target_name", "size_bytes", "inode", "mtime_ns")
    for kind, directory, name, size, inode, mtime in zip(*(table[each].to_pylist() for each in columns), strict=True):
        path = f"{directory}/{name}"[len(str(root)) + 1 :]
        if size is not None:
            yield path, (size, inode, mtime)
        elif kind == _OF_REMOVALS:
            yield path, None


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as it was found at a name. ``version`` None: it is no whole version of this name."""

    identity: Identity
    mode: int
    version: int | None


class CopyWatch:
    """``Watch`` of copies. ``trees``: each dataset's source and the root of its destination."""

    def __init__(self, trees: Mapping[Subject, tuple[SourceTree, Path]], tally: Tally) -> None:
        self._trees = trees
        self._tally = tally
        self._read: dict[tuple[str, Identity, int], int | None] = {}
        self._floors: dict[tuple[Subject, str], int] = {}
        self._last: dict[tuple[Subject, str], tuple[int, int]] = {}

    def judge(self, subject: Subject, seen: Seen) -> None:
        if seen.rows:
            self._tally.violate(f"{subject}: a copy has {seen.rows} rows")

    def look(self, connection: Connection, subject: Subject) -> None:
        tree, root = self._trees[subject]
        before = read_names(connection, subject, root)
        expected = {*before.current, *(path for changes in before.moving.values() for path in changes)}
        found = {path: self._find(root, path) for path in {*expected, *list_files(root, tree.place)}}
        after = read_names(connection, subject, root)
        if after.undone - before.undone > len(before.moving):
            self._tally.add("samples that an abandonment overtook")
            return
        allowed = _allow(before, after)
        problems = list(self._acknowledge(subject, before))
        for path, found_file in found.items():
            problems += self._judge_name(subject, path, found_file, allowed.get(path, {None}))
            problems += self._judge_order(subject, path, found_file, before, after)
        for problem in problems:
            self._tally.violate(f"{subject}: {problem}")
        self._tally.add(_WHOLE_LOOKS, 0 if problems else 1)

    def _find(self, root: Path, path: str) -> FoundFile | None:
        """The name is looked up once; what is there is read through what was opened."""
        try:
            with (root / path).open("rb") as stream:
                entry = os.fstat(stream.fileno())
                identity = (entry.st_size, entry.st_ino, entry.st_mtime_ns)
                key = (path, identity, entry.st_ctime_ns)
                if key not in self._read:
                    self._read[key] = read_version(path, stream.read())
        except FileNotFoundError:
            return None
        return FoundFile(identity, entry.st_mode & 0o7777, self._read[key])

    def _judge_name(
        self, subject: Subject, path: str, found_file: FoundFile | None, allowed: set[Identity | None]
    ) -> Iterator[str]:
        if found_file is None:
            if None not in allowed:
                yield f"{path} is missing"
            return
        if found_file.identity not in allowed:
            yield f"{path} is a file that the log does not have there: {found_file}, allowed {allowed}"
        history = self._trees[subject][0].history.get(path, [])
        if found_file.version is None or found_file.version > len(history):
            yield f"{path} is no whole version of the source: {found_file}"
            return
        version = history[found_file.version - 1]
        size, _inode, mtime_ns = found_file.identity
        if (size, mtime_ns, found_file.mode) != (version.size, version.mtime_ns, version.mode):
            yield f"{path} has not the attributes of its version {version}: {found_file}"

    def _acknowledge(self, subject: Subject, names: NamesInLog) -> Iterator[str]:
        """Remember the newest version of each name that was ever finished."""
        tree, _root = self._trees[subject]
        for path, known in names.current.items():
            if known is None:
                continue
            times = [version.mtime_ns for version in tree.history.get(path, [])]
            if known[2] not in times:
                yield f"{path} has a time in the log that no version of the source has: {known}"
                continue
            version, floor = times.index(known[2]) + 1, self._floors.get((subject, path), 0)
            if version < floor:
                yield f"{path}: version {version} was finished after {floor}"
            self._floors[subject, path] = max(version, floor)

    def _judge_order(
        self, subject: Subject, path: str, found_file: FoundFile | None, before: NamesInLog, after: NamesInLog
    ) -> Iterator[str]:
        """Versions at a name only go back by an abandonment, and never behind one that was acknowledged."""
        if found_file is None or found_file.version is None:
            return
        floor = self._floors.get((subject, path), 0)
        if found_file.version < floor:
            yield f"{path} is version {found_file.version}, and {floor} was acknowledged"
        last, undone = self._last.get((subject, path), (0, 0))
        if found_file.version < last and after.given_up == undone:
            yield f"{path} went back from version {last} to {found_file.version}"
        self._last[subject, path] = (found_file.version, before.undone)


def _allow(before: NamesInLog, after: NamesInLog) -> dict[str, set[Identity | None]]:
    """What each name may hold between two looks at the log."""
    between = [changes for version, changes in after.newest.items() if version > before.version]
    allowed: dict[str, set[Identity | None]] = defaultdict(set)
    names = {path for changes in (before.current, after.current) for path in changes}
    for path in names:
        allowed[path] |= {before.current.get(path), after.current.get(path)}
    for changes in (*between, *before.moving.values(), *after.moving.values()):
        for path, known in changes.items():
            allowed[path] |= {known, before.current.get(path), after.current.get(path)}
    return allowed


def list_files(root: Path, place: str) -> Iterator[str]:
    """All files of a dataset's directory, by their paths below ``root``."""
    for directory, _directories, names in os.walk(root / place):
        yield from (str(Path(directory, name).relative_to(root)) for name in names)
