"""Schedules on Postgres: what is due is fired once, and every slot is accounted, whatever was missed or is open."""

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import Engine, text

from gobblin_assets.db import schema
from gobblin_assets.service.flow_store import StoredFlow
from gobblin_assets.service.postgres.history import SERVICE_HISTORY
from gobblin_assets.service.statuses import ExecutionStatus
from tests.support.flow_world import KEY, FlowWorld, make_config

MINUTELY = "* * * * *"


@pytest.fixture
def world(engine: Engine) -> FlowWorld:
    schema.upgrade(engine, history=SERVICE_HISTORY)
    return FlowWorld(engine)


def make_flow(world: FlowWorld, schedule: str = MINUTELY, **options: Any) -> StoredFlow:
    return world.flows.create(world.person, make_config(schedule=schedule, **options))


def go_back(world: FlowWorld, minutes: int) -> None:
    """As if nobody had fired for so long: the next slot is the one before so many minutes."""
    query = "UPDATE gobblin_service.flow SET next_fire_at = :at, due_at = :at"
    with world.engine.begin() as connection:
        now = connection.execute(text("SELECT date_trunc('minute', now())")).scalar_one()
        connection.execute(text(query), {"at": now - dt.timedelta(minutes=minutes)})


def list_slots(world: FlowWorld) -> Sequence[tuple[str, int, bool]]:
    """State, count, and whether an execution is named, in the order of time."""
    query = "SELECT state, count, execution_id IS NOT NULL FROM gobblin_service.flow_slot ORDER BY slot_at"
    with world.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def test_a_flow_that_is_due_is_fired_compiled_and_run(world: FlowWorld) -> None:
    made = make_flow(world)
    assert made.next_fire_at is not None
    assert world.scheduler.look() == 0, "its time has not come"
    go_back(world, 0)
    assert world.scheduler.look() == 1
    assert list_slots(world) == [("RUN", 1, True)]
    assert world.flows.get_status(KEY).status is ExecutionStatus.PENDING
    assert world.launcher.look() == 1
    assert world.flows.get_status(KEY).status is ExecutionStatus.COMPILED
    assert world.play(rows=1) == 1
    assert world.flows.get_status(KEY).status is ExecutionStatus.COMPLETE
    assert world.scheduler.look() == 0
