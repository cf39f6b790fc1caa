"""Schedules between the flows and their executions, as a port: what is due, what is fired, what is to be launched."""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from gobblin_assets.model.job_ticket import TicketSelection
from gobblin_assets.service.flow_store import Launch, StoredFlow
from gobblin_assets.service.slots import DueFlow, PlannedFire

LAUNCHER: Final = "launcher"
"""The name of the loop that launches: a notice with it tells all nodes that executions were fired."""


@dataclass(frozen=True, slots=True)
class PendingExecution:
    """An execution that is fired and not compiled, with its flow as it is now.

    ``message``: why it waits, as it was told last. ``is_asked_to_end``: nobody wants it any more.
    """

    execution_id: int
    flow: StoredFlow
    selection: TicketSelection
    request_id: uuid.UUID
    message: str
    is_asked_to_end: bool


class ScheduleStore(Protocol):
    """The store of schedules. Any number of nodes may do the same at once: what one has done, others find done."""

    def list_due(self, *, limit: int, without: Collection[tuple[uuid.UUID, int]] = ()) -> Sequence[DueFlow]:
        """Some of the flows that are due by the database's clock and wait longest.

        ``without``: flows at these versions.
        """
        ...

    def fire(self, fires: Sequence[PlannedFire]) -> int:
        """Write plans whose flows are still as they were seen, all in one statement; returns how many those were."""
        ...

    def begin_waiting(self, *, limit: int) -> int:
        """Begin the oldest slot that waits, of flows that none of their executions and no window keeps from it.

        Returns how many.
        """
        ...

    def begin_continuous(self, *, limit: int) -> int:
        """Begin flows that always run and don't: at first, as a new version, or after a failure; returns how many."""
        ...

    def take_pending(self, *, limit: int, full: Collection[str], hold_s: float) -> Sequence[PendingExecution]:
        """Executions that are to be compiled, the oldest first. Nobody else is given them for ``hold_s``.

        None that wait for one of the ``full`` executors, which are given no more now.
        """
        ...

    def count_ahead(self) -> dict[str, int]:
        """By executor, how many jobs it was given and has not begun."""
        ...

    def launch_pending(self, execution_id: int, launch: Launch, *, if_version: str) -> bool:
        """Give the execution its jobs. False: it has them, has ended, or the flow is no longer at ``if_version``.

        ConflictError: a job is bound otherwise.
        """
        ...

    def hold_pending(self, execution_id: int, message: str, *, wait_s: float, waits_for: str = "") -> None:
        """Try the execution again after ``wait_s``, or once the executor ``waits_for`` has begun some of its jobs.

        Those that wait for an executor are tried in the order in which they came, whatever was held since.
        """
        ...

    def end_pending(self, execution_id: int, message: str, *, is_failed: bool) -> None:
        """End an execution that has no jobs: as FAILED, or as CANCELLED."""
        ...

    def wake_pending(self) -> int:
        """Try all executions that wait now, as after a change of the topology; returns how many wait."""
        ...

    def forget_slots(self, *, kept_days: float) -> int:
        """Remove rows of slots that were accounted so many days ago, and don't wait; returns how many."""
        ...
