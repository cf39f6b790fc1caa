"""Launches what was fired: it compiles the flow as it is now, and gives the execution its jobs.

Any node takes executions that nobody else compiles, the oldest first. Who dies with one leaves it to others after
seconds. An executor gets no more than it can begin soon: what is for it waits, and what is for others goes on.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from gobblin_assets.errors import ConflictError, GobblinError, RejectedError
from gobblin_assets.service.flow_compiling import FlowCompiling
from gobblin_assets.service.flow_store import FlowState, FlowStore
from gobblin_assets.service.open_writes import OpenWrites
from gobblin_assets.service.schedule_store import PendingExecution, ScheduleStore

EXECUTIONS_AT_ONCE_MAX: Final = 20
HOLD_S: Final = 5.0
"""Nobody else compiles an execution that was taken for this time."""

RETRY_S: Final = 10.0
TOPOLOGY_RETRY_S: Final = 60.0
"""What no executor can run is also tried when the topology changes."""

_CHANGED_RETRY_S: Final = 0.5

_log = logging.getLogger(__name__)


class Launcher:
    """The launcher of one node. ``find_ahead_max``: so many jobs an executor is given that it has not begun."""

    def __init__(
        self,
        schedules: ScheduleStore,
        flows: FlowStore,
        compiling: FlowCompiling,
        writes: OpenWrites,
        find_ahead_max: Callable[[str], int],
    ) -> None:
        self._schedules = schedules
        self._flows = flows
        self._compiling = compiling
        self._writes = writes
        self._find_ahead_max = find_ahead_max

    def look(self) -> int:
        """Launch what can be launched now; returns how many executions. RetryableError if the store is away."""
        launched = 0
        while True:
            ahead = Counter(self._schedules.count_ahead())
            full = [executor for executor in ahead if self._is_full(executor, ahead)]
            page = self._schedules.take_pending(limit=EXECUTIONS_AT_ONCE_MAX, full=full, hold_s=HOLD_S)
            if not page:
                return launched
            for pending in page:
                with self._writes.open():
                    launched += self._try(pending, ahead)

    def _is_full(self, executor: str, ahead: Counter[str]) -> bool:
        return ahead[executor] >= self._find_ahead_max(executor)

    def wake(self) -> None:
        """Try all that waits, as after a change of the topology."""
        self._schedules.wake_pending()

    def _try(self, pending: PendingExecution, ahead: Counter[str]) -> bool:
        """One flow's fault is not that of all others: its execution waits, and is FAILED if it was refused for good."""
        try:
            return self._launch(pending, ahead)
        except RejectedError as error:
            self._schedules.end_pending(pending.execution_id, f"{error} Change the flow.", is_failed=True)
            _log.warning("an execution of the flow %s is FAILED: %s", pending.flow.spec.uri, error)
        except GobblinError as error:
            self._hold(pending, str(error), RETRY_S)
        except Exception:  # noqa: BLE001  a compiler of another package raises what it likes
            if self._hold(pending, "the compiler failed; the service's log has the rest", RETRY_S):
                _log.exception("the flow %s can't be launched", pending.flow.spec.uri)
        return False

    def _launch(self, pending: PendingExecution, ahead: Counter[str]) -> bool:
        flow = pending.flow
        if pending.is_asked_to_end:
            self._schedules.end_pending(pending.execution_id, "the flow was deleted", is_failed=False)
            return False
        if flow.state is FlowState.PAUSED:
            # A resume tries it at once.
            self._hold(pending, "it begins when the flow is resumed", TOPOLOGY_RETRY_S)
            return False
        compiled = self._compiling.compile_stored(flow, flow.owner.groups)
        try:
            launch = self._compiling.plan_launch(flow.owner.name, compiled, pending.selection)
        except ConflictError as error:
            self._schedules.end_pending(pending.execution_id, str(error), is_failed=True)
            _log.warning("an execution of the flow %s is FAILED: %s", flow.spec.uri, error)
            return False
        if launch is None:
            if compiled.reasons != flow.reasons:
                self._flows.set_reasons(flow.flow_id, compiled.reasons, if_version=flow.spec.version)
            self._hold(pending, "; ".join(compiled.reasons), TOPOLOGY_RETRY_S)
            return False
        first = Counter(job.executor for job in launch.jobs if not job.after)
        full = next((each for each in first if self._is_full(each, ahead)), None)
        if full is not None:
            said = f"the executor {full} has {ahead[full]} jobs that it has not begun"
            self._schedules.hold_pending(pending.execution_id, said, wait_s=0.0, waits_for=full)
            return False
        launch = replace(launch, request_id=pending.request_id)
        try:
            is_launched = self._schedules.launch_pending(pending.execution_id, launch, if_version=flow.spec.version)
        except ConflictError as error:
            # Somebody changed the flow or its jobs meanwhile. The next try sees that, and says what is left.
            self._schedules.hold_pending(pending.execution_id, str(error), wait_s=_CHANGED_RETRY_S)
            return False
        if is_launched:
            ahead += first
        else:
            self._schedules.hold_pending(pending.execution_id, pending.message, wait_s=_CHANGED_RETRY_S)
        return is_launched

    def _hold(self, pending: PendingExecution, message: str, wait_s: float) -> bool:
        """True: it is news."""
        self._schedules.hold_pending(pending.execution_id, message, wait_s=wait_s)
        is_news = message != pending.message
        if is_news:
            _log.info("an execution of the flow %s waits: %s", pending.flow.spec.uri, message)
        return is_news
