"""Rows of a lane gather in open files that nobody sees, until a cut at a barrier closes all of them at once.

A cut covers whole epochs only. So a cut is taken at a checkpoint barrier if no vnode of the lane has rows after the
vnode's own last checkpoint barrier. Then each row of the files lies between the start and the end of its vnode.
"""

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from gobblin_assets.errors import CorruptionError
from gobblin_assets.jobs.sink.lane_files import CutFile, PlacedRows
from gobblin_assets.jobs.sink.sink_rules import RollPolicy
from gobblin_assets.model.urn import Role
from gobblin_assets.sources.log_port import Barrier

_FROM_POSITIONS: Final[Mapping[str, int]] = {}

PlaceRows = Callable[[Role, pa.RecordBatch], Iterable[PlacedRows]]
"""Divides rows into directories, and may give some of them another role."""


@dataclass(frozen=True, slots=True)
class VnodeSpan:
    """Positions of two barriers of a vnode: what lies from ``start`` up to ``end``, where the next span starts.

    ``history``: that of ``end``, as of a ``Watermark``.
    """

    start: int
    end: int
    history: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """Whole epochs of a lane, and exactly their rows.

    ``spans``: of each vnode whose position moved. ``files``: empty if only positions moved, and for records that were
    only counted: then ``row_counts`` are those of records. ``opened_at``: the time of the barrier behind which the cut
    begins, or of its own first barrier if no earlier one was seen. ``epoch`` and ``at``: of the last checkpoint
    barrier, at which it ends.
    """

    spans: Mapping[str, VnodeSpan]
    files: tuple[CutFile, ...]
    row_counts: Mapping[Role, int]
    epoch: int
    opened_at: dt.datetime
    at: dt.datetime


class Gathering(Protocol):
    """The rows that a lane has gathered since its last cut. ``row_counts`` and ``size_bytes`` are of all of it."""

    @property
    def row_counts(self) -> Counter[Role]: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def held_bytes(self) -> int:
        """Bytes of rows that are in memory, and not yet encoded."""
        ...

    def require_columns(self, role: Role, found: pa.Schema) -> None:
        """RejectedError names the first column that is not the role's."""
        ...

    def change_columns(self, columns: pa.Schema) -> None:
        """Rows of the data that come now have these columns."""
        ...

    def add(self, placed: PlacedRows) -> None: ...

    def encode_held(self) -> None:
        """Encode some of what is held."""
        ...

    def close(self) -> tuple[CutFile, ...]:
        """Close all files, and begin anew."""
        ...

    def discard(self) -> None:
        """Begin anew, and leave files to whoever cleans up."""
        ...


@dataclass(slots=True)
class _Vnode:
    """A vnode of the lane.

    ``start``: where its first uncut epoch begins. ``end`` and ``seen``: its last checkpoint and last barrier.
    ``history``: that of ``end``.
    """

    start: int
    end: int
    seen: int
    epoch: int | None = None
    rows_in_epoch: int = 0
    rows_past_end: int = 0
    history: Mapping[str, object] | None = None


class LaneWriter:
    """A writer of one thread. After an error, only ``discard`` is left: the rows are read again.

    ``place_rows`` None: all rows belong into the dataset's own directory.
    """

    def __init__(
        self,
        gathering: Gathering,
        policy: RollPolicy,
        *,
        place_rows: PlaceRows | None = None,
    ) -> None:
        self._policy = policy
        self._files = gathering
        self._place_rows = place_rows or _in_one_directory
        self._vnodes: dict[str, _Vnode] = {}
        self._is_broken = False
        # Where rows, and positions, began to wait: the time of a barrier, or None before the first one.
        self._has_rows = self._has_moved = self._is_full = False
        self._rows_since: dt.datetime | None = None
        self._moved_since: dt.datetime | None = None
        self._last_at: dt.datetime | None = None
        self._checkpoint: Barrier | None = None

    @property
    def held_bytes(self) -> int:
        """Bytes of rows that are in memory, and not yet encoded."""
        return self._files.held_bytes

    @property
    def has_rows(self) -> bool:
        """Whether rows wait for a cut."""
        return self._has_rows

    @property
    def can_commit(self) -> bool:
        """Whether no row is newer than the last checkpoint barrier of its vnode."""
        return not any(each.rows_past_end for each in self._vnodes.values())

    def assign(self, positions: Mapping[str, int], *, starts: Mapping[str, int] = _FROM_POSITIONS) -> None:
        """Take rows of exactly these vnodes from now on, each from its position.

        ``starts``: where the next cut of a vnode starts, if that is before its position and no row lies between.
        CorruptionError if rows of earlier vnodes are neither cut nor discarded.
        """
        if self._has_rows:
            raise CorruptionError(
                f"vnodes of a lane change, and rows of {sorted(self._vnodes)} are neither cut nor discarded"
            )
        self._vnodes = {
            vnode: _Vnode(starts.get(vnode, position), starts.get(vnode, position), position)
            for vnode, position in positions.items()
        }
        self._last_at = self._checkpoint = None
        self._begin_anew()

    def write_batch(self, vnode: str, rows: pa.RecordBatch, role: Role = Role.DATA) -> None:
        """Rows of the vnode's current epoch, which its next barrier ends.

        RejectedError names a column that is not the lane's. CorruptionError: the lane has no such vnode.
        """
        state = self._find(vnode)
        self._files.require_columns(role, rows.schema)
        if not rows.num_rows:
            return
        if not self._has_rows:
            self._has_rows, self._rows_since = True, self._last_at
        state.rows_in_epoch += rows.num_rows
        state.rows_past_end += rows.num_rows
        with self._whole():
            for placed in self._place_rows(role, rows):
                self._files.add(placed)

    def change_columns(self, columns: pa.Schema) -> None:
        """Rows of the data have these columns from now on, which hold all values of those before."""
        with self._whole():
            self._files.change_columns(columns)

    def encode_held(self) -> None:
        """Encode some of what is held in memory: a worker bounds what its lanes hold together."""
        with self._whole():
            self._files.encode_held()

    def try_commit(self) -> None:
        """Call it after a chunk: if a bound of the policy is reached, the next checkpoint barrier is a cut."""
        rows = sum(self._files.row_counts.values())
        self._is_full |= self._policy.is_full(row_count=rows, size_bytes=self._files.size_bytes)

    def barrier(self, barrier: Barrier) -> Cut | None:
        """End the epoch of the barrier's vnodes; a cut if one is due, and may be taken here.

        CorruptionError, which names the vnode, for a barrier that goes back.
        """
        for vnode, position in barrier.positions.items():
            _require_ahead(vnode, self._find(vnode), position, barrier.epoch)
        for vnode, position in barrier.positions.items():
            state = self._vnodes[vnode]
            if position > state.start and not self._has_moved:
                self._has_moved, self._moved_since = True, self._last_at
            state.seen, state.epoch, state.rows_in_epoch = position, barrier.epoch, 0
            if barrier.is_checkpoint:
                state.end, state.rows_past_end = position, 0
                state.history = barrier.histories.get(vnode)
        self._rows_since = self._rows_since or (barrier.at if self._has_rows else None)
        self._moved_since = self._moved_since or (barrier.at if self._has_moved else None)
        self._last_at = barrier.at
        if not barrier.is_checkpoint:
            return None
        self._checkpoint = barrier
        return self.commit() if self.can_commit and self._is_due(barrier.at) else None

    def commit(self) -> Cut | None:
        """A cut at the last checkpoint barrier, due or not: before vnodes change, and at the end.

        None: no position moved. CorruptionError names vnodes whose rows are newer than that barrier: the log owes a
        barrier. Discard them, and read again.
        """
        if not self.can_commit:
            newer = sorted(vnode for vnode, each in self._vnodes.items() if each.rows_past_end)
            raise CorruptionError(f"a cut inside of an epoch: rows of {newer} are newer than the last checkpoint")
        moved = {vnode: each for vnode, each in self._vnodes.items() if each.end > each.start}
        if self._checkpoint is None or not moved:
            return None
        last = self._checkpoint
        row_counts = dict(self._files.row_counts)
        with self._whole():
            files = self._files.close()
        cut = Cut(
            spans={vnode: VnodeSpan(each.start, each.end, each.history) for vnode, each in moved.items()},
            files=files,
            row_counts=row_counts,
            epoch=last.epoch,
            opened_at=self._moved_since or last.at,
            at=last.at,
        )
        for each in moved.values():
            each.start = each.end
        self._begin_anew()
        return cut

    def discard(self) -> None:
        """Give up what is not cut, and all vnodes. Files stay, for whoever cleans up after their attempt."""
        self._files.discard()
        self._vnodes = {}
        self._is_broken = False
        self._begin_anew()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """What fails half-way leaves files without some of their rows, which no cut may ever have."""
        if self._is_broken:
            raise CorruptionError("the lane failed before, and what it gathered is not discarded")
        self._is_broken = True
        yield
        self._is_broken = False

    def _is_due(self, at: dt.datetime) -> bool:
        if self._has_rows and self._rows_since is not None:
            return self._is_full or self._policy.is_old(opened_at=self._rows_since, at=at, has_rows=True)
        if self._has_moved and self._moved_since is not None:
            opened_at, span = self._moved_since, max(each.end - each.start for each in self._vnodes.values())
            is_old = self._policy.is_old(opened_at=opened_at, at=at, has_rows=False)
            return is_old or self._policy.is_far(opened_at=opened_at, at=at, span=span)
        return False

    def _begin_anew(self) -> None:
        self._has_rows = self._has_moved = self._is_full = False
        self._rows_since = self._moved_since = None

    def _find(self, vnode: str) -> _Vnode:
        state = self._vnodes.get(vnode)
        if state is None:
            raise CorruptionError(f"the log gave an item of vnode {vnode!r}, which the lane does not have", vnode=vnode)
        return state


def _require_ahead(vnode: str, state: _Vnode, position: int, epoch: int) -> None:
    if position < state.seen:
        said = f"a barrier of vnode {vnode!r} goes back from position {state.seen} to {position}"
    elif state.epoch is not None and epoch <= state.epoch:
        said = f"a barrier of vnode {vnode!r} goes back from epoch {state.epoch} to {epoch}"
    elif position == state.seen and state.rows_in_epoch:
        said = f"vnode {vnode!r} had {state.rows_in_epoch} rows in an epoch that ends where it began, at {position}"
    else:
        return
    raise CorruptionError(said, vnode=vnode, position=position, epoch=epoch)


def _in_one_directory(role: Role, rows: pa.RecordBatch) -> Iterable[PlacedRows]:
    return (PlacedRows(role, "", rows),)
