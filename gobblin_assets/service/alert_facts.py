"""Facts that alerts are worked out from, and the port by which they are found."""

import datetime as dt
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gobblin_assets.service.access import FlowScope
from gobblin_assets.service.execution_store import JobNeeds
from gobblin_assets.service.specs import FlowKey


@dataclass(frozen=True, slots=True)
class AlertedJob:
    """A job of an execution that an alert may be about."""

    flow: FlowKey
    execution_id: int
    job_name: str
    executor: str
    since: dt.datetime | None
    message: str
    needs: JobNeeds


@dataclass(frozen=True, slots=True)
class OverdueFlow:
    """A flow whose next start is past. ``config``: as JSON."""

    flow_id: uuid.UUID
    flow: FlowKey
    config: str
    fire_at: dt.datetime


@dataclass(frozen=True, slots=True)
class AlertFacts:
    """What the database knows. ``now``: its clock; ``work``: by executor, the jobs that it was sent and has not ended.

    ``held``: open jobs of the executors that were asked for. ``untaken``: jobs whose tickets nobody has begun.
    ``undeleted``: jobs whose deletion failed.
    """

    now: dt.datetime
    work: Mapping[str, int]
    held: Sequence[AlertedJob]
    untaken: Sequence[AlertedJob]
    undeleted: Sequence[AlertedJob]
    overdue: Sequence[OverdueFlow]


class AlertStore(Protocol):
    """The store of what alerts are worked out from."""

    def find_facts(self, scope: FlowScope, well: Collection[str], *, sent_before_s: float, limit: int) -> AlertFacts:
        """Of flows of the scope, so many of each list,"""
        ...
