"""Schedules in the transactions that change flows: what is due next, and what becomes of slots that nobody fired."""

import datetime as dt
import uuid
from collections.abc import Sequence
from typing import Any, Final

from pydantic import ValidationError
from sqlalchemy import Connection, Row, text

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.schedules import Schedule
from gobblin_assets.service.slots import FlowSlot, FlowSlotState, PlannedSlot, account_missed, find_due_at

SCHEDULING_COLUMNS: Final = "CAST(v.config - 'parameters' AS text) AS scheduling"
"""Of a version of a flow: its config as far as schedules need it."""

_SCHEDULED = text(f"""
    SELECT f.next_fire_at, f.is_continuous, clock_timestamp() AS now, {SCHEDULING_COLUMNS},
           (SELECT max(s.until_at) FROM gobblin_service.flow_slot s WHERE s.flow_id = f.flow_id) AS accounted_until
      FROM gobblin_service.flow f
      JOIN gobblin_service.flow_version v ON v.flow_id = f.flow_id AND v.version = :version
     WHERE f.flow_id = :flow_id
""")

_SET_SCHEDULE = text("""
    UPDATE gobblin_service.flow
       SET next_fire_at = :next_fire_at, due_at = :due_at, is_continuous = :is_continuous
     WHERE flow_id = :flow_id
""")

_INSERT_SLOT = text("""
    INSERT INTO gobblin_service.flow_slot (flow_id, slot_at, until_at, count, state, reason)
    VALUES (:flow_id, :at, :until, :count, :state, :reason)
        ON CONFLICT DO NOTHING
""")

_END_WAITING = text("""
    UPDATE gobblin_service.flow_slot SET state = 'SKIPPED', reason = :reason
     WHERE flow_id = :flow_id AND state = 'WAITING'
""")


_SLOTS = text("""
    SELECT slot_at, until_at, count AS slot_count, state, reason, execution_id FROM gobblin_service.flow_slot
     WHERE flow_id = :flow_id ORDER BY slot_at DESC LIMIT :limit
""")


def list_slots(connection: Connection, flow_id: uuid.UUID, limit: int) -> Sequence[FlowSlot]:
    rows = connection.execute(_SLOTS, {"flow_id": flow_id, "limit": limit}).all()
    return [
        FlowSlot(row.slot_at, row.until_at, row.slot_count, FlowSlotState(row.state), row.reason, row.execution_id)
        for row in rows
    ]


def schedule_flow(connection: Connection, flow_id: uuid.UUID, version: int, config: FlowConfig) -> None:
    """Give a flow, whose row is locked, the next slot of its new version. ``version``: the one before; of a new flow 1.

    A schedule that stays as it is goes on where it was. What was due by another one, and not fired, is skipped.
    """
    before = connection.execute(_SCHEDULED, {"flow_id": flow_id, "version": version}).one()
    schedule = config.parse_schedule(flow_id)
    if schedule is None and before.next_fire_at is None and not before.is_continuous:
        return
    next_at = before.next_fire_at
    if next_at is None or _read_schedule(before, flow_id) != schedule:
        _account_due(connection, flow_id, before, "the schedule was changed before it was fired")
        behind = max(each for each in (before.now, before.accounted_until) if each is not None)
        next_at = None if schedule is None else schedule.next_after(behind)
    arguments = {
        "flow_id": flow_id,
        "next_fire_at": next_at,
        "due_at": find_due_at(config, next_at),
        "is_continuous": schedule is not None and schedule.is_continuous,
    }
    connection.execute(_SET_SCHEDULE, arguments)


def end_schedule(connection: Connection, flow_id: uuid.UUID, version: int) -> None:
    """Account all slots of a flow that is deleted: what was due is skipped, and so is what waits."""
    before = connection.execute(_SCHEDULED, {"flow_id": flow_id, "version": version}).one()
    reason = "the flow was deleted"
    _account_due(connection, flow_id, before, reason)
    connection.execute(_END_WAITING, {"flow_id": flow_id, "reason": reason})
    nothing = {"next_fire_at": None, "due_at": None, "is_continuous": False}
    connection.execute(_SET_SCHEDULE, {"flow_id": flow_id, **nothing})


def _account_due(connection: Connection, flow_id: uuid.UUID, before: Row[Any], reason: str) -> None:
    first: dt.datetime | None = before.next_fire_at
    if first is None or first > before.now:
        return
    schedule = _read_schedule(before, flow_id)
    slot = PlannedSlot(first, first, 1, FlowSlotState.SKIPPED, reason)
    if schedule is not None:
        slot = account_missed(schedule, first, before.now, reason)
    connection.execute(_INSERT_SLOT, {"flow_id": flow_id, **slot_arguments(slot)})


def _read_schedule(before: Row[Any], flow_id: uuid.UUID) -> Schedule | None:
    """None: the flow had none, or one that this machine can't read; it can be changed and deleted all the same."""
    try:
        return FlowConfig.model_validate_json(before.scheduling).parse_schedule(flow_id)
    except (RejectedError, ValidationError):
        return None


def slot_arguments(slot: PlannedSlot) -> dict[str, object]:
    return {
        "at": slot.at,
        "until": slot.until,
        "count": slot.count,
        "state": slot.state.value,
        "reason": slot.reason,
    }
