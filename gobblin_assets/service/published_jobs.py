"""Jobs of flows by what they publish, and their past executions; and the port by which they are found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gobblin_assets.service.access import FlowScope
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.statuses import JobStatus


@dataclass(frozen=True, slots=True)
class PublishingJob:
    """A job of a flow that was launched. ``executor`` and ``log``: those of its last execution, by their names.

    ``is_current``: False for a name of before a replan, whose data stay.
    """

    flow: FlowKey
    job_name: str
    node: str
    source_node: str
    template_uri: str
    executor: str
    log: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class PastExecution:
    """An execution of a job, with the execution of its flow."""

    execution_id: int
    flow_version: str
    job: JobStatus


class PublishingJobs(Protocol):
    """The store of them. Jobs of flows that were deleted are none."""

    def list_publishing(
        self, scope: FlowScope, *, flow: FlowKey | None, node: str | None, begin: str, limit: int
    ) -> Sequence[PublishingJob]:
        """Those of the scope, by their names in the order of code points. ``begin``: names from this one on."""
        ...

    def find_publishing(self, job_name: str) -> PublishingJob | None: ...

    def find_logs_of(self, execution_id: int) -> Mapping[int, str]:
        """The names of the logs of an execution's jobs, by their numbers."""
        ...

    def list_past(self, job_names: Sequence[str], *, limit: int) -> Mapping[str, Sequence[PastExecution]]:
        """The latest executions of each of these jobs, the latest first."""
        ...

    def page_past(self, job_name: str, *, after: int | None, limit: int) -> Sequence[PastExecution]:
        """The latest first. ``after``: the id of the last execution that the caller has."""
        ...

    def list_sent(self, executor: str, *, limit: int) -> Sequence[PastExecution]:
        """Executions of jobs that were sent to the executor and have not ended, the oldest first."""
        ...
