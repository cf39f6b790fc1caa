"""What people wrote at the source about a table and its columns, as far as it still holds of what is published."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gobblin_assets.spec.job_spec import ConverterSpec

COMMENT_LENGTH_MAX: Final = 500
COMMENTS_LENGTH_MAX: Final = 20_000
"""Of all of a table's together. Each publication keeps them in the log, which stays small."""


@dataclass(frozen=True, slots=True)
class SourceComments:
    """``table``: of the table itself; ``columns``: by name. What has no comment is left out."""

    table: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)


def carry_comments(found: SourceComments, links: Sequence[ConverterSpec], columns: Mapping[str, str]) -> SourceComments:
    """Those of the published ``columns``: a renamed column keeps its own, one that SQL makes anew has none.

    What a function makes nobody knows: names that stay keep theirs. Cut to the bounds of this module.
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


def comments_to_json(comments: SourceComments) -> dict[str, object]:
    """As the details of a publication keep them; nothing where there are none."""
    return {
        **({"table_comment": comments.table} if comments.table else {}),
        **({"column_comments": dict(comments.columns)} if comments.columns else {}),
    }


def comments_from_json(details: Mapping[str, Any]) -> SourceComments:
    return SourceComments(details.get("table_comment"), dict(details.get("column_comments", {})))


def _cut(text: str | None) -> str | None:
    said = (text or "").strip()
    return (f"{said[: COMMENT_LENGTH_MAX - 1]}…" if len(said) > COMMENT_LENGTH_MAX else said) or None
