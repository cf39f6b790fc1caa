"""Texts in statements: predicates of the states of sequences (from ``model.sequence_state``), and JSON for jsonb."""

import json
import re
from collections.abc import Iterable
from typing import Final

from gobblin_assets.db.table_metadata import states
from gobblin_assets.model.sequence_state import (
    OPEN_STATES,
    OVER_STATES,
    RECOVERABLE_STATES,
    UNFINISHED_STATES,
    UNSEALED_STATES,
    SequenceEvent,
    SequenceState,
    sources_of,
    target_of,
)

# Behind an even number of backslashes: an odd one makes the first of these a backslash that somebody wrote.
_NUL: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def in_states(some: Iterable[SequenceState]) -> str:
    """The predicate that a state is one of these."""
    found = tuple(some)
    return f"= {states(*found)}" if len(found) == 1 else f"IN ({states(*found)})"


def starts(event: SequenceEvent) -> str:
    """The predicate of the states that ``event`` may start from: the guard of its UPDATE."""
    return in_states(sources_of(event))


def result(event: SequenceEvent) -> str:
    """The state that ``event`` sets, as a literal."""
    return states(target_of(event))


IS_OPEN: Final = in_states(OPEN_STATES)
IS_OVER: Final = in_states(OVER_STATES)
IS_RECOVERABLE: Final = in_states(RECOVERABLE_STATES)
IS_UNFINISHED: Final = in_states(UNFINISHED_STATES)
MAY_BE_UNSEALED: Final = in_states(UNSEALED_STATES)


def to_jsonb(value: object) -> str:
    """Text for a ``CAST(:x AS jsonb)``. jsonb has no NUL character; it is stored as U+FFFD."""
    return _NUL.sub("\\1\ufffd", json.dumps(value, ensure_ascii=False, default=str))
