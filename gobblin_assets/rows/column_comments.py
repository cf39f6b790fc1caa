"""Comments of the source that still hold for the published columns."""

from collections.abc import Mapping, Sequence
from typing import Final

from gobblin_assets.model.source_declarations import SourceComments
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
        text = _cut(carried.get(name))
        if text and len(text) <= left:
            kept[name] = text
            left -= len(text)
    return SourceComments(_cut(found.table), kept)


def _cut(text: str | None) -> str | None:
    said = (text or "").strip()
    return (f"{said[: COMMENT_LENGTH_MAX - 1]}…" if len(said) > COMMENT_LENGTH_MAX else said) or None
