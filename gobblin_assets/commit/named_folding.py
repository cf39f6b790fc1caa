"""Folding of publications at given names: what is current of them is kept, sorted by path, and nothing else. Pure.

The order of publications decides which file a name has. So the folded ones are the oldest of a dataset, in all of its
partitions, without a gap: whatever is newer than one of them is newer than all.

A fold makes a *run*: segments of one version, the newest folded one, which name each path once. A path stays with the
partition that published it last. A fold joins the newest runs as long as they are not much larger than what comes to
them, so that a change is written again only as often as the dataset doubles. A removal is kept as long as an older run
may have the name.
"""

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.commit.folding import FoldMember
from gobblin_assets.commit.name_changes import ROWS_AT_ONCE, changes_table, encode_fold, sort_changes
from gobblin_assets.commit.segment import STEPS_PER_SEGMENT_MAX, Segment
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import Role

STEPS_PER_FOLD_MAX: Final = 50_000
"""Of the publications that one transaction folds; a larger one is folded by itself."""

_OWNER: Final = "owner"
_GROWTH: Final = 2


@dataclass(frozen=True, slots=True)
class NamedMember:
    """A finished sequence. ``is_due``: it may be folded, if all before it may."""

    member: FoldMember
    step_count: int
    is_due: bool


@dataclass(frozen=True, slots=True)
class NamedPart:
    """A sealed segment. ``owner``: the sequence that has its names after the fold, in ``partition``."""

    sequence_id: SequenceId
    owner: SequenceId
    partition: str
    payload: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A run of an earlier fold, as far as it is known without a look at it."""

    version: int
    step_count: int


def bound_named_fold(oldest_first: Iterable[NamedMember]) -> list[NamedMember]:
    """The first members up to one that is not due, as many as one transaction should take."""
    taken: list[NamedMember] = []
    steps = 0
    for each in oldest_first:
        steps += each.step_count
        if not each.is_due or (taken and steps > STEPS_PER_FOLD_MAX):
            break
        taken.append(each)
    return taken


def choose_runs(step_count: int, runs: Iterable[NamedRun]) -> list[NamedRun]:
    """Those that are written again together with ``step_count`` changes that are newer than all ``runs``."""
    chosen: list[NamedRun] = []
    for run in sorted(runs, key=lambda each: each.version, reverse=True):
        if run.step_count > _GROWTH * step_count:
            break
        chosen.append(run)
        step_count += run.step_count
    return chosen


def fold_names(
    newest_first: Iterable[NamedPart], *, version: int, keeps_removed: bool, rows_at_once: int = ROWS_AT_ONCE
) -> Iterator[tuple[uuid.UUID, SequenceId, Segment]]:
    """The run of these segments: each segment with its id, which follows from its content, and its owner."""
    partitions: dict[str, str] = {}

    def read() -> Iterator[pa.Table]:
        for part in newest_first:
            partitions[str(part.owner)] = part.partition
            yield _read(part)

    holding = _Holding(rows_at_once)
    for table in sort_changes(read(), rows_at_once=rows_at_once):
        kept = table if keeps_removed else table.filter(pc.is_valid(table.column("size_bytes")))
        for owner, changes in holding.add(kept):
            yield _encode(owner, changes, partitions, version)
    for owner, changes in holding.take_all():
        yield _encode(owner, changes, partitions, version)


def _read(part: NamedPart) -> pa.Table:
    changes = changes_table(part.payload, part.digest)
    publishers = pc.fill_null(changes.column("publisher"), str(part.sequence_id))
    named = changes.set_column(changes.column_names.index("publisher"), "publisher", publishers)
    return named.append_column(_OWNER, pa.repeat(pa.scalar(str(part.owner)), len(named)))


def _encode(
    owner: str, changes: pa.Table, partitions: dict[str, str], version: int
) -> tuple[uuid.UUID, SequenceId, Segment]:
    segment = encode_fold(changes, role=Role.DATA, partition=partitions[owner], version=version)
    name = hashlib.sha256(f"{owner} {version} ".encode() + segment.digest).digest()
    return uuid.UUID(bytes=name[:16]), SequenceId(uuid.UUID(owner)), segment


@dataclass(slots=True)
class _Holding:
    """Sorted rows of each owner, until they fill a segment, or all together are too many."""

    rows_max: int
    held: dict[str, list[pa.Table]] = field(default_factory=dict)

    def add(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        owners: Sequence[str] = pc.unique(table.column(_OWNER)).to_pylist()
        for owner in owners:
            mine = table if len(owners) == 1 else table.filter(pc.equal(table.column(_OWNER), owner))
            tables = self.held.setdefault(owner, [])
            tables.append(mine)
            while sum(map(len, tables)) >= STEPS_PER_SEGMENT_MAX:
                whole = pa.concat_tables(tables)
                yield owner, whole.slice(0, STEPS_PER_SEGMENT_MAX)
                tables[:] = [whole.slice(STEPS_PER_SEGMENT_MAX)]
        if sum(len(each) for tables in self.held.values() for each in tables) >= self.rows_max:
            yield from self.take_all()

    def take_all(self) -> Iterator[tuple[str, pa.Table]]:
        held, self.held = self.held, {}
        for owner, tables in held.items():
            whole = pa.concat_tables(tables)
            if len(whole):
                yield owner, whole
