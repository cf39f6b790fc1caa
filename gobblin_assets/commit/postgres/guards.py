"""The locks that every guarded transition takes first, always in this order: lease rows, then sequence rows.

FOR KEY SHARE on a lease conflicts with a taker's FOR UPDATE and with nothing else: while a transition is
under way, no process can take the lane over, and heartbeats go on. A fence that is read without that lock
protects nothing: the taker could commit between the read and our write.

Every transaction locks rows of several lanes in the order of their ids, so there are no deadlocks.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, text

from gobblin_assets.errors import ConflictError, CorruptionError, FencedError, RejectedError
from gobblin_assets.model.sequence_state import (
    IllegalTransitionError,
    SequenceEvent,
    SequenceState,
    next_state,
    target_of,
)
from gobblin_assets.model.state import LaneId, SequenceId

_HOLD_FENCE = text("""
    SELECT lane_id, fence FROM gobblin.lease
     WHERE lane_id = ANY (CAST(:lane_ids AS bigint[])) ORDER BY lane_id FOR KEY SHARE
""")

_LOCK_SEQUENCE = text("""
    SELECT sequence_id, dataset_id, lane_id, partition, replaces, fence, state, base_version, result_version, digest,
           failed_tries
      FROM gobblin.commit_sequence
     WHERE sequence_id = ANY (CAST(:sequence_ids AS uuid[]))
     ORDER BY sequence_id
       FOR UPDATE
""")

# Shared, so that the tasks of a run register and stage in parallel. No lease row is locked for it: a process that takes
# the dataset over first ends its BUILDING sequences, and the FOR UPDATE of that end waits for these locks.
_SHARE_SEQUENCE = text("""
    SELECT sequence_id, dataset_id, fence, state FROM gobblin.commit_sequence
     WHERE sequence_id = ANY (CAST(:sequence_ids AS uuid[])) ORDER BY sequence_id FOR SHARE
""")

# A process that slept while its sequence was folded must learn that the lane was taken over.
_LANE_OF = text("""
    SELECT sequence_id, lane_id FROM gobblin.commit_sequence
     WHERE sequence_id = ANY (CAST(:sequence_ids AS uuid[]))
     UNION ALL
    SELECT sequence_id, lane_id FROM gobblin.past_sequence
     WHERE sequence_id = ANY (CAST(:sequence_ids AS uuid[]))
""")


_PAST = text("SELECT state FROM gobblin.past_sequence WHERE sequence_id = :sequence_id")


def hold_fences(connection: Connection, fences: Iterable[tuple[LaneId, int]]) -> None:
    """Keep takers out until this transaction ends; FencedError if one of the fences is not the newest."""
    wanted = list(fences)
    rows = connection.execute(_HOLD_FENCE, {"lane_ids": [lane_id for lane_id, _fence in wanted]})
    newest = {row.lane_id: row.fence for row in rows}
    for lane_id, fence in wanted:
        found = newest.get(lane_id)
        if found != fence:
            raise FencedError(
                f"dataset or lane {lane_id} was taken over: fence {fence} was replaced by {found}",
                lane_id=lane_id,
                fence=fence,
                found=found,
            )


def hold_fences_of(connection: Connection, fences: Mapping[SequenceId, int]) -> None:
    """``hold_fences`` for the lanes of sequences, which never change."""
    rows = connection.execute(_LANE_OF, {"sequence_ids": list(fences)})
    lanes = {SequenceId(row.sequence_id): LaneId(row.lane_id) for row in rows}
    for sequence_id in fences:
        if sequence_id not in lanes:
            raise unknown_sequence(sequence_id)
    hold_fences(connection, [(lanes[sequence_id], fence) for sequence_id, fence in fences.items()])


def lock_sequences(connection: Connection, sequence_ids: Sequence[SequenceId]) -> dict[SequenceId, Row[Any]]:
    """The sequences' rows, locked: a plain read could say BUILDING while a COMMIT is still pending."""
    rows = {row.sequence_id: row for row in connection.execute(_LOCK_SEQUENCE, {"sequence_ids": list(sequence_ids)})}
    for sequence_id in sequence_ids:
        if sequence_id not in rows:
            raise unknown_sequence(sequence_id)
    return {SequenceId(sequence_id): row for sequence_id, row in rows.items()}


def lock_for_all(
    connection: Connection, fences: Mapping[SequenceId, int], event: SequenceEvent
) -> dict[SequenceId, tuple[Row[Any], SequenceState]]:
    """Lock the rows for a transition under their fences, and return them with their states.

    A state is one from which ``event`` starts, or the state to which it leads if an earlier try of the same transition
    was not acknowledged. ConflictError for any other state.
    """
    hold_fences_of(connection, fences)
    locked = {}
    for sequence_id, row in lock_sequences(connection, list(fences)).items():
        state = SequenceState(row.state)
        if state is not target_of(event):
            require_edge(sequence_id, state, event)
        locked[sequence_id] = row, state
    return locked


def lock_for(
    connection: Connection, sequence_id: SequenceId, fence: int, event: SequenceEvent
) -> tuple[Row[Any], SequenceState]:
    """``lock_for_all`` for one sequence."""
    return lock_for_all(connection, {sequence_id: fence}, event)[sequence_id]


def share_building(connection: Connection, fences: Iterable[tuple[SequenceId, int]]) -> None:
    """Keep the sequences BUILDING and ours until this transaction ends."""
    wanted = list(fences)
    ids = {"sequence_ids": list({sequence_id for sequence_id, _fence in wanted})}
    rows = {row.sequence_id: row for row in connection.execute(_SHARE_SEQUENCE, ids)}
    for sequence_id, fence in wanted:
        row = rows.get(sequence_id)
        if row is None:
            raise unknown_sequence(sequence_id)
        if row.fence != fence or SequenceState(row.state) is not SequenceState.BUILDING:
            raise FencedError(
                f"sequence {sequence_id} is {row.state} under fence {row.fence}: it takes no more work",
                sequence_id=str(sequence_id),
                fence=fence,
            )


def require_edge(sequence_id: SequenceId, state: SequenceState, event: SequenceEvent) -> None:
    """ConflictError if ``state`` has no edge for ``event``."""
    try:
        next_state(state, event)
    except IllegalTransitionError:
        raise unexpected_state(sequence_id, state, f"take the transition {event!s}") from None


def require_one(changed: int, what: str, sequence_id: SequenceId) -> None:
    """Require that a guarded statement changed one row; otherwise the log contradicts what was read under its lock."""
    if changed != 1:
        raise CorruptionError(
            f"{what} changed {changed} rows instead of one",
            hint="Report this: the guards of the log disagree with each other.",
            sequence_id=str(sequence_id),
        )


def require_each(changed: Iterable[SequenceId], what: str, wanted: Iterable[SequenceId]) -> None:
    """``require_one`` for each wanted sequence."""
    found = list(changed)
    for sequence_id in wanted:
        require_one(found.count(sequence_id), what, sequence_id)


def unknown_sequence(sequence_id: SequenceId) -> RejectedError:
    return RejectedError(
        f"there is no sequence {sequence_id}",
        field="sequence",
        hint="`gobblin-assets commit list` shows the open ones.",
    )


def past_sequence(connection: Connection, sequence_id: SequenceId) -> RejectedError | None:
    """The error about a sequence whose rows are gone."""
    state = connection.execute(_PAST, {"sequence_id": sequence_id}).scalar_one_or_none()
    if state is None:
        return None
    return RejectedError(
        f"sequence {sequence_id} is {state}, and was folded into a later one or is older than history is kept",
        field="sequence",
        hint="`gobblin-assets ledger` shows what is published.",
    )


def unexpected_state(sequence_id: SequenceId, state: str, wanted: str) -> ConflictError:
    return ConflictError(
        f"sequence {sequence_id} is {state} and can't {wanted}",
        sequence_id=str(sequence_id),
        state=state,
    )
