"""Finds the executor for a job's ticket: the one that it was planned for, or another one on the same log.

A ticket is moved only where another executor is heard, works with the log that the job's name is bound to, and can do
the job. So the job keeps its name, its binding and its options.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gobblin_assets.service.execution_store import JobNeeds
from gobblin_assets.service.executor_health import ExecutorHealth, HealthState
from gobblin_assets.service.topology import ExecutorSpec, Topology

LOST: Final = (HealthState.UNHEALTHY, HealthState.DRAINING)
"""Of an executor that takes no tickets. One that was never heard may take them: tickets wait for it."""

LEFT: Final = "it has left the topology"

FindHealth = Callable[[str], ExecutorHealth]
"""The health of the executor of a name."""


@dataclass(frozen=True, slots=True)
class JobPlacement:
    """The executors of now. ``topology``: with what each of them can do and reach. ``hear``: of one of them."""

    topology: Callable[[], Topology]
    hear: FindHealth

    def find_health(self, executor: str) -> ExecutorHealth:
        """One that has left the topology is UNHEALTHY, whatever its heartbeats say: nobody wants it to work."""
        if executor not in self.topology().executors:
            return ExecutorHealth(executor, HealthState.UNHEALTHY, reason=LEFT)
        return self.hear(executor)

    def find_given_max(self, executor: str) -> int:
        """So many jobs that it has not begun the executor is given now."""
        return self.find_health(executor).given_max

    def list_well(self) -> list[str]:
        """The names of executors that take tickets. All others are lost."""
        return [name for name in self.topology().executors if self.find_health(name).state not in LOST]

    def find_other(self, executor: str, needs: JobNeeds) -> ExecutorSpec | None:
        """The cheapest other executor that can do the job now. None: there is none on this log."""
        others = (spec.executor for spec in self.topology().executors.values() if spec.executor.name != executor)
        return min(
            (each for each in others if self._can_do(each, needs)),
            key=lambda each: (each.cost, each.name),
            default=None,
        )

    def _can_do(self, executor: ExecutorSpec, needs: JobNeeds) -> bool:
        health = self.find_health(executor.name)
        return (
            health.state is HealthState.HEALTHY
            and health.log_id == needs.log_id
            and needs.capability in executor.capabilities
            and needs.nodes <= executor.nodes
            and (not executor.groups or bool(executor.groups & needs.groups))
        )


def describe_wire(executor: str, other: str) -> str:
    """What a job waits for whose ticket only the executor's end of a wire can withdraw, as a sentence."""
    return (
        f"it goes to {other} once its ticket is withdrawn, and the executor {executor} is not heard: if it is gone,"
        f" start `executor wire --name {executor}` on its log"
    )


def describe_lost(health: ExecutorHealth) -> str:
    """Why a job waits, as a sentence."""
    what = "is not heard" if health.state is HealthState.UNHEALTHY else "drains"
    if health.reason == LEFT:
        what = "has left the topology"
    return f"the executor {health.executor} {what}, and no other one on its log is heard that can do the job"
