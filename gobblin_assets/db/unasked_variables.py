"""Variables of libpq that act whatever a program gives, and their removal.

Each command removes them when it starts, also one that opens no connection: this module imports no driver.
"""

from collections.abc import MutableMapping
from typing import Final

UNASKED_VARIABLES: Final = ("PGSERVICE", "PGTZ", "PGDATESTYLE", "PGGEQO")


def forget_unasked_variables(environment: MutableMapping[str, str]) -> None:
    """Remove variables that no parameter overrides from a process's environment, before any thread runs in it."""
    for name in UNASKED_VARIABLES:
        environment.pop(name, None)
