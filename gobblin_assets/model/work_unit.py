"""WorkUnits: the pieces that a run reads, and MultiWorkUnits: the groups that one task reads together."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NewType

from gobblin_assets.model.interval import Interval
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.watermark import Watermark

WorkUnitId = NewType("WorkUnitId", uuid.UUID)

# The size of a WorkUnit that its source could not estimate.
UNKNOWN_SIZE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """One interval of one watermark key of one dataset partition, read once.

    ``number`` orders the WorkUnits of a key; their intervals follow each other without a gap. ``interval``
    None means the whole partition as it is now (a snapshot). ``reread_from`` lies below ``interval.low``
    when a late window is read again. ``estimated_load``: packing counts it instead of bytes, in millionths of the
    source's own unit; all WorkUnits of a run use the same unit. ``skipped`` marks the empty WorkUnit of a dataset that
    this run leaves out: it carries the state, and nothing is read. ``properties``: the source's own plain JSON values.
    """

    id: WorkUnitId
    dataset: DatasetUrn
    partition: AssetPartition
    key: str
    number: int
    interval: Interval | None
    reread_from: Watermark | None = None
    estimated_row_count: int | None = None
    estimated_bytes: int | None = None
    estimated_load: int | None = None
    skipped: bool = False
    properties: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Nothing to read: skipped, or an interval without positions and no late window below it."""
        return self.skipped or (self.interval is not None and self.interval.is_empty and self.reread_from is None)

    @property
    def weight(self) -> int:
        """The weight for packing: the estimated load if there is one, else bytes."""
        if self.estimated_load is not None:
            return max(1, self.estimated_load)
        return max(1, UNKNOWN_SIZE_BYTES if self.estimated_bytes is None else self.estimated_bytes)


def sum_rows(units: Iterable[WorkUnit]) -> int:
    """The sum of estimated rows; a WorkUnit without an estimate counts as 0."""
    return sum(unit.estimated_row_count or 0 for unit in units)


def sum_bytes(units: Iterable[WorkUnit]) -> int:
    """The same in bytes."""
    return sum(unit.estimated_bytes or 0 for unit in units)


@dataclass(frozen=True, slots=True)
class MultiWorkUnit:
    """WorkUnits that one task reads; ``number`` is its place in the run's plan."""

    number: int
    work_units: tuple[WorkUnit, ...]

    @property
    def weight(self) -> int:
        return sum(unit.weight for unit in self.work_units)
