"""Mutants of the reader of a slot: random histories of slots must notice each."""

from collections.abc import Generator
from dataclasses import replace
from typing import Any, Final

from gobblin_assets.jobs.sink.sink_lanes import SinkLanes
from gobblin_assets.jobs.sink.sink_log import SinkLog
from gobblin_assets.jobs.sink.sink_worker import SinkWorker
from gobblin_assets.sources.jdbc.names import TableName
from gobblin_assets.sources.log_port import Barrier
from gobblin_assets.sources.postgres_log import change_gathering, slot_reader, table_copy
from gobblin_assets.sources.postgres_log.change_gathering import ChangeGathering, JudgedChange, judge_change
from gobblin_assets.sources.postgres_log.copy_ranges import SeenRanges, SeenTransactions
from gobblin_assets.sources.postgres_log.slot_reader import SlotReader
from gobblin_assets.sources.postgres_log.table_copy import TableCopy
from tests.simulation.mutant import Mutant, patched
from tests.simulation.slot_server import ONLY_LOOKS


def _confirms_at_the_seal(self: SinkLanes, log: Any, cuts: Any) -> Any:
    """The slot moves by what is cut, before it is published."""
    reader = log.reader
    if isinstance(reader, SlotReader):
        reader.truncate(
            {**log.list_published(), **{v: span.end for each in cuts for v, span in each.cut.spans.items()}}
        )
        if reader._walsender is not None:
            reader._walsender.confirm(reader._released)
    return _PUBLISH(self, log, cuts)


_PUBLISH: Final = SinkLanes.publish


def _confirms_what_is_sent(self: SlotReader, stream: Any) -> None:
    """An idle database's word moves the slot, and no cut says so."""
    self._released = max(self._released, self._place_now)
    _CONFIRM(self, stream)


_CONFIRM: Final = SlotReader._confirm


def _copies_before_the_place(self: TableCopy) -> "Generator[Any]":
    """The snapshot is there before the place from which the log is followed."""
    steps = _RUN(self)
    first = next(steps, None)
    while isinstance(first, str):
        yield first
        first = next(steps, None)
    with slot_reader.open_log_session(self._connection) as session:
        for _moment in range(4):
            ((place,),) = session.execute(table_copy._PLACE).fetchall()
    self._source = _with_place(self.source, table_copy.parse_lsn(place))
    if first is not None:
        yield first
    yield from steps


def _with_place(source: Any, place: int) -> Any:
    return replace(source, partial=replace(source.partial, place=place))


_RUN: Final = TableCopy._run


def _follows_from_the_last_range(self: TableCopy, session: Any, partial: Any, place: int = 0) -> Any:
    """Each range moves the place from which the log is followed to its own."""
    taken = _TAKE(self, session, partial, place)
    if taken is None or partial is None:
        return taken
    return replace(taken, source=_with_place(taken.source, table_copy.parse_lsn(taken.until)))


def _decides_bounds_anew(self: TableCopy, session: Any, partial: Any, place: int = 0) -> Any:
    """Whoever goes on with a copy has bounds of its own."""
    if partial is not None:
        ranges = partial.ranges
        moved = tuple(bound + 40 * (number + 1) for number, bound in enumerate(ranges.bounds))
        partial = replace(partial, ranges=replace(ranges, bounds=moved))
    return _TAKE(self, session, partial, place)


_TAKE: Final = TableCopy._take


def _judges_by_the_old_key(payload: bytes, ranges: SeenRanges, verdicts: Any, key_at: int | None) -> Any:
    """An update that moves a row is left out, or not, as a whole."""
    found = _JUDGE(payload, ranges, verdicts, key_at)
    is_moved = payload[:1] == b"U" and payload[5:6] == b"K"
    if not is_moved:
        return found
    return JudgedChange(payload) if found is not None and found.payload[:1] in b"UD" else None


_JUDGE: Final = judge_change


def _keeps_starts(_self: SinkLanes, _log: Any) -> None:
    """The start of a table that was copied since is the one without a copy."""


def _finds_by_name(self: ChangeGathering, relation: Any) -> Any:
    """Tables are told apart by their names."""
    name = TableName(relation.schema, relation.table)
    return next((each for each in self._wanted.values() if each.start.table.name == name), None)


def _fails_amid_a_barrier(self: SinkWorker, log: SinkLog, barrier: Barrier) -> "Generator[Any]":
    """A lane that fails at a barrier is given up before the others have passed it."""
    for lane in log.lanes:
        # One that failed meanwhile may have had others given up.
        if barrier.positions.keys() & lane.read_to.keys() and lane.is_held:
            try:
                cut = lane.pass_barrier(barrier)
            except Exception as error:  # noqa: BLE001  as the worker does
                self._lanes.fail(lane, error)
            else:
                yield lane, cut


IN_SLOT_HISTORIES: Final = (
    Mutant("the slot is moved before T3", patched(SinkLanes, "publish", _confirms_at_the_seal)),
    Mutant(
        "a cut inside of a transaction",
        patched(ChangeGathering, "is_in_transaction", property(lambda _self: False)),
    ),
    Mutant("a keepalive's position without a recorded cut", patched(SlotReader, "_confirm", _confirms_what_is_sent)),
    Mutant(
        "the successor does not end the old walsender",
        patched(slot_reader, "end_other_reader", lambda *_given: None),
    ),
    Mutant(
        "what a copy has is not left out of the log",
        patched(SeenTransactions, "has", lambda *_given: False),
    ),
    Mutant("a new reader does not learn what the last one copied", patched(SinkLanes, "_renew_starts", _keeps_starts)),
    Mutant("a copy does not wait for running transactions", patched(table_copy, "_NEXT_XID", "SELECT 0")),
    Mutant("a copy does not wait for the newest transaction", patched(table_copy, "_NEXT_XID", ONLY_LOOKS)),
    Mutant("a change is judged by another range's snapshot", patched(SeenRanges, "find_range", lambda *_given: 0)),
    Mutant("bounds are decided anew", patched(TableCopy, "_take", _decides_bounds_anew)),
    Mutant(
        "the log is followed from the last range's place", patched(TableCopy, "_take", _follows_from_the_last_range)
    ),
    Mutant("a row's move is left out as a whole", patched(change_gathering, "judge_change", _judges_by_the_old_key)),
    Mutant("a table is told by its name", patched(ChangeGathering, "_find_wanted", _finds_by_name)),
    Mutant("a lane fails amid a barrier", patched(SinkWorker, "_pass_in_all", _fails_amid_a_barrier)),
    Mutant("a copy is taken before the place", patched(TableCopy, "_run", _copies_before_the_place)),
)
