"""Which tasks are done by one read."""

import uuid

from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.state import DatasetId, DatasetState, LaneId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.work_unit import WorkUnit, WorkUnitId
from gobblin_assets.run.job_kind import Sharing, UnitPlan
from gobblin_assets.run.slices import Slice
from gobblin_assets.run.task import BYTES_MAX, ORDERS_MAX, ROWS_MAX, TaskOrder, group_orders
from gobblin_assets.state.leases import Lease

URN, ID = DatasetUrn("t"), DatasetId(LaneId(1))
STATE = DatasetState(ID, JobName("j"), URN, 0)


def order_of(number: int, *, rows: int = 1, size: int = 1, key: str | None = "here", name: str = "") -> TaskOrder:
    partition = AssetPartition(str(number))
    unit = WorkUnit(
        *(WorkUnitId(uuid.UUID(int=number)), URN, partition, "t", 0, None),
        estimated_row_count=rows,
        estimated_bytes=size,
    )
    plan = UnitPlan(
        *(URN, partition, Mode.APPEND),
        replaces=False,
        is_snapshot=False,
        work_units=(unit,),
        sharing=None if key is None else Sharing(key, name or str(number)),
    )
    slice_ = Slice(URN, partition, STATE, Lease(ID, 1), plan, SequenceId(uuid.UUID(int=number)))
    return TaskOrder(slice_, 0, (unit,))


def sizes_of(orders: list[TaskOrder]) -> list[int]:
    groups = group_orders(orders)
    assert [each for group in groups for each in group] == orders
    return [len(group) for group in groups]


def test_orders_are_read_together_as_far_as_a_bound_allows() -> None:
    assert sizes_of([order_of(number) for number in range(2 * ORDERS_MAX + 1)]) == [ORDERS_MAX, ORDERS_MAX, 1]
    assert sizes_of([order_of(number, rows=ROWS_MAX // 2) for number in range(5)]) == [2, 2, 1]
    assert sizes_of([order_of(number, size=BYTES_MAX) for number in range(2)]) == [1, 1]


def test_orders_that_do_not_share_or_have_one_name_are_apart() -> None:
    assert sizes_of([order_of(number, key=None) for number in range(3)]) == [1, 1, 1]
    assert sizes_of([order_of(0, name="same"), order_of(1, name="same")]) == [1, 1]
