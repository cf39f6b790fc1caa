"""What every guarded transition asks first, always in this order: the lease row, then the sequence row.

FOR KEY SHARE on the lease collides with a taker's FOR UPDATE and with nothing else: while a transition is
under way nobody takes the dataset over, and heartbeats go on. Reading the fence without that lock is no
fence: the taker could commit between the read and our write.
"""

from typing import Any

from sqlalchemy import Connection, Row, text

from gobblin_assets.commit.machine import SequenceEvent, SequenceState, sources_of, target_of
from gobblin_assets.errors import ConflictError, CorruptionError, FencedError, RejectedError
from gobblin_assets.model.state import DatasetId, SequenceId

_HOLD_FENCE = text("""
    SELECT fence FROM gobblin.lease WHERE dataset_id = :dataset_id FOR KEY SHARE
""")

_LOCK_SEQUENCE = text("""
    SELECT sequence_id, dataset_id, partition, replaces, fence, state, base_version, result_version, digest,
           failed_tries
      FROM gobblin.commit_sequence
     WHERE sequence_id = :sequence_id
       FOR UPDATE
""")

_SHARE_SEQUENCE = text("""
    SELECT dataset_id, fence, state FROM gobblin.commit_sequence WHERE sequence_id = :sequence_id FOR SHARE
""")

_DATASET_OF = text("SELECT dataset_id FROM gobblin.commit_sequence WHERE sequence_id = :sequence_id")


def hold_fence(connection: Connection, dataset_id: DatasetId, fence: int) -> None:
    """Keep takers out until this transaction ends; FencedError if ``fence`` is not the newest."""
    found = connection.execute(_HOLD_FENCE, {"dataset_id": dataset_id}).scalar_one_or_none()
    if found != fence:
        raise FencedError(
            f"dataset {dataset_id} was taken over: fence {fence} was replaced by {found}",
            dataset_id=dataset_id,
            fence=fence,
            found=found,
        )


def hold_fence_of(connection: Connection, sequence_id: SequenceId, fence: int) -> None:
    """``hold_fence`` for the dataset of a sequence, which never changes."""
    dataset_id = connection.execute(_DATASET_OF, {"sequence_id": sequence_id}).scalar_one_or_none()
    if dataset_id is None:
        raise unknown_sequence(sequence_id)
    hold_fence(connection, DatasetId(dataset_id), fence)


def lock_sequence(connection: Connection, sequence_id: SequenceId) -> Row[Any]:
    """The sequence's row, locked: a plain read could say BUILDING while a COMMIT is still pending."""
    row = connection.execute(_LOCK_SEQUENCE, {"sequence_id": sequence_id}).one_or_none()
    if row is None:
        raise unknown_sequence(sequence_id)
    return row


def lock_for(
    connection: Connection, sequence_id: SequenceId, fence: int, event: SequenceEvent
) -> tuple[Row[Any], SequenceState]:
    """The locked row for a transition under ``fence``, and its state: one that ``event`` starts from, or the one that
    it leads to, when an earlier try of the same transition was not acknowledged. Any other: ConflictError.
    """
    hold_fence_of(connection, sequence_id, fence)
    row = lock_sequence(connection, sequence_id)
    state = SequenceState(row.state)
    if state is not target_of(event) and state not in sources_of(event):
        raise unexpected_state(sequence_id, state, f"take the transition {event!s}")
    return row, state


def share_building(connection: Connection, sequence_id: SequenceId, fence: int) -> None:
    """Keep the sequence BUILDING and ours until this transaction ends."""
    row = connection.execute(_SHARE_SEQUENCE, {"sequence_id": sequence_id}).one_or_none()
    if row is None:
        raise unknown_sequence(sequence_id)
    if row.fence != fence or SequenceState(row.state) is not SequenceState.BUILDING:
        raise FencedError(
            f"sequence {sequence_id} is {row.state} under fence {row.fence}: it takes no more work",
            sequence_id=str(sequence_id),
            fence=fence,
        )


def require_one(changed: int, what: str, sequence_id: SequenceId) -> None:
    """A guarded statement changed exactly one row, or the log contradicts what was read under its lock."""
    if changed != 1:
        raise CorruptionError(
            f"{what} changed {changed} rows instead of one",
            hint="Report this: the guards of the log disagree with each other.",
            sequence_id=str(sequence_id),
        )


def unknown_sequence(sequence_id: SequenceId) -> RejectedError:
    return RejectedError(
        f"there is no sequence {sequence_id}",
        field="sequence",
        hint="`gobblin-assets commit list` shows the open ones.",
    )


def unexpected_state(sequence_id: SequenceId, state: str, wanted: str) -> ConflictError:
    return ConflictError(
        f"sequence {sequence_id} is {state} and can't {wanted}",
        sequence_id=str(sequence_id),
        state=state,
    )
