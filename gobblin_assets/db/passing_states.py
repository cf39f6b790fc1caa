"""The states (SQLSTATE) of what passes by itself at a server of Postgres: nobody has to unblock anything."""

from typing import Final

_PASSING: Final = ("53", "40", "55P03", "55006", "57014", "57P", "08", "25P03", "25P04", "25006")
"""A server without room, transactions that others have rolled back, locks that others have, bounds on time, a server
that starts, ends or is away, and one that takes no writes for now.
"""


def is_passing_state(state: str | None) -> bool:
    """None: there is no state, as of a lost connection."""
    return not state or state.startswith(_PASSING)
