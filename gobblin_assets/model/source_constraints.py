"""Constraints that the source declares of a table's columns: the key, and the columns that hold no NULL."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SourceConstraints:
    """``primary_key``: its columns in order; () where there is none. ``not_null``: columns that the source keeps full.

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
