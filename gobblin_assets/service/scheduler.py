"""Fires flows whose time has come. There is no master: each node fires whatever is due.

A look reads flows that are due and the database's time, and plans what becomes of their slots. One statement writes the
plans of many flows, each under the condition that its flow's version and next slot are as the look saw them. A flow of
which another node was faster is that node's fire. Whoever dies between leaves the flow due.
"""

import datetime as dt
import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from gobblin_assets.errors import GobblinError, OutcomeUnknownError, RetryableError
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.schedule_store import ScheduleStore
from gobblin_assets.service.schedules import Schedule
from gobblin_assets.service.slots import DueFlow, PlannedFire, plan_fire

FLOWS_AT_ONCE_MAX: Final = 250
FIRES_AT_ONCE_MAX: Final = 250
PAGES_AT_ONCE_MAX: Final = 200
"""Of flows that are due: the next look goes on."""

SLOT_ROWS_AT_ONCE_MAX: Final = 2_000
"""Of one statement."""

_UNREADABLE_MAX: Final = 5_000
"""A node leaves so many flows that it can't read to others; of more, it tries the oldest ones again."""

_REFUSED_WAIT: Final = dt.timedelta(seconds=60)
_UNREADABLE_WAIT_S: Final = 60.0

_log = logging.getLogger(__name__)

FindSchedule = Callable[[FlowConfig, uuid.UUID], Schedule | None]


class Scheduler:
    """The firing of one node. ``find_schedule``: the slots of a flow, by its config and id.

    A flow that this node can't read stays due: nodes that can read it fire it in time.
    """

    def __init__(self, store: ScheduleStore, find_schedule: FindSchedule = FlowConfig.parse_schedule) -> None:
        self._store = store
        self._find_schedule = find_schedule
        # Flows that can't be planned: told once for each version.
        self._told: set[tuple[uuid.UUID, int]] = set()
        # Those that are not looked at, by when this node tries them again.
        self._unreadable: dict[tuple[uuid.UUID, int], float] = {}

    def look(self) -> int:
        """Fire all that is due now, and begin what waited; returns how many executions or ranges of slots were written.

        Raises RetryableError if the store is away: then nothing fires.
        """
        done = 0
        for _ in range(PAGES_AT_ONCE_MAX):
            due = self._store.list_due(limit=FLOWS_AT_ONCE_MAX, without=self._list_unreadable())
            plans = [plan for flow in due if (plan := self._plan(flow)) is not None]
            fired = sum(self._fire(batch) for batch in _batch(plans))
            done += fired
            if not fired and (len(plans) == len(due) or len(self._unreadable) > _UNREADABLE_MAX):
                break
        done += self._store.begin_waiting(limit=FLOWS_AT_ONCE_MAX)
        return done + self._store.begin_continuous(limit=FLOWS_AT_ONCE_MAX)

    def _list_unreadable(self) -> Collection[tuple[uuid.UUID, int]]:
        now = time.monotonic()
        latest = list(self._unreadable.items())[-_UNREADABLE_MAX:]
        self._unreadable = {flow: until for flow, until in latest if until > now}
        return self._unreadable.keys()

    def _plan(self, flow: DueFlow) -> PlannedFire | None:
        """One flow's fault is not that of all others: None, and this node looks at it again later."""
        try:
            config = FlowConfig.model_validate_json(flow.config)
            schedule = self._find_schedule(config, flow.flow_id)
            if schedule is not None:
                return plan_fire(flow, config, schedule)
        except Exception as error:  # noqa: BLE001  a config of another release, a zone that this machine lacks
            if (flow.flow_id, flow.version) not in self._told:
                told = not isinstance(error, GobblinError)
                _log.warning("the flow %s can't be fired by this node: %s", flow.flow_id, error, exc_info=told)
            self._told.add((flow.flow_id, flow.version))
        self._unreadable[flow.flow_id, flow.version] = time.monotonic() + _UNREADABLE_WAIT_S
        return None

    def _fire(self, batch: Sequence[PlannedFire]) -> int:
        try:
            return self._store.fire(batch)
        except (RetryableError, OutcomeUnknownError):
            raise
        except Exception:  # noqa: BLE001  what one flow has the database refuse, it refuses of all others
            if len(batch) == 1:
                _log.exception("the flow %s can't be fired", batch[0].flow.flow_id)
                return self._store.fire([_put_off(batch[0].flow)]) if batch[0].slots else 0
            _log.warning("%d flows can't be fired together, and are fired one by one", len(batch))
            return sum(self._fire([each]) for each in batch)


def _put_off(flow: DueFlow) -> PlannedFire:
    return PlannedFire(flow, (), flow.fire_at, flow.looked_at + _REFUSED_WAIT)


def _batch(fires: Sequence[PlannedFire]) -> Iterator[list[PlannedFire]]:
    batch: list[PlannedFire] = []
    rows = 0
    for fire in fires:
        if batch and (len(batch) == FIRES_AT_ONCE_MAX or rows + len(fire.slots) > SLOT_ROWS_AT_ONCE_MAX):
            yield batch
            batch, rows = [], 0
        batch.append(fire)
        rows += len(fire.slots)
    if batch:
        yield batch
