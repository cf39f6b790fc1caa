"""Comments and constraints of the source that still hold for the published columns."""

from collections.abc import Mapping, Sequence
from typing import Final

from gobblin_assets.model.source_declarations import SourceComments, SourceConstraints
from gobblin_assets.spec.job_spec import ConverterSpec

COMMENT_LENGTH_MAX: Final = 500
COMMENTS_LENGTH_MAX: Final = 20_000
"""For all comments of a table together. Each publication keeps them in the log, which stays small."""


def carry_comments(found: SourceComments, links: Sequence[ConverterSpec], columns: Mapping[str, str]) -> SourceComments:
    """Comments of the published ``columns``: a renamed column keeps its own, one that SQL makes anew has none.

    A function may change anything; names that stay keep their comments. Comments are cut to this module's bounds.
    """
    carried = dict(found.columns)
    for link in links:
        if link.rename is not None:
            moved = {new: carried.get(old) for old, new in link.rename.items()}
            carried = {name: text for name, text in carried.items() if name not in link.rename}
            carried |= {new: text for new, text in moved.items() if text is not None}
        for name in link.sql or ():
            carried.pop(name, None)
    kept: dict[str, str] = {}
    left = COMMENTS_LENGTH_MAX
    for name in columns:
        text = _shorten(carried.get(name))
        if text and len(text) <= left:
            kept[name] = text
            left -= len(text)
    return SourceComments(_shorten(found.table), kept)


def _shorten(text: str | None) -> str | None:
    said = (text or "").strip()
    return (f"{said[: COMMENT_LENGTH_MAX - 1]}…" if len(said) > COMMENT_LENGTH_MAX else said) or None


def carry_constraints(
    found: SourceConstraints, links: Sequence[ConverterSpec], columns: Mapping[str, str]
) -> SourceConstraints:
    """Constraints of the published ``columns``: a renamed column keeps its own, one that SQL makes anew has none.

    A function may change anything, so nothing holds behind it. A key of which a column is missing is no key.
    """
    if any(link.function is not None for link in links):
        return SourceConstraints()
    names = {name: name for name in (*found.primary_key, *found.not_null)}
    for link in links:
        if link.rename is not None:
            renamed = link.rename
            names = {at_source: renamed.get(name, name) for at_source, name in names.items()}
        made = link.sql or {}
        names = {at_source: name for at_source, name in names.items() if name not in made}
    kept = {at_source: name for at_source, name in names.items() if name in columns}
    return SourceConstraints(
        tuple(kept[name] for name in found.primary_key) if kept.keys() >= set(found.primary_key) else (),
        frozenset(kept[name] for name in found.not_null if name in kept),
    )
