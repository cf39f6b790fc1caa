"""The tasks of a MultiWorkUnit: one for each slice, and which of them are attempted by one read. Pure."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.ingest.slices import Slice
from gobblin_assets.ingest.task import TaskOrder
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.work_unit import MultiWorkUnit, WorkUnit, WorkUnitId

# What is read together fails together, and may lie in memory.
ROWS_MAX: Final = 200_000
BYTES_MAX: Final = 64 * 1024 * 1024


def make_orders(multi: MultiWorkUnit, owners: Mapping[WorkUnitId, Slice]) -> list[TaskOrder]:
    """One order for each slice that has WorkUnits in this MultiWorkUnit."""
    shares: dict[SequenceId, list[WorkUnit]] = {}
    for unit in multi.work_units:
        if unit.id in owners:
            shares.setdefault(owners[unit.id].sequence_id, []).append(unit)
    return [TaskOrder(owners[share[0].id], multi.number, tuple(share)) for share in shares.values()]


def group_orders(orders: Sequence[TaskOrder]) -> list[list[TaskOrder]]:
    """The orders of one MultiWorkUnit, those together whose plans share. Of one name there is one in a group."""
    groups: list[_Together] = []
    open_groups: dict[Hashable, _Together] = {}
    for order in orders:
        sharing = order.slice.plan.sharing
        group = None if sharing is None else open_groups.get(sharing.key)
        if group is None or not group.has_room_for(order):
            groups.append(group := _Together())
            if sharing is not None:
                open_groups[sharing.key] = group
        group.add(order)
    return [group.orders for group in groups]


@dataclass(slots=True)
class _Together:
    orders: list[TaskOrder] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    row_count: int = 0
    size_bytes: int = 0

    def has_room_for(self, order: TaskOrder) -> bool:
        rows, size_bytes = _estimate(order)
        return (
            _name_of(order) not in self.names
            and self.row_count + rows <= ROWS_MAX
            and self.size_bytes + size_bytes <= BYTES_MAX
        )

    def add(self, order: TaskOrder) -> None:
        rows, size_bytes = _estimate(order)
        self.orders.append(order)
        self.names.add(_name_of(order))
        self.row_count += rows
        self.size_bytes += size_bytes


def _name_of(order: TaskOrder) -> str:
    return "" if order.slice.plan.sharing is None else order.slice.plan.sharing.name


def _estimate(order: TaskOrder) -> tuple[int, int]:
    """Rows and bytes."""
    rows = sum(unit.estimated_row_count or 0 for unit in order.units)
    return rows, sum(unit.estimated_bytes or 0 for unit in order.units)
