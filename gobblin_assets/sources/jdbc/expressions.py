"""One expression in the source's SQL: what a job writes as ``where`` or ``casts`` stays inside its parentheses.

The text becomes a part of our queries, as ``WHERE (…)`` and ``(…) AS c0``. So it must not end the parentheses around
it, begin a comment, or begin a second statement. It is cut into quoted texts, brackets and the rest; what databases
read in different ways, depending on their kind or their settings, is refused, with another way to write it. The
database decides whether the rest is an expression and what it may read, by the rights of the connection's user.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.job_spec import DatasetSpec

_PIECES: Final = re.compile(
    r"""
      (?P<text>'(?:[^']|'')*')
    | (?P<name>"(?:[^"]|"")*")
    | (?P<tick>`(?:[^`]|``)*`)
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<comment>--|/\*|\*/|\#)
    | (?P<end>;)
    | (?P<dollar>(?<![\w$])\$\w*\$)
    | (?P<own_quote>(?<![\w$])[nN]?[qQ](?='))
    | (?P<torn>['"`])
    | (?P<control>[\x00-\x08\x0b\x0c\x0e-\x1f])
    """,
    re.VERBOSE,
)
_CLOSES: Final[Mapping[str, str]] = MappingProxyType({")": "(", "]": "[", "}": "{"})
# In these a number sign is an operator (numbers, JSON); in others it begins a comment, or has no meaning.
_HAS_NUMBER_SIGN: Final = frozenset({"postgresql"})
# These quote names by backticks; in others a backtick is an operator, or has no meaning.
_HAS_TICK: Final = frozenset({"mysql", "mariadb", "sqlite"})
# In others brackets may quote a name, in which a quotation mark has no meaning.
_HAS_ARRAYS: Final = frozenset({"postgresql", "duckdb"})

_HINTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "comment": "Write the expression without comments, and - -1 with a blank between the signs.",
        "end": "Write one expression: a job reads, and never runs a second statement.",
        "dollar": "Quote the text by ', and write an ' inside it as ''.",
        "own_quote": "Quote the text by ', and write an ' inside it as ''.",
        "torn": "End the text by the mark that it begins with; inside, write the mark twice.",
        "control": "Take the control character out.",
    }
)


def require_expressions(spec: DatasetSpec, urn: DatasetUrn, subprotocol: str) -> None:
    """``require_expression`` for every option of a dataset that is the source's SQL."""
    if spec.where is not None:
        require_expression(spec.where, subprotocol=subprotocol, field=f"datasets[{urn}].where")
    for column, text in spec.casts.items():
        require_expression(text, subprotocol=subprotocol, field=f"datasets[{urn}].casts.{column}")


def require_expression(text: str, *, subprotocol: str, field: str) -> None:
    """RejectedError, with the field and the place, unless ``text`` stays within parentheses around it."""
    if not text.strip():
        raise RejectedError("expected an expression, found nothing", field=field, hint="Leave the option out instead.")
    for place, found, hint in _find_faults(text, subprotocol):
        raise RejectedError(f"{found!r} at character {place + 1} can't stand in an expression", field=field, hint=hint)


def _find_faults(text: str, subprotocol: str) -> Iterator[tuple[int, str, str]]:
    """Place, text and hint of each fault; faults of pieces come in order, brackets left open come last."""
    opened: list[tuple[str, int]] = []
    for piece in _PIECES.finditer(text):
        kind, found, place = str(piece.lastgroup), piece[0], piece.start()
        match kind:
            case "text" | "name" | "tick":
                yield from _find_faults_of_quoted(kind, found, place, subprotocol)
                if opened and opened[-1][0] == "[" and subprotocol not in _HAS_ARRAYS:
                    yield place, found, 'Quote a name by ", where brackets would hold a quotation mark.'
            case "open":
                opened.append((found, place))
            case "close":
                if not opened or opened.pop()[0] != _CLOSES[found]:
                    yield place, found, "Close only what was opened in the expression itself."
            case "comment" if found == "#" and subprotocol in _HAS_NUMBER_SIGN:
                pass
            case _:
                yield place, found, _HINTS[kind]
    for found, place in opened:
        yield place, found, "Close it in the expression itself."


def _find_faults_of_quoted(kind: str, found: str, place: int, subprotocol: str) -> Iterator[tuple[int, str, str]]:
    if kind == "tick" and subprotocol not in _HAS_TICK:
        yield place, found, 'Quote a name by ".'
    # Whether a backslash escapes the mark behind it depends on the database, its settings and the text's prefix.
    if kind != "tick" and re.search(rf"\\{found[0]}", found):
        yield place, found, "Write a quotation mark inside a text twice, and no backslash before one."
