"""The rule that says when two names are one column; every comparison of names of columns or fields uses it.

Spark compares names in two ways, both without regard to case. Files, writes and columns of a frame go by the lower case
of the whole name (``String.toLowerCase(Locale.ROOT)``). Fields of a struct, ``drop`` and ``withColumn`` go by
``String.equalsIgnoreCase``: character by character, by simple upper and then simple lower case. Two names are one here
if either way takes them for one, so the rule holds whichever way Spark looks a name up. ``s`` and the long s, U+017F,
are one name, but ``str.lower`` would tell them apart; ``masse`` and ``maße`` are two names, but ``str.casefold`` would
take them for one.

Names are compared by ``name_key``, never by ``lower`` or ``casefold``.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

# İ is i with a dot in lower case, and a plain i to equalsIgnoreCase: so the dot says nothing.
_DOTTED: Final = re.compile("i\u0307+")


def name_key(name: str) -> str:
    """A key that is equal for names that Spark takes for one in either way, and different for all others.

    One exception by the rule's own logic: ``i`` and ``i`` with a dot above are one, since ``İ`` is each of them.
    """
    if name.isascii():
        return name.lower()
    return _DOTTED.sub("i", "".join(map(_fold, name.lower())))


def find_alike(names: Sequence[str]) -> tuple[str, str] | None:
    """The first name that equals an earlier one by this rule, as (earlier, later); None if all are different."""
    seen: dict[str, str] = {}
    for name in names:
        earlier = seen.get(name_key(name))
        if earlier is not None:
            return earlier, name
        seen[name_key(name)] = name
    return None


def pair_names(wanted: Iterable[str], known: Sequence[str]) -> dict[str, str]:
    """The name in ``known`` that each of ``wanted`` means: the same name, else an equal one that is not wanted itself.

    A wanted name without one is left out. No two of ``wanted`` get the same name.
    """
    asked = list(wanted)
    exact = set(known)
    taken = exact.intersection(asked)
    free: dict[str, str] = {}
    for name in known:
        if name not in taken:
            free.setdefault(name_key(name), name)
    pairs = {}
    for name in asked:
        found = name if name in exact else free.pop(name_key(name), None)
        if found is not None:
            pairs[name] = found
    return pairs


def _fold(character: str) -> str:
    upper = character.upper()
    # Java maps one character to one: a sharp s stays what it is.
    return (upper if len(upper) == 1 else character).lower()
