"""Folding: old publications of one dataset partition become one, so that the log stays small.

The promise. Whoever asks the log what a dataset is, which positions are covered, what may be removed, or whether it
knows a sequence, gets the same answer before a fold and after it. No file moves.

What a fold is. The newest of the sequences that are folded stays, as a *fold*: it has their segments, whose lists of
files are joined, and their intervals, of which neighbours are joined. The rows of the others go, and of all of them
planned moves, attempts and WorkUnits; only the others' ids stay (``past_sequence``), since storage names them. One
transaction, under the dataset's fence, while no sequence of the dataset is open: a kill leaves all of it or nothing.

What is folded: sequences that are DONE and announced, whose attempts are clean, that are not among the newest, are
older than a bound, and of which nothing is retired.

What is forgotten. Retired publications whose files were removed, aborted sequences, and the rows of runs, once they are
older than ``history_days``.
"""

import hashlib
import json
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gobblin_assets.commit.attempts import MARKERS_KEPT, published_directories
from gobblin_assets.commit.segment import Segment, join_segments_of_done, list_published
from gobblin_assets.commit.sequence import PublishedInterval
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import Role

FILES_PER_SEGMENT_MAX: Final = 10_000

FILES_JOINED_MAX: Final = FILES_PER_SEGMENT_MAX // 2
"""A segment of so many files is left as it is by later folds: joining it with others would save little."""

ENTRIES_PER_FOLD_MAX: Final = 20_000
"""Ledger rows that one transaction reads and writes again."""

TIDY_S: Final = 86_400.0
"""A dataset that publishes seldom is looked at so often."""


@dataclass(frozen=True, slots=True)
class FoldBounds:
    """``keep``: so many of a dataset's newest publications stay as they are. ``count_min``: the others are folded when
    so many have come since the last look, or when that was ``TIDY_S`` ago. ``age_s``: younger ones stay. What is older
    than ``history_s`` is forgotten, but for the newest ``keep_marked``, which storage has markers of.
    """

    keep: int = 300
    count_min: int = 100
    age_s: float = 3600.0
    history_s: float = 90 * 86_400.0
    keep_marked: int = MARKERS_KEPT

    @property
    def keep_remembered(self) -> int:
        """So many of the newest publications are never forgotten."""
        return max(self.keep, self.keep_marked)


DEFAULT_FOLD: Final = FoldBounds()


@dataclass(frozen=True, slots=True)
class FoldMember:
    """A sequence that may be folded: where its files are, the version that it made, and how much the ledger has.

    ``moved``: from which root to which its destination moved since it was sealed, as text; None if it did not.
    """

    sequence_id: SequenceId
    partition: str
    root_uri: str
    version: int
    entry_count: int = 0
    moved: str | None = None

    @property
    def place(self) -> tuple[str, str, str | None]:
        """Only those of one place become one: their files are found in one way."""
        return self.partition, self.root_uri, self.moved


@dataclass(frozen=True, slots=True)
class Fold:
    """``survivor`` takes what the others have, and stays."""

    survivor: SequenceId
    others: tuple[SequenceId, ...]

    @property
    def all(self) -> tuple[SequenceId, ...]:
        return (self.survivor, *self.others)


@dataclass(frozen=True, slots=True)
class FoldSegment:
    """A sealed segment of a member; ``version`` is the newest that rows of its files were published with."""

    segment_id: uuid.UUID
    version: int
    segment: Segment


def bound_fold(members: Sequence[FoldMember]) -> Sequence[FoldMember]:
    """As many, in their order, as one transaction should take; at least one."""
    entries = 0
    for number, member in enumerate(members):
        entries += member.entry_count
        if number and entries > ENTRIES_PER_FOLD_MAX:
            return members[:number]
    return members


def plan_folds(members: Iterable[FoldMember], folds: Iterable[FoldMember]) -> list[Fold]:
    """Which sequences become one: those of one partition and destination. ``folds`` are what earlier folds left.

    A member that is alone becomes a fold of one, which sheds its attempts and plans.
    """
    of_place: dict[tuple[str, str, str | None], list[FoldMember]] = defaultdict(list)
    for member in members:
        of_place[member.place].append(member)
    for fold in folds:
        if fold.place in of_place:
            of_place[fold.place].append(fold)
    planned = []
    for found in of_place.values():
        *others, newest = sorted(found, key=lambda member: member.version)
        planned.append(Fold(newest.sequence_id, tuple(member.sequence_id for member in others)))
    return planned


def join_segments(survivor: SequenceId, parts: Iterable[FoldSegment]) -> list[tuple[uuid.UUID, Segment]]:
    """The same files in as few segments as possible, with ids that follow from what they hold.

    Files of different roles or schemas stay apart, so that the order of schemas stays what it was: that of ``version``.
    So do segments without files, whose version is that of no row.
    """
    of_kind: dict[tuple[Role, str, bool], list[FoldSegment]] = defaultdict(list)
    for part in parts:
        schema = json.dumps(part.segment.file_schema, sort_keys=True)
        of_kind[part.segment.role, schema, part.segment.file_count > 0].append(part)
    joined = []
    for (role, schema, _has_files), found in of_kind.items():
        for chunk in _in_chunks(sorted(found, key=lambda part: (part.version, part.segment_id))):
            segment = _join(chunk)
            # Those without files differ by role and schema alone.
            name = hashlib.sha256(survivor.bytes + segment.digest + f"{role} {schema}".encode()).digest()
            joined.append((uuid.UUID(bytes=name[:16]), segment))
    return joined


def join_intervals(published: Iterable[PublishedInterval]) -> list[PublishedInterval]:
    """The same positions of one key in as few intervals as possible; the lowest position that was read again stays."""
    joined: list[PublishedInterval] = []
    for each in sorted(published, key=lambda one: one.interval.low_bytes()):
        last = joined[-1] if joined else None
        if last is not None and last.interval.high_bytes() == each.interval.low_bytes():
            again = [found for found in (last.reread_from, each.reread_from) if found is not None]
            whole = Interval(last.interval.low, each.interval.high)
            joined[-1] = PublishedInterval(whole, min(again, key=lambda low: low.encode()) if again else None)
        else:
            joined.append(each)
    return joined


def list_named_sequences(segments: Iterable[tuple[bytes, bytes]]) -> set[SequenceId]:
    """The sequences whose names the published directories of these segments (payload, digest) bear."""
    paths = (path for payload, digest in segments for path, _identity, _rows in list_published(payload, digest))
    return set(published_directories(paths))


def shorten_details(details: Mapping[str, object]) -> dict[str, object]:
    """Of what a seal says about its sequence, that which is asked for later."""
    return {name: details[name] for name in ("root_uri", "moved", "uri", "columns") if name in details}


def _in_chunks(parts: Sequence[FoldSegment]) -> Iterator[list[FoldSegment]]:
    chunk: list[FoldSegment] = []
    files = 0
    for part in parts:
        if chunk and files + part.segment.file_count > FILES_PER_SEGMENT_MAX:
            yield chunk
            chunk, files = [], 0
        chunk.append(part)
        files += part.segment.file_count
    if chunk:
        yield chunk


def _join(parts: Sequence[FoldSegment]) -> Segment:
    version = max(part.version for part in parts)
    if not any(part.segment.step_count for part in parts):
        return replace(parts[0].segment, version=version)
    return replace(join_segments_of_done([part.segment for part in parts]), version=version)
