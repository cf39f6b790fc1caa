"""The changes of a replication slot as a log of epochs: ``LogReader`` over the tables of a publication.

A vnode is a table with the number of its copy. A position is a place in the server's log (LSN) between transactions:
the changes of all that committed before it belong to earlier epochs. A barrier comes at the end of a transaction, or
where the server has said, between two of them, how far it has sent: never inside of one. All tables are at the same
place at a barrier, but for those that were cut further on before.

A vnode at position 0 is copied first: its rows are one epoch, which ends where the log is followed from. A big table is
copied in ranges: each is an epoch, and before the last one the position only counts them.

The slot is confirmed up to what is published of all tables that were ever begun, and no further.
"""

import datetime as dt
import json
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from gobblin_assets.errors import CorruptionError, GobblinError, RetryableError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.clock import Clock, SystemClock
from gobblin_assets.model.defects import find_family
from gobblin_assets.rows.joined_columns import write_joined
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.postgres import postgres_families
from gobblin_assets.sources.log_port import NEVER_CUT, Barrier, LogItem, StreamChunk, UpdateVnodeBitmap, VnodeFailure
from gobblin_assets.sources.postgres_log.change_gathering import ChangeGathering
from gobblin_assets.sources.postgres_log.column_memory import ColumnMemory
from gobblin_assets.sources.postgres_log.copy_ranges import PartialCopy, SeenRanges
from gobblin_assets.sources.postgres_log.log_starts import (
    PLACE_MIN,
    TO_COPY,
    TableStart,
    copy_of,
    write_facts,
    write_partial_facts,
)
from gobblin_assets.sources.postgres_log.logged_table import table_to_json
from gobblin_assets.sources.postgres_log.pgoutput import write_lsn
from gobblin_assets.sources.postgres_log.server_state import find_kept_end, find_slot, open_log_session
from gobblin_assets.sources.postgres_log.table_copy import CopiedFrom, TableCopy
from gobblin_assets.sources.postgres_log.table_terms import write_terms
from gobblin_assets.sources.postgres_log.walsender import Walsender, end_other_reader, require_slot

CONFIRM_EVERY_S: Final = 10.0
"""So often the server hears that the reader lives, and what it needs no more."""

POLL_S: Final = 0.1
_REPORT_EVERY_S: Final = 10.0
_PATIENCE_S: Final = 2.0
_PATIENCE_S_MAX: Final = 600.0
_MICROS: Final = dt.timedelta(microseconds=1)
_EPOCH_START: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(slots=True)
class _TableVnode:
    """One table that is followed, or copied first.

    ``cut``: the place of the last barrier. ``seen``: what its copy has, ``partial``: what there is of it.
    """

    start: TableStart
    cut: int
    seen: SeenRanges | None
    partial: PartialCopy | None

    @property
    def is_to_copy(self) -> bool:
        return self.cut < PLACE_MIN


class SlotReader:
    """``LogReader`` over one slot. ``starts``: of all of its tables that were found.

    ``every_s``: barriers come no more often. ``say`` gets what a copy waits for. The caller holds the lanes of all
    tables.
    """

    def __init__(
        self,
        connection: JdbcConnection,
        starts: Sequence[TableStart],
        *,
        job: str,
        every_s: float,
        say: Callable[[str], None],
        clock: Clock | None = None,
    ) -> None:
        self._connection = connection
        self._starts = {start.vnode: start for start in starts}
        self._place = starts[0].place
        self._job = job
        self._every_s = every_s
        self._say = say
        self._clock = clock or SystemClock()
        self._monotonic = self._clock.monotonic
        self._vnodes: dict[str, _TableVnode] = {}
        self._memories = {
            start.vnode: ColumnMemory(start.columns, start.decided.terms, {each.name: each for each in start.joined})
            for start in starts
        }
        self._items: deque[UpdateVnodeBitmap | VnodeFailure] = deque()
        self._walsender: Walsender | None = None
        self._gathering: ChangeGathering | None = None
        self._copy: tuple[str, TableCopy] | None = None
        self._copy_is_begun = False
        self._place_now = 0
        self._released = 0
        self._last_epoch = 0
        self._due_at = float("inf")
        self._confirm_at = 0.0
        self._chunks = 0
        self._is_moved = False
        self._patience_s = _PATIENCE_S
        self._report_at = 0.0

    def assign(self, positions: Mapping[str, int], *, epochs: Mapping[str, int] = NEVER_CUT) -> None:
        before, self._vnodes = self._vnodes, {}
        failures: list[VnodeFailure] = []
        for vnode, position in positions.items():
            known = before.get(vnode)
            if known is not None and known.cut == position:
                self._vnodes[vnode] = known
                continue
            start = self._starts.get(vnode)
            if start is None:
                raise CorruptionError(f"the reader of a slot was not given {vnode!r}", vnode=vnode)
            if start.decided.partial is not None and start.position != position:
                late = RetryableError(f"{start.urn}: its copy is further than when its start was looked for")
                failures.append(VnodeFailure(vnode, late))
                continue
            self._vnodes[vnode] = _TableVnode(start, position, start.decided.seen, start.decided.partial)
            # The stream has passed the vnode's place, or will pass it with rows of others behind it.
            self._is_moved = True
        if self._copy is not None and self._copy[0] not in self._vnodes:
            self._end_copy()
        if self._gathering is not None:
            self._gathering.keep(self._vnodes.keys())
        self._last_epoch = max(self._last_epoch, *epochs.values(), 0)
        self._items = deque([UpdateVnodeBitmap(frozenset(self._vnodes)), *failures])
        if self._due_at == float("inf"):
            self._due_at = self._monotonic() + self._every_s

    def read(self, *, wait_s: float) -> Iterator[LogItem]:
        deadline = self._monotonic() + wait_s
        while self._items:
            yield self._items.popleft()
        while self._list_to_copy() and self._is_quiet:
            waits = yield from self._step_copy()
            if waits and self._list_followed():
                # Others go on meanwhile; at their next barrier it is looked at again.
                break
            if self._monotonic() >= deadline:
                return
        if self._list_followed():
            yield from self._follow(deadline)
        elif self._vnodes:
            self._require_quiet()

    def _list_to_copy(self) -> list[str]:
        return [vnode for vnode, each in self._vnodes.items() if each.is_to_copy]

    def _list_followed(self) -> dict[str, _TableVnode]:
        return {vnode: each for vnode, each in self._vnodes.items() if not each.is_to_copy}

    @property
    def _is_quiet(self) -> bool:
        """Whether no record was given behind the last barrier, so that the stream may end and begin anew."""
        return self._gathering is None or not self._gathering.has_given

    def _fail(self, vnode: str, error: Exception) -> VnodeFailure:
        """Give one vnode up."""
        start = self._vnodes.pop(vnode).start
        if self._copy is not None and self._copy[0] == vnode:
            self._end_copy()
        if self._gathering is not None:
            self._gathering.keep(self._vnodes.keys())
        return VnodeFailure(vnode, find_family(start.urn, error))

    def rewind(self, vnode: str, position: int) -> None:
        self._vnodes[vnode].cut = position
        self._is_moved = True

    def truncate(self, published: Mapping[str, int]) -> None:
        """The server hears it at the next look at the stream."""
        newest: dict[str, tuple[int, int]] = {}
        for vnode, position in published.items():
            table = vnode.rpartition(":")[0]
            newest[table] = max(newest.get(table, (0, 0)), (copy_of(vnode), position))
        released = min((position for _copy, position in newest.values()), default=0)
        if released > max(self._released, PLACE_MIN):
            self._released, self._confirm_at = released, 0.0

    def measure_lag(self) -> Mapping[str, int]:
        """In bytes of the server's log, by its last word."""
        if self._walsender is None:
            return {}
        end = self._walsender.sent_to
        return {vnode: max(0, end - each.cut) for vnode, each in self._vnodes.items() if not each.is_to_copy}

    def close(self) -> None:
        self._end_copy()
        self._end_stream()

    # Copies ----------------------------------------------------------------------------------------------

    def _step_copy(self) -> Generator[LogItem, None, bool]:
        """Whether the copy has not begun, and waits. What fails is the table's, unless there is no slot."""
        vnode = self._list_to_copy()[0] if self._copy is None else self._copy[0]
        each = self._vnodes[vnode]
        if self._copy is None:
            if not self._make_ready():
                return True
            self._copy = vnode, TableCopy(self._connection, each.start, each.partial)
            self._copy_is_begun = False
        try:
            return (yield from self._go_on_copying(vnode, each, self._copy[1]))
        except Exception as error:  # noqa: BLE001  the failure of this table; others go on
            yield self._fail(vnode, error)
            return False

    def _go_on_copying(self, vnode: str, each: _TableVnode, copy: TableCopy) -> Generator[LogItem, None, bool]:
        start = each.start
        found = copy.step() if start.is_copied_first else None
        if isinstance(found, str):
            self._report(f"{start.urn}: the copy {found}")
            return not self._copy_is_begun
        # The stream would end meanwhile, since nobody reads it; what it has given is read again.
        self._end_stream()
        if start.is_copied_first and not self._copy_is_begun:
            self._copy_is_begun = True
            is_anew = copy.source.is_first and each.cut > TO_COPY
            if is_anew:
                self._say(f"{start.urn}: the copy begins anew: since its last range the table was changed as a whole")
            if is_anew or (start.decided.copy > 1 and copy.source.is_first):
                yield self._chunk(vnode, _begin_copy(copy.source, start.decided.copy))
                if self._copy is None:
                    # Whoever was given it did without the vnode.
                    return False
        if found is None:
            yield self._end_epoch_of_copy(vnode, start)
        else:
            yield self._chunk(vnode, _with_source(found, copy.source, start.decided.copy, begins=False))
        return False

    def _chunk(self, vnode: str, records: pa.RecordBatch) -> StreamChunk:
        self._chunks += 1
        return StreamChunk(vnode, records, self._chunks)

    def _end_epoch_of_copy(self, vnode: str, start: TableStart) -> Barrier:
        if self._copy is None:
            raise AssertionError("no copy is at work")
        source = self._copy[1].source if start.is_copied_first else None
        reach(Failpoint.COPY_READ)
        self._end_copy()
        each = self._vnodes[vnode]
        if source is not None:
            names = [column.name for column in source.table.columns]
            self._memories[vnode].begin_anew(names, source.partial.terms)
        self._is_moved = True
        if source is not None and not source.partial.ranges.is_whole:
            each.cut, each.partial = each.cut + 1, source.partial
            return self._barrier({vnode: each.cut}, {vnode: write_partial_facts(start, each.cut, source.partial)})
        each.cut = self._find_end() if source is None else source.partial.place
        each.seen = None if source is None else source.partial.ranges
        terms = start.decided.terms if source is None else source.partial.terms
        log = write_facts(start.place, start.decided.copy, key=start.decided.key, seen=each.seen)
        facts = {**log, **write_joined(()), **write_terms(terms)}
        return self._barrier({vnode: each.cut}, {vnode: facts})

    def _find_end(self) -> int:
        """The end of the server's log now, where a table without a copy begins. All before it is kept."""
        with open_log_session(self._connection) as session, postgres_families(self._connection):
            return find_kept_end(session)

    def _end_copy(self) -> None:
        if self._copy is not None:
            self._copy[1].close()
        self._copy = None

    def _make_ready(self) -> bool:
        """Make the slot if it is not there; whether it is. All tables that are read then must be ones to copy."""
        slot = self._place.slot
        followed = [vnode for vnode, each in self._vnodes.items() if each.cut != TO_COPY]
        with open_log_session(self._connection) as session, postgres_families(self._connection):
            is_made = require_slot(session, slot, followed, job=self._job, patience_s=self._patience_s)
        if is_made is None:
            return True
        if not is_made:
            self._patience_s = min(2 * self._patience_s, _PATIENCE_S_MAX)
            self._report(f"the slot {slot} waits for transactions that were running when it was to be made")
        else:
            reach(Failpoint.SLOT_MADE)
        return is_made

    def _report(self, text: str) -> None:
        now = self._monotonic()
        if now >= self._report_at:
            self._report_at = now + _REPORT_EVERY_S
            self._say(text)

    # The stream ------------------------------------------------------------------------------------------

    def _follow(self, deadline: float) -> Iterator[LogItem]:
        is_first = True
        while True:
            stream = self._open_stream()
            gathering = self._gathering
            if gathering is None:
                raise AssertionError("the stream is not open")
            end = gathering.gather(stream, until_commit=self._monotonic() >= self._due_at)
            if end is not None:
                self._place_now = max(self._place_now, end)
            elif not gathering.is_in_transaction and not gathering.is_busy:
                # Between transactions, and no message is left: all that the server has sent is here.
                self._place_now = max(self._place_now, stream.sent_to)
            yield from self._give(gathering)
            for vnode, error in gathering.take_failures():
                if vnode in self._vnodes:
                    yield self._fail(vnode, error)
            if stream is not self._walsender:
                return
            self._confirm(stream)
            now = self._monotonic()
            if not gathering.is_in_transaction and now >= self._due_at:
                yield self._end_epoch()
                return
            if now >= deadline and not is_first:
                return
            is_first = False
            if end is None and not gathering.is_busy:
                due_s = self._due_at - now if self._due_at > now else POLL_S
                stream.wait(max(0.0, min(POLL_S, deadline - now, due_s)))

    def _give(self, gathering: ChangeGathering) -> Iterator[StreamChunk]:
        for vnode, chunk in gathering.take():
            if vnode in self._vnodes:
                yield self._chunk(vnode, chunk)

    def _end_epoch(self) -> Barrier:
        if self._gathering is not None:
            self._gathering.has_given = False
        followed = self._list_followed()
        for each in followed.values():
            each.cut = max(each.cut, self._place_now)
        facts = {vnode: news for vnode in followed if (news := self._memories[vnode].list_news())}
        return self._barrier({vnode: each.cut for vnode, each in followed.items()}, facts)

    def _barrier(self, positions: Mapping[str, int], facts: Mapping[str, Mapping[str, object]]) -> Barrier:
        self._due_at = self._monotonic() + self._every_s
        at = self._clock.now()
        self._last_epoch = max((at - _EPOCH_START) // _MICROS, self._last_epoch + 1)
        return Barrier(self._last_epoch, positions, is_checkpoint=True, at=at, facts=facts)

    def _open_stream(self) -> Walsender:
        if self._is_moved:
            self._require_quiet()
            self._end_stream()
            self._is_moved = False
        if self._walsender is None:
            followed = self._list_followed()
            start = min(each.cut for each in followed.values())
            self._walsender = self._start_walsender(start)
            self._place_now = start
            self._confirm_at = 0.0
            self._gathering = ChangeGathering(
                self._connection,
                {vnode: (each.start, each.cut, each.seen, self._memories[vnode]) for vnode, each in followed.items()},
                self._say,
            )
            for vnode in followed:
                # What the last stream reported may have been given up since.
                self._memories[vnode].is_reported = False
        return self._walsender

    def _start_walsender(self, start: int) -> Walsender:
        """RetryableError if the slot can't give all from ``start`` on: whoever looks for the next start says why.

        The server begins where the slot is confirmed, if that lies behind, and says nothing of it. So it is asked once
        nobody else can read the slot or make it anew, because it is this reader's.
        """
        slot = self._place.slot
        with open_log_session(self._connection) as session, postgres_families(self._connection):
            if find_slot(session, slot) is None:
                raise RetryableError(f"the slot {slot} is gone")
            end_other_reader(session, slot, self._job)
            walsender = Walsender(
                self._connection, slot=slot, publication=self._place.publication, start=start, job=self._job
            )
            try:
                found = find_slot(session, slot)
                if found is None or found.confirmed is None or found.confirmed > start:
                    raise RetryableError(f"the slot {slot} gives no changes from {write_lsn(start)} on")
            except BaseException:
                walsender.close()
                raise
        return walsender

    def _require_quiet(self) -> None:
        """Records that were given behind the last barrier would be given again by a new stream."""
        if not self._is_quiet:
            raise RetryableError("tables join a slot's stream inside of an epoch; it is read again")

    def _confirm(self, stream: Walsender) -> None:
        now = self._monotonic()
        if now >= self._confirm_at:
            self._confirm_at = now + CONFIRM_EVERY_S
            stream.confirm(self._released)
            reach(Failpoint.SLOT_CONFIRMED)

    def _end_stream(self) -> None:
        if self._walsender is not None:
            with suppress(GobblinError):
                self._walsender.confirm(self._released)
            self._walsender.close()
        self._walsender = self._gathering = None


def _begin_copy(source: CopiedFrom, copy: int) -> pa.RecordBatch:
    """A record that begins a copy behind another one, or behind a part of one: the rows before it do not count."""
    return _with_source(pa.RecordBatch.from_pylist([], schema=source.schema), source, copy, begins=True)


def _with_source(rows: pa.RecordBatch, source: CopiedFrom, copy: int, *, begins: bool) -> pa.RecordBatch:
    """The batch, with the metadata that the decoder reads."""
    said = {"lsn": source.partial.place, "at": (source.at - _EPOCH_START) // _MICROS, "begins": begins}
    return rows.replace_schema_metadata(
        {b"table": table_to_json(source.table), b"copy": str(copy), b"copied": json.dumps(said)}
    )
