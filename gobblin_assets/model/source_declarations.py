"""Declarations of a source on a table: comments on it and its columns, its key, and the columns that hold no NULL."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class SourceComments:
    """The comments of a table. ``table``: its own; ``columns``: by column name, only of columns that have one."""

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


@dataclass(frozen=True, slots=True)
class SourceConstraints:
    """The constraints of a table. ``primary_key``: its columns in order, or (). ``not_null``: columns without NULL.

    A published dataset may hold several versions of a row, and so several rows of one key.
    """

    primary_key: tuple[str, ...] = ()
    not_null: frozenset[str] = frozenset()


def constraints_to_json(constraints: SourceConstraints) -> dict[str, object]:
    """The constraints as the details of a publication keep them; empty if there are none."""
    return {
        **({"primary_key": list(constraints.primary_key)} if constraints.primary_key else {}),
        **({"not_null": sorted(constraints.not_null)} if constraints.not_null else {}),
    }


def constraints_from_json(details: Mapping[str, Any]) -> SourceConstraints:
    return SourceConstraints(tuple(details.get("primary_key", ())), frozenset(details.get("not_null", ())))
