"""Slots of schedules, and the plan of a fire: what becomes of all slots of a flow that are due. Pure.

Each slot is accounted once. A slot that came while nobody fired it was missed: the flow's ``catch_up`` says whether it
is run, is left to a later one, or is skipped. However many were missed, a fire has few rows: what is treated alike is a
range, and what is too much for one fire stays due for the next.
"""

import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gobblin_assets.service.flow_config import CatchUp, FlowConfig, Overlap
from gobblin_assets.service.schedules import Schedule

SLOTS_AT_ONCE_MAX: Final = 2_000
"""One fire looks at so many slots of a flow; with ``catch_up: all``, at so many beside those that it may run."""

ROWS_AT_ONCE_MAX: Final = 500
"""One fire makes so many executions or waiting slots of a flow."""

ON_TIME_S: Final = 60.0
"""A slot that is fired within this time was not missed."""

WAS_OPEN: Final = "an execution of the flow was open"


class FlowSlotState(StrEnum):
    """What became of a slot: an execution, a place in the queue, a later slot's execution, or nothing."""

    WAITING = "WAITING"
    RUN = "RUN"
    COALESCED = "COALESCED"
    SKIPPED = "SKIPPED"


@dataclass(frozen=True, slots=True)
class FlowSlot:
    """What became of a slot, or of a range of ``count`` slots up to ``until``. Times are aware."""

    at: dt.datetime
    until: dt.datetime
    count: int
    state: FlowSlotState
    reason: str
    execution_id: int | None


@dataclass(frozen=True, slots=True)
class DueFlow:
    """A flow whose slot ``fire_at`` has come, as one look at the database saw it. Times are aware.

    ``looked_at``: by the database's clock. ``config``: as stored. ``paused_at``, ``resumed_at``: of its last pause.
    """

    flow_id: uuid.UUID
    version: int
    fire_at: dt.datetime
    looked_at: dt.datetime
    config: str
    paused_at: dt.datetime | None = None
    resumed_at: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class PlannedSlot:
    """A slot, or a range of ``count`` slots up to ``until``.

    ``run_by``: the slot whose execution is its own. While none can be begun, it waits or is skipped as that one is.
    """

    at: dt.datetime
    until: dt.datetime
    count: int
    state: FlowSlotState
    reason: str = ""
    run_by: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class PlannedFire:
    """What is to be written if the flow is still as the look saw it. No ``slots``: only ``due_at`` is moved.

    ``next_at``: the first slot that is not accounted then; None: the schedule has no more. ``due_at``: when the flow is
    looked at next. ``if_open``: what becomes of a slot that can't begin since an execution is open. ``may_overlap``: it
    begins all the same. ``replaces_waiting``: slots that wait are left to this one; else the newest ``waiting_max`` of
    them stay.
    """

    flow: DueFlow
    slots: tuple[PlannedSlot, ...]
    next_at: dt.datetime | None
    due_at: dt.datetime | None
    if_open: FlowSlotState = FlowSlotState.SKIPPED
    may_overlap: bool = False
    replaces_waiting: bool = True
    waiting_max: int = 0
    missing_max: int = 1


def plan_fire(flow: DueFlow, config: FlowConfig, schedule: Schedule) -> PlannedFire:
    """What becomes of the slots that are due."""
    now = flow.looked_at
    if (end := config.find_window_end(now)) is not None:
        return PlannedFire(flow, (), flow.fire_at, end)
    takes_all = config.catch_up is CatchUp.ALL
    limit = SLOTS_AT_ONCE_MAX + (config.catch_up_max if takes_all else 0)
    due, following = _list_due(schedule, flow.fire_at, now, limit)
    is_all = following is None or following > now
    if takes_all:
        slots, done = _catch_up_all(flow, config, due, is_all=is_all)
    else:
        slots, done = _catch_up_latest(flow, config, due, is_all=is_all), len(due)
    next_at = due[done] if done < len(due) else following
    runs = sum(slot.run_by == slot.at for slot in slots)
    overlaps = config.overlap is Overlap.ALLOW
    # As many as may overlap begin now.
    queues = config.overlap is Overlap.QUEUE or (takes_all and (overlaps or len(due) > 1))
    return PlannedFire(
        flow,
        slots,
        next_at,
        find_due_at(config, next_at),
        if_open=FlowSlotState.WAITING if queues else FlowSlotState.SKIPPED,
        may_overlap=overlaps,
        replaces_waiting=not takes_all,
        waiting_max=max(0, config.catch_up_max - runs),
        missing_max=config.missing_max,
    )


def find_due_at(config: FlowConfig, slot: dt.datetime | None) -> dt.datetime | None:
    """When a flow is to be looked at for this slot: behind the maintenance windows that it is in."""
    return None if slot is None else config.find_window_end(slot) or slot


def account_missed(schedule: Schedule, first: dt.datetime, now: dt.datetime, reason: str) -> PlannedSlot:
    """The slots from ``first`` to ``now`` as one range that is skipped: of a schedule that ends.

    Of more than some thousands the count is a lower bound, and the range ends at ``now``.
    """
    due, following = _list_due(schedule, first, now, SLOTS_AT_ONCE_MAX)
    is_all = following is None or following > now
    said = reason if is_all else f"{reason}; these are more than {SLOTS_AT_ONCE_MAX:,} slots"
    return PlannedSlot(first, due[-1] if is_all else now, len(due), FlowSlotState.SKIPPED, said)


def _list_due(
    schedule: Schedule, first: dt.datetime, now: dt.datetime, limit: int
) -> tuple[list[dt.datetime], dt.datetime | None]:
    """At most ``limit`` slots from ``first`` to ``now``, and the one behind them; None: the schedule has no more."""
    following = schedule.next_after(first)
    if following is None or following > now:
        return [first], following
    due = [first, *schedule.list_slots(first, now, limit - 1)]
    return due, schedule.next_after(due[-1])


def _catch_up_latest(
    flow: DueFlow, config: FlowConfig, due: Sequence[dt.datetime], *, is_all: bool
) -> tuple[PlannedSlot, ...]:
    """The latest slot is run, with ``none`` only if it is on time. One fire sees the latest, or it sees no end."""
    on_time = (flow.looked_at - due[-1]).total_seconds() <= ON_TIME_S
    runs = is_all and (on_time or config.catch_up is CatchUp.LATEST)
    missed = due[:-1] if runs else due
    run_by = due[-1] if runs else None
    slots = []
    if missed:
        state = FlowSlotState.COALESCED if config.catch_up is CatchUp.LATEST else FlowSlotState.SKIPPED
        later = "a later slot is run for it" if state is FlowSlotState.COALESCED else "catch_up is none"
        said = f"{_say_why(flow, config, missed[0])}; {later}"
        slots.append(_make_range(missed, state, said, run_by if state is FlowSlotState.COALESCED else None))
    if run_by is not None:
        slots.append(PlannedSlot(run_by, run_by, 1, FlowSlotState.RUN, run_by=run_by))
    return tuple(slots)


def _catch_up_all(
    flow: DueFlow, config: FlowConfig, due: Sequence[dt.datetime], *, is_all: bool
) -> tuple[tuple[PlannedSlot, ...], int]:
    """The newest ``catch_up_max`` slots get an execution each: the first one now, the others wait.

    With it, how many of ``due`` these are: while newer slots are not seen, the newest that are seen stay due.
    """
    too_old = max(0, len(due) - config.catch_up_max)
    runs = due[too_old : too_old + ROWS_AT_ONCE_MAX] if is_all else ()
    slots = []
    if too_old:
        said = f"{_say_why(flow, config, due[0])}; catch_up_max is {config.catch_up_max}"
        slots.append(_make_range(due[:too_old], FlowSlotState.SKIPPED, said, None))
    begins_all = config.overlap is Overlap.ALLOW
    for number, at in enumerate(runs):
        if number == 0 or begins_all:
            slots.append(PlannedSlot(at, at, 1, FlowSlotState.RUN, run_by=at))
        else:
            slots.append(PlannedSlot(at, at, 1, FlowSlotState.WAITING, "an earlier slot is run first"))
    return tuple(slots), too_old + len(runs)


def _make_range(
    slots: Sequence[dt.datetime], state: FlowSlotState, reason: str, run_by: dt.datetime | None
) -> PlannedSlot:
    return PlannedSlot(slots[0], slots[-1], len(slots), state, reason, run_by)


def _say_why(flow: DueFlow, config: FlowConfig, slot: dt.datetime) -> str:
    """Why a slot was missed; of several, the first one."""
    if flow.paused_at is not None and flow.resumed_at is not None and flow.paused_at <= slot < flow.resumed_at:
        return "the flow was paused"
    if config.find_window_end(slot) is not None:
        return "a maintenance window was open"
    return "the service was away"
