"""The states of a commit sequence and the only edges between them.

This is the only place where they are written. The guards of the log's statements, the constraints and partial indexes
of its tables, and the simulated log are made from it.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from gobblin_assets.errors import CorruptionError


class SequenceState(StrEnum):
    BUILDING = "BUILDING"
    PREPARED = "PREPARED"
    DONE = "DONE"
    BLOCKED = "BLOCKED"
    ABANDONING = "ABANDONING"
    ABORTED = "ABORTED"

    @property
    def is_open(self) -> bool:
        """Sealed, and neither finished nor abandoned: nothing new may be sealed for the dataset."""
        return self in OPEN_STATES


class SequenceEvent(StrEnum):
    SEAL = "seal"
    FINISH = "finish"
    ABORT = "abort"
    BLOCK = "block"
    RESUME = "resume"
    ABANDON = "abandon"
    GIVE_UP = "give_up"


INITIAL_STATE: Final = SequenceState.BUILDING

EDGES: Final[Mapping[tuple[SequenceState, SequenceEvent], SequenceState]] = MappingProxyType(
    {
        (SequenceState.BUILDING, SequenceEvent.SEAL): SequenceState.PREPARED,
        (SequenceState.BUILDING, SequenceEvent.ABORT): SequenceState.ABORTED,
        (SequenceState.PREPARED, SequenceEvent.FINISH): SequenceState.DONE,
        (SequenceState.PREPARED, SequenceEvent.BLOCK): SequenceState.BLOCKED,
        (SequenceState.BLOCKED, SequenceEvent.RESUME): SequenceState.PREPARED,
        (SequenceState.PREPARED, SequenceEvent.ABANDON): SequenceState.ABANDONING,
        (SequenceState.BLOCKED, SequenceEvent.ABANDON): SequenceState.ABANDONING,
        (SequenceState.ABANDONING, SequenceEvent.GIVE_UP): SequenceState.ABORTED,
    }
)

OVER_STATES: Final = tuple(state for state in SequenceState if all(source is not state for source, _event in EDGES))
"""No edge leads on from these."""

UNFINISHED_STATES: Final = tuple(state for state in SequenceState if state not in OVER_STATES)

OPEN_STATES: Final = tuple(state for state in UNFINISHED_STATES if state is not INITIAL_STATE)

RECOVERABLE_STATES: Final = tuple(state for state in OPEN_STATES if state is not SequenceState.BLOCKED)
"""Recovery goes on with these by itself; a BLOCKED sequence waits for a person."""

UNSEALED_STATES: Final = (INITIAL_STATE, EDGES[INITIAL_STATE, SequenceEvent.ABORT])
"""Only in these states may a sequence be unsealed."""


class IllegalTransitionError(CorruptionError):
    """A sequence was asked for a transition that does not exist."""

    def __init__(self, state: SequenceState, event: SequenceEvent) -> None:
        super().__init__(
            f"a {state} sequence has no way to {event}",
            hint="Look at the sequence with `gobblin-assets commit show`; never edit its state by hand.",
            state=state,
            event=event,
        )


def next_state(state: SequenceState, event: SequenceEvent) -> SequenceState:
    """The state that ``event`` leads to; IllegalTransitionError if there is no edge."""
    try:
        return EDGES[state, event]
    except KeyError:
        raise IllegalTransitionError(state, event) from None


def sources_of(event: SequenceEvent) -> tuple[SequenceState, ...]:
    """The states that ``event`` may start from: the guard of its UPDATE."""
    return tuple(state for state, edge in EDGES if edge is event)


def target_of(event: SequenceEvent) -> SequenceState:
    """The state that ``event`` leads to, from wherever it may start."""
    return next(target for (_state, edge), target in EDGES.items() if edge is event)
