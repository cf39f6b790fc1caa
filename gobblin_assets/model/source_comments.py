"""Comments at the source on a table and its columns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class SourceComments:
    """``table``: the table's own comment; ``columns``: comments by column name, only of columns that have one."""

    table: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)


def comments_to_json(comments: SourceComments) -> dict[str, object]:
    """The comments as the details of a publication keep them; empty if there are none."""
    return {
        **({"table_comment": comments.table} if comments.table else {}),
        **({"column_comments": dict(comments.columns)} if comments.columns else {}),
    }


def comments_from_json(details: Mapping[str, Any]) -> SourceComments:
    return SourceComments(details.get("table_comment"), dict(details.get("column_comments", {})))
