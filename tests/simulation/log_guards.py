"""The checks at the beginning of each guarded transition of the simulated log, as in ``commit.postgres.guards``.

Transactions here happen one after the other, so they need no locks. ``tests/contracts/test_interleaving.py`` proves on
two connections what the locks of the real adapter are for.
"""

from gobblin_assets.errors import ConflictError, CorruptionError, FencedError, RejectedError
from gobblin_assets.model.sequence_state import EDGES, SequenceEvent, SequenceState, target_of
from gobblin_assets.model.state import LaneId, SequenceId
from gobblin_assets.model.watermark import Watermark
from tests.simulation.database import Guard, SimDatabase
from tests.simulation.rows import LeaseRow, SequenceRow


def require_fence(db: SimDatabase, lane_id: LaneId, fence: int, guard: Guard) -> None:
    """FencedError if ``fence`` is not the newest, unless ``guard`` is switched off."""
    lease = db.leases.get(lane_id)
    found = None if lease is None else lease.fence
    if found != fence and db.holds(guard):
        raise FencedError(
            f"dataset or lane {lane_id} was taken over: fence {fence} was replaced by {found}",
            lane_id=lane_id,
            fence=fence,
            found=found,
        )


def get_sequence(db: SimDatabase, sequence_id: SequenceId) -> SequenceRow:
    row = db.sequences.get(sequence_id)
    past = db.past_sequences.get(sequence_id)
    if row is None and past is not None:
        raise RejectedError(f"sequence {sequence_id} is {past.state}, and was folded or forgotten", field="sequence")
    if row is None:
        raise RejectedError(f"there is no sequence {sequence_id}", field="sequence")
    return row


def require_event(
    db: SimDatabase,
    sequence_id: SequenceId,
    fence: int,
    event: SequenceEvent,
    *,
    fence_guard: Guard,
    state_guard: Guard | None = None,
) -> SequenceRow:
    """The row of a sequence in a state that ``event`` starts from, or leads to if it happened before. Any other state:
    ConflictError, unless ``state_guard`` is switched off.
    """
    past = db.past_sequences.get(sequence_id)
    if past is not None:
        require_fence(db, past.lane_id, fence, fence_guard)
    row = get_sequence(db, sequence_id)
    require_fence(db, row.lane_id, fence, fence_guard)
    asked = state_guard is None or db.holds(state_guard)
    if asked and row.state is not target_of(event) and (row.state, event) not in EDGES:
        raise unexpected_state(sequence_id, row.state, f"take the transition {event!s}")
    return row


def require_building(
    db: SimDatabase, sequence_id: SequenceId, fence: int, *, state_guard: Guard, fence_guard: Guard
) -> SequenceRow:
    """The row of a sequence that still accepts work under ``fence``; FencedError otherwise."""
    row = get_sequence(db, sequence_id)
    other_owner = row.fence != fence and db.holds(fence_guard)
    over = row.state is not SequenceState.BUILDING and db.holds(state_guard)
    if other_owner or over:
        raise FencedError(
            f"sequence {sequence_id} is {row.state} under fence {row.fence}: it takes no more work",
            sequence_id=str(sequence_id),
            fence=fence,
        )
    return row


def unexpected_state(sequence_id: SequenceId, state: SequenceState, wanted: str) -> ConflictError:
    return ConflictError(f"sequence {sequence_id} is {state} and can't {wanted}", sequence_id=str(sequence_id))


def contradiction(what: str, sequence_id: SequenceId) -> CorruptionError:
    """The error of a guarded statement of the adapter that changes no row under its lock."""
    return CorruptionError(f"{what} changed 0 rows instead of one", sequence_id=str(sequence_id))


def encoded(watermark: Watermark | None) -> bytes | None:
    """What watermarks are compared by."""
    return None if watermark is None else watermark.encode()


def is_live(db: SimDatabase, lease: LeaseRow) -> bool:
    return lease.expires_at is not None and lease.expires_at > db.now_s
