"""Folding: old publications of one dataset partition become one, so that the log stays small.

The promise. The log gives the same answers before and after a fold: which files a dataset has, which positions are
covered, which files may be removed, and whether the log knows a sequence. No file moves.

What a fold is. The newest of the folded sequences stays, as a *fold*: it gets the segments of all of them, with their
lists of files joined, and their intervals, with neighbours joined. The rows of the other sequences are removed, and so
are the planned moves, attempts and WorkUnits of all. Only the ids of the others stay (``past_sequence``), since storage
names them. A fold is one transaction, under the dataset's fence, while no sequence of the dataset is open: a kill
leaves all of the fold or nothing.

What is folded. Old sequences that are DONE and announced. Their attempts are clean, and they have nothing retired. They
are not among the newest, and are older than a bound. Each sink of events got them, unless it was away for long. Of
publications at given names, only the oldest ones without a gap (``folding``).

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
from gobblin_assets.commit.segment import Segment, encode_empty, join_segments_of_done, list_published
from gobblin_assets.commit.sequence import SLOTS_KEEP_DETAIL, KeyMove, PublishedInterval
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import Role
from gobblin_assets.model.watermark import Watermark

FILES_PER_SEGMENT_MAX: Final = 10_000

FILES_JOINED_MAX: Final = FILES_PER_SEGMENT_MAX // 2
"""Later folds leave a segment of this many files as it is: joining it with others would save little."""

ENTRIES_PER_FOLD_MAX: Final = 20_000
"""Ledger rows that one transaction reads and writes again."""

TIDY_S: Final = 86_400.0
"""How often a dataset that publishes seldom is checked, in seconds."""


@dataclass(frozen=True, slots=True)
class FoldBounds:
    """The bounds of folds. ``keep``: number of a dataset's newest publications that stay unfolded.

    ``count_min``: the others are folded when this many were published since the last look, or when that look was
    ``TIDY_S`` ago. ``age_s``: younger publications stay. Publications older than ``history_s`` are forgotten, except
    the newest ``keep_marked``, which have markers.
    """

    keep: int = 300
    count_min: int = 100
    age_s: float = 3600.0
    history_s: float = 90 * 86_400.0
    keep_marked: int = MARKERS_KEPT

    @property
    def keep_remembered(self) -> int:
        """The number of newest publications that are never forgotten."""
        return max(self.keep, self.keep_marked)


DEFAULT_FOLD: Final = FoldBounds()


@dataclass(frozen=True, slots=True)
class FoldMember:
    """A sequence that may be folded: where its files are, the version that it made, and its number of ledger rows.

    ``moved``: the old and the new root of its destination, as text, if the destination moved after the seal; else None.
    """

    sequence_id: SequenceId
    partition: str
    root_uri: str
    version: int
    entry_count: int = 0
    moved: str | None = None

    @property
    def place(self) -> tuple[str, str, str | None]:
        """Members are joined only if they have the same place, because then their files are found in the same way."""
        return self.partition, self.root_uri, self.moved


@dataclass(frozen=True, slots=True)
class Fold:
    """A fold as it is planned: ``survivor`` takes the segments and intervals of the others, and stays."""

    survivor: SequenceId
    others: tuple[SequenceId, ...]

    @property
    def all(self) -> tuple[SequenceId, ...]:
        return (self.survivor, *self.others)


@dataclass(frozen=True, slots=True)
class FoldSegment:
    """A sealed segment of a member; ``version`` is the newest version with which rows of its files were published."""

    segment_id: uuid.UUID
    version: int
    segment: Segment


def bound_fold(members: Sequence[FoldMember]) -> Sequence[FoldMember]:
    """The first members, as many as one transaction should take; at least one."""
    entries = 0
    for number, member in enumerate(members):
        entries += member.entry_count
        if number and entries > ENTRIES_PER_FOLD_MAX:
            return members[:number]
    return members


def plan_folds(members: Iterable[FoldMember], folds: Iterable[FoldMember]) -> list[Fold]:
    """Group the sequences of one partition and destination. ``folds``: the survivors of earlier folds.

    A single member becomes a fold of one, and loses its attempts and plans.
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
    """The same files in as few segments as possible, with ids that follow from their content.

    Files of different roles or schemas stay apart, so that schemas keep their order, which is that of ``version``.
    Segments without files stay apart too, because their version is not the version of any row.
    """
    of_kind: dict[tuple[Role, str, bool, bool], list[FoldSegment]] = defaultdict(list)
    for part in parts:
        schema = json.dumps(part.segment.file_schema, sort_keys=True)
        of_kind[part.segment.role, schema, part.segment.file_count > 0, part.segment.row_count > 0].append(part)
    joined = []
    for (role, schema, _has_files, _has_rows), found in of_kind.items():
        for chunk in _in_chunks(sorted(found, key=lambda part: (part.version, part.segment_id))):
            segment = _join(chunk)
            # Those without files differ by role, schema and rows alone.
            what = f"{role} {schema}{' elsewhere' if segment.row_count and not segment.file_count else ''}"
            name = hashlib.sha256(survivor.bytes + segment.digest + what.encode()).digest()
            joined.append((uuid.UUID(bytes=name[:16]), segment))
    return joined


def join_intervals(published: Iterable[PublishedInterval]) -> list[PublishedInterval]:
    """The same positions of one key in as few intervals as possible; each keeps the lowest position read again."""
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


def make_no_op_move(
    key: str,
    partition: str,
    watermark: Watermark | None,
    intervals: Iterable[PublishedInterval],
    *,
    is_generation: bool,
) -> KeyMove:
    """The move of one key that leaves ledger and watermark as they are, to publish the same rows once more.

    RejectedError for a key that a snapshot and intervals share.
    """
    joined = tuple(join_intervals(intervals))
    if joined and is_generation:
        raise RejectedError(
            f"the key {key!r} was published by a snapshot and by intervals",
            field="partition",
            hint="Materialize it with --mode refresh.",
        )
    return KeyMove(key, partition, old=watermark, new=None, intervals=joined)


def list_named_sequences(segments: Iterable[tuple[bytes, bytes]]) -> set[SequenceId]:
    """The sequences that the published directories of these segments (payload, digest) are named after."""
    paths = (path for payload, digest in segments for path, _identity, _rows in list_published(payload, digest))
    return set(published_directories(paths))


def shorten_details(details: Mapping[str, object]) -> dict[str, object]:
    """The details of a seal that are still needed later. At given names, a fold's figures are those of its newest."""
    names: tuple[str, ...] = ("root_uri", "moved", "uri", "columns", "epoch")
    if SLOTS_KEEP_DETAIL in details:
        names = (*names, SLOTS_KEEP_DETAIL, "figures", "has_rows")
    return {name: details[name] for name in names if name in details}


def _count_rows_elsewhere(segments: Sequence[Segment]) -> Segment:
    """Rows that are in no file: nobody asks the steps that loaded them any more, so only their number is kept."""
    first = segments[0]
    empty = encode_empty(role=first.role, partition=first.partition, file_schema=first.file_schema)
    return replace(empty, row_count=sum(segment.row_count for segment in segments))


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
    if all(part.segment.row_count and not part.segment.file_count for part in parts):
        return replace(_count_rows_elsewhere([part.segment for part in parts]), version=version)
    if not any(part.segment.step_count for part in parts):
        return replace(parts[0].segment, version=version)
    return replace(join_segments_of_done([part.segment for part in parts]), version=version)
