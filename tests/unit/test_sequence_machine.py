"""The state machine of a sequence: every pair of state and event, and where each state can lead."""

import itertools

import pytest

from gobblin_assets.model.sequence_state import (
    EDGES,
    IllegalTransitionError,
    SequenceEvent,
    SequenceState,
    next_state,
    sources_of,
)


@pytest.mark.parametrize(("state", "event"), list(itertools.product(SequenceState, SequenceEvent)))
def test_an_event_follows_its_edge_or_is_refused(state: SequenceState, event: SequenceEvent) -> None:
    if (state, event) in EDGES:
        assert next_state(state, event) is EDGES[state, event]
        assert state in sources_of(event)
    else:
        with pytest.raises(IllegalTransitionError, match=f"{state} sequence has no way to {event}"):
            next_state(state, event)
        assert state not in sources_of(event)


def reachable(start: SequenceState) -> set[SequenceState]:
    found, waiting = {start}, [start]
    while waiting:
        state = waiting.pop()
        following = {target for (source, _event), target in EDGES.items() if source is state} - found
        found |= following
        waiting.extend(following)
    return found


def test_what_is_finished_stays_finished() -> None:
    assert reachable(SequenceState.DONE) == {SequenceState.DONE}
    assert reachable(SequenceState.ABORTED) == {SequenceState.ABORTED}


def test_what_is_being_abandoned_is_never_published() -> None:
    assert reachable(SequenceState.ABANDONING) == {SequenceState.ABANDONING, SequenceState.ABORTED}


def test_no_sealed_sequence_is_aborted_without_being_abandoned() -> None:
    sources = {source for (source, _event), target in EDGES.items() if target is SequenceState.ABORTED}
    assert sources == {SequenceState.BUILDING, SequenceState.ABANDONING}


def test_every_state_can_be_reached_and_left() -> None:
    assert reachable(SequenceState.BUILDING) == set(SequenceState)
    for state in SequenceState:
        assert reachable(state) & {SequenceState.DONE, SequenceState.ABORTED}
