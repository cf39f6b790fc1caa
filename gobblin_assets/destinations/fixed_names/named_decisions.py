"""Decisions about a step at given names, by a look at its places: one table for each kind, the same for every process.

A look examines three places: the staged **source** and the **slot** for the file that is moved away, both inside the
attempt's directory, and the published **name**. The tables are those of the exhaustive model that
``tests/models/fixed_names.py`` searches.
"""

import stat
from enum import StrEnum


class Found(StrEnum):
    """The judgement of what is at a place: nothing, the staged version, the version that was planned to be there,
    or another.
    """

    NOTHING = "nothing"
    NEW = "new"
    OLD = "old"
    OTHER = "other"


class Act(StrEnum):
    """One rename, one change of a mode, or an answer that ends the work on the step.

    PUBLISH: source to name. EXCHANGE: source with name. AWAY: name to slot. SETTLE: source to slot. UNSETTLE: slot to
    source. PUT_BACK: slot to name. RETURN: name to the place for what is taken back. UNRETURN: from there to name.
    OPEN, CLOSE: a directory's mode gives its owner the right to write, or takes it; these are no renames.
    CONFLICT: something else stands in a place. LOST: a version is in none of its places.
    """

    DONE = "done"
    PUBLISH = "publish"
    EXCHANGE = "exchange"
    AWAY = "away"
    SETTLE = "settle"
    UNSETTLE = "unsettle"
    PUT_BACK = "put_back"
    RETURN = "return"
    UNRETURN = "unreturn"
    OPEN = "open"
    CLOSE = "close"
    CONFLICT = "conflict"
    LOST = "lost"

    @property
    def is_answer(self) -> bool:
        return self in (Act.DONE, Act.CONFLICT, Act.LOST)


def decide_place(source: Found, name: Found) -> Act:
    """Publish a file or a directory at a name that was free."""
    if name is Found.NEW:
        return Act.DONE
    if name is Found.NOTHING:
        return Act.PUBLISH if source is Found.NEW else Act.LOST
    return Act.CONFLICT


def decide_remove(slot: Found, name: Found) -> Act:
    """Move the old version into the slot."""
    if slot is Found.OLD:
        # Whatever is at the name came after the removal.
        return Act.DONE
    if slot is not Found.NOTHING:
        # Somebody put another file there between the look and the rename.
        return Act.PUT_BACK if name is Found.NOTHING else Act.CONFLICT
    return Act.AWAY if name is Found.OLD else Act.CONFLICT


def decide_replace(source: Found, slot: Found, name: Found, *, exchanges: bool) -> Act:
    """Put the staged version in the place of the old one, which then stands in the slot.

    ``exchanges``: by an exchange of source and name, so that readers always find a file; else the old version is moved
    aside first.
    """
    if slot is Found.OLD:
        if name is Found.NOTHING:
            return Act.PUBLISH if source is Found.NEW else Act.LOST
        return Act.DONE if name is Found.NEW else Act.CONFLICT
    if slot is Found.NEW and name is Found.OLD and source is Found.NOTHING:
        return Act.UNSETTLE
    if slot is not Found.NOTHING:
        return Act.PUT_BACK if name is Found.NOTHING else Act.CONFLICT
    if exchanges:
        return _decide_exchange(source, name)
    if source is not Found.NEW:
        return Act.LOST
    return Act.AWAY if name is Found.OLD else Act.CONFLICT


def _decide_exchange(source: Found, name: Found) -> Act:
    """``decide_replace`` by exchange, while the slot is empty."""
    if source is Found.NEW:
        return Act.EXCHANGE if name is Found.OLD else Act.CONFLICT
    if name is Found.NEW and source is Found.OLD:
        return Act.SETTLE
    if name is Found.NEW and source is Found.OTHER:
        # Somebody put another file at the name between the look and the exchange: the file goes back.
        return Act.EXCHANGE
    return Act.LOST


def decide_undo(source: Found, slot: Found, name: Found, returned: Found, *, has_old: bool) -> Act:
    """Take a step back, under a capture. ``returned``: the place for what is taken back.

    ``has_old``: a version was at the name before. DONE: nothing of the step is at the name, and nothing that is not
    the step's own is in its places.
    """
    if returned not in (Found.NOTHING, Found.NEW):
        return Act.UNRETURN if name is Found.NOTHING else Act.CONFLICT
    if name is Found.NEW:
        was_exchanged = has_old and source in (Found.OLD, Found.OTHER) and slot is Found.NOTHING
        return Act.EXCHANGE if was_exchanged else Act.RETURN
    if slot in (Found.OLD, Found.OTHER):
        return Act.PUT_BACK if name is Found.NOTHING else Act.CONFLICT
    if source not in (Found.NOTHING, Found.NEW):
        # An exchange of the undo itself took a stranger along, which came between the look and the exchange.
        took_along = source is Found.OTHER and name is Found.OLD
        return Act.EXCHANGE if took_along and (slot, returned) == (Found.NOTHING, Found.NOTHING) else Act.CONFLICT
    # Without the old version, a stranger has taken it away or replaced it, and whatever is there is the stranger's.
    return Act.CONFLICT if has_old and name is Found.NOTHING else Act.DONE


def decide_open(mode: int | None, closed: int) -> Act:
    """Give a directory's owner the right to write, before names in it change. ``closed``: its mode without the right.

    ``mode``: the one that it has now; None: it is not there, or another one is, at which nobody looks here.
    """
    if mode == closed:
        return Act.OPEN
    # Whoever gave it the right meanwhile keeps it: ``decide_close`` knows one mode only.
    return Act.DONE if mode is None or mode & stat.S_IWUSR else Act.CONFLICT


def decide_close(mode: int | None, closed: int) -> Act:
    """Take the right away behind everything else, or when a sequence is taken back. Any other mode is a stranger's."""
    return Act.CLOSE if mode == closed | stat.S_IWUSR else Act.DONE


def decide_open_again(mode: int | None, closed: int) -> Act:
    """Take ``decide_close`` back. With a stranger's mode, what is taken back next may lack the right."""
    return Act.OPEN if mode == closed else Act.DONE
