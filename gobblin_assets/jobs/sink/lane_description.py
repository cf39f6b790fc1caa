"""Descriptions of a lane's publication: what it says of its dataset, and what Spark made of the lane's records."""

from collections.abc import Mapping
from dataclasses import dataclass

from gobblin_assets.model.urn import Role
from gobblin_assets.run.job_kind import Staged


@dataclass(frozen=True, slots=True)
class LaneDescription:
    """What a publication says of its dataset. ``file_schemas``: as Spark's JSON.

    ``details``: of each first publication, and of each that has other ``columns`` or ``facts`` than the one before.
    ``columns`` None: they are not known yet.
    """

    file_schemas: Mapping[Role, object]
    columns: object
    facts: Mapping[str, object]
    details: Mapping[str, object]

    def has_news(self, before: "LaneDescription | None") -> bool:
        """Whether it says more than the lane's publication ``before``; None: there was none."""
        return before is None or self.columns not in (None, before.columns) or self.facts != before.facts


@dataclass(frozen=True, slots=True)
class RereadRows:
    """What Spark made of the records of a cut. ``columns``: the log's own, name to Spark's type, in order."""

    staged: Staged
    columns: Mapping[str, str]
