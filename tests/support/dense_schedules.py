"""Nodes that fire flows whose slots are a fraction of a second apart, each node a process of its own."""

import datetime as dt
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Engine, text

from gobblin_assets.db.engine import open_external
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.postgres.schedules import PostgresScheduleStore
from gobblin_assets.service.scheduler import Scheduler
from gobblin_assets.service.schedules import Schedule
from tests.support.flow_world import FlowWorld

STEP: Final = dt.timedelta(seconds=0.25)
_BEGIN: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_LOOK_S: Final = 0.05
_WAIT_S_MAX: Final = 150.0


@dataclass(frozen=True, slots=True)
class DenseSchedule(Schedule):
    """A slot at each ``STEP``."""

    def next_after(self, moment: dt.datetime) -> dt.datetime | None:
        return _BEGIN + ((moment - _BEGIN) // STEP + 1) * STEP


def find_dense(_config: FlowConfig, _flow_id: uuid.UUID) -> Schedule:
    return DenseSchedule("", "UTC", cron="* * * * *")


def align_flows(engine: Engine) -> dt.datetime:
    """All flows are due from the next slot on; returns it."""
    with engine.begin() as connection:
        now = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
        first = find_dense(FlowConfig(flow_group="", flow_name=""), uuid.UUID(int=0)).next_after(now)
        assert first is not None
        connection.execute(text("UPDATE gobblin_service.flow SET next_fire_at = :at, due_at = :at"), {"at": first})
    return first


def live_as_node(url: str, launches: bool) -> None:
    """Fire, and launch and run what was fired, until somebody ends this process."""
    engine = open_external(url)
    world = FlowWorld(engine)
    world.scheduler = Scheduler(PostgresScheduleStore(engine), find_dense)
    while True:
        world.scheduler.look()
        if launches:
            world.launcher.look()
            world.play(rows=1)
        time.sleep(_LOOK_S)


def settle(engine: Engine) -> None:
    """Fire and run the rest as the last node; nothing is due any more."""
    world = FlowWorld(engine)
    world.scheduler = Scheduler(PostgresScheduleStore(engine), find_dense)
    world.scheduler.look()
    with engine.begin() as connection:
        connection.execute(text("UPDATE gobblin_service.flow SET due_at = due_at + interval '1 hour'"))
        connection.execute(text("UPDATE gobblin.ticket_claim SET expires_at = clock_timestamp()"))
    end = time.monotonic() + _WAIT_S_MAX
    while _count_open(engine) and time.monotonic() < end:
        world.launcher.wake()
        world.launcher.look()
        world.play(rows=1)
        world.scheduler.look()


def _count_open(engine: Engine) -> int:
    query = """
        SELECT (SELECT count(*) FROM gobblin_service.flow_execution WHERE ended_at IS NULL)
             + (SELECT count(*) FROM gobblin_service.flow_slot WHERE state = 'WAITING')
    """
    with engine.connect() as connection:
        return int(connection.execute(text(query)).scalar_one())


def find_account_faults(
    flow: Any, slots: Sequence[Any], first: dt.datetime | None, step: dt.timedelta
) -> Iterator[str]:
    """What is wrong with the slots of a flow, from ``first`` to its next one: each is to be accounted once."""
    at = first
    for slot in slots:
        if slot.slot_at != at:
            yield f"{flow.flow_name}: expected the slot {at}, found {slot.slot_at}"
        if slot.until_at != slot.slot_at + (slot.slot_count - 1) * step:
            yield f"{flow.flow_name}: a range of {slot.slot_count} from {slot.slot_at} to {slot.until_at}"
        at = slot.until_at + step
    if at != flow.next_fire_at:
        yield f"{flow.flow_name}: accounted to {at}, and next is {flow.next_fire_at}"


def find_faults(engine: Engine, first: dt.datetime) -> list[str]:
    """What is wrong with the slots of all flows from ``first`` on: each is to be accounted once, and run once if so."""
    with engine.connect() as connection:
        flows = connection.execute(
            text("SELECT flow_id, flow_name, next_fire_at FROM gobblin_service.flow WHERE deleted_at IS NULL")
        ).all()
        slots = connection.execute(
            text("SELECT *, count AS slot_count FROM gobblin_service.flow_slot ORDER BY flow_id, slot_at")
        ).all()
        executions = connection.execute(
            text("SELECT flow_id, fire_at, execution_id, status FROM gobblin_service.flow_execution")
        ).all()
    faults = []
    for flow in flows:
        faults += find_account_faults(flow, [each for each in slots if each.flow_id == flow.flow_id], first, STEP)
    ran = {(each.flow_id, each.slot_at, each.execution_id) for each in slots if each.state == "RUN"}
    made = {(each.flow_id, each.fire_at, each.execution_id) for each in executions}
    if ran != made:
        faults.append(f"slots and executions differ: {sorted(map(str, ran ^ made))[:5]}")
    faults += [f"{each.execution_id} is {each.status}" for each in executions if each.status != "COMPLETE"]
    faults += [f"{each.flow_id} waits at {each.slot_at}" for each in slots if each.state == "WAITING"]
    return faults
