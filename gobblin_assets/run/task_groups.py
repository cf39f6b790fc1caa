"""The tasks of a MultiWorkUnit: one for each slice, and which of them are attempted by one read. Pure."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.work_unit import MultiWorkUnit, WorkUnit, WorkUnitId, sum_bytes, sum_rows
from gobblin_assets.run.slices import Slice
from gobblin_assets.run.task import TaskOrder

# Datasets that are read together fail together, and their records may all be in memory.
ROWS_MAX: Final = 200_000
BYTES_MAX: Final = 64 * 1024 * 1024
# The first publications, and the run's first figures, would wait for all of them.
ORDERS_MAX: Final = 1_000


def make_orders(multi: MultiWorkUnit, owners: Mapping[WorkUnitId, Slice]) -> list[TaskOrder]:
    """One order for each slice that has WorkUnits in this MultiWorkUnit."""
    by_sequence: dict[SequenceId, list[WorkUnit]] = {}
    for unit in multi.work_units:
        if unit.id in owners:
            by_sequence.setdefault(owners[unit.id].sequence_id, []).append(unit)
    return [TaskOrder(owners[units[0].id], multi.number, tuple(units)) for units in by_sequence.values()]


def group_orders(orders: Sequence[TaskOrder]) -> list[list[TaskOrder]]:
    """The orders of one MultiWorkUnit, grouped by plans that share. A group has each name at most once."""
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
        return (
            _name_of(order) not in self.names
            and len(self.orders) < ORDERS_MAX
            and self.row_count + sum_rows(order.units) <= ROWS_MAX
            and self.size_bytes + sum_bytes(order.units) <= BYTES_MAX
        )

    def add(self, order: TaskOrder) -> None:
        self.orders.append(order)
        self.names.add(_name_of(order))
        self.row_count += sum_rows(order.units)
        self.size_bytes += sum_bytes(order.units)


def _name_of(order: TaskOrder) -> str:
    return "" if order.slice.plan.sharing is None else order.slice.plan.sharing.name
