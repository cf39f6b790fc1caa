"""Alerts as users read them: each says since when something waits for a person, what it is, and what helps.

Alerts are kept nowhere. They are worked out from the database and from what this node hears of executors when somebody
asks, so that one is over when its cause is. Of flows and executors that the user may not read or use, none is told.
"""

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gobblin_assets.model.wording import count_of
from gobblin_assets.service.access import AccessRules, Action, User, may_use
from gobblin_assets.service.alert_facts import AlertedJob, AlertFacts, AlertStore
from gobblin_assets.service.executor_health import ExecutorHealth, HealthState
from gobblin_assets.service.executor_watch import UNTAKEN_AFTER_S
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.job_progress import MESSAGE_LENGTH_MAX
from gobblin_assets.service.placement import LOST, JobPlacement, describe_lost
from gobblin_assets.service.spec_executors.wired_executor import SpecExecutors
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.topology import is_way_of_log

ALERTS_MAX: Final = 100
"""Of each kind."""


class AlertKind(StrEnum):
    """The kind of an alert, in the order of the list."""

    WAY_AWAY = "WAY_AWAY"  # a log or another way to executors does not answer
    EXECUTOR_UNHEALTHY = "EXECUTOR_UNHEALTHY"  # one that has work is not heard
    JOB_WITHOUT_EXECUTOR = "JOB_WITHOUT_EXECUTOR"  # its executor takes no tickets, and no other one can do it
    TICKET_NOT_TAKEN = "TICKET_NOT_TAKEN"  # it was sent long ago, and nobody has begun it
    SCHEDULE_UNREADABLE = "SCHEDULE_UNREADABLE"  # this node can't say when the flow starts
    DELETION_FAILED = "DELETION_FAILED"  # a source keeps what it has for a job


@dataclass(frozen=True, slots=True)
class Alert:
    """``what`` and ``fix``: sentences. ``since``: aware, by the database's clock; None: not known."""

    kind: AlertKind
    since: dt.datetime | None
    what: str
    fix: str
    flow: FlowKey | None = None
    execution_id: int | None = None
    executor: str | None = None


class GuardedAlerts:
    """All alerts that users read. ``rules``: those of now."""

    def __init__(self, store: AlertStore, executors: SpecExecutors, rules: Callable[[], AccessRules]) -> None:
        self._store = store
        self._executors = executors
        self._rules = rules
        self._placement = JobPlacement(lambda: executors.limited.topology, executors.healths.get)

    def list_alerts(self, user: User) -> list[Alert]:
        """By kind. RetryableError: the database is away."""
        scope = self._rules().scope_of(user, Action.READ)
        facts = self._store.find_facts(
            scope, self._placement.list_well(), sent_before_s=UNTAKEN_AFTER_S, limit=ALERTS_MAX
        )
        return [
            *self._list_ways(user, facts),
            *self._list_executors(user, facts),
            *self._list_held(facts),
            *self._list_untaken(facts),
            *_list_overdue(facts),
            *_list_undeleted(facts),
        ]

    def _list_ways(self, user: User, facts: AlertFacts) -> Iterator[Alert]:
        specs = self._executors.limited.source.executors.values()
        usable = {each.executor.way for each in specs if may_use(each.executor.groups, user)}
        for way, unheard in sorted(self._executors.healths.list_unheard().items()):
            if way in usable:
                name = f"the log {way or 'of the service'}" if is_way_of_log(way) else f"the way {way}"
                yield Alert(
                    AlertKind.WAY_AWAY,
                    facts.now - dt.timedelta(seconds=unheard.since_s),
                    f"{name} does not answer: {unheard.said}",
                    unheard.hint or "Look after its server; what waits for it goes on by itself.",
                )

    def _list_executors(self, user: User, facts: AlertFacts) -> Iterator[Alert]:
        for name, spec in sorted(self._executors.limited.source.executors.items()):
            health = self._placement.find_health(name)
            count = facts.work.get(name, 0)
            if health.state is HealthState.UNHEALTHY and count and may_use(spec.executor.groups, user):
                yield Alert(
                    AlertKind.EXECUTOR_UNHEALTHY,
                    _since(facts, health),
                    f"the executor {name} is not heard, and has {count_of(count, 'job', 'jobs')}: {health.reason}",
                    f"Start it: gobblin-assets executor serve --name {name}, or its Dagster.",
                    executor=name,
                )

    def _list_held(self, facts: AlertFacts) -> Iterator[Alert]:
        for job in facts.held:
            health = self._placement.find_health(job.executor)
            if health.state in LOST and self._placement.find_other(job.executor, job.needs) is None:
                yield _about(
                    AlertKind.JOB_WITHOUT_EXECUTOR,
                    job,
                    f"the job {job.job_name} waits: {describe_lost(health)}",
                    f"Start the executor {job.executor}, or another one on its log that can do"
                    f" {job.needs.capability} at {', '.join(sorted(job.needs.nodes))}.",
                )

    def _list_untaken(self, facts: AlertFacts) -> Iterator[Alert]:
        for job in facts.untaken:
            if self._placement.find_health(job.executor).state not in LOST:
                yield _about(
                    AlertKind.TICKET_NOT_TAKEN,
                    job,
                    f"the executor {job.executor} has not begun the job {job.job_name}, whose ticket was sent more than"
                    f" {UNTAKEN_AFTER_S / 60:g} minutes ago",
                    f"Look whether {job.executor} runs, has free slots, and takes tickets over this way.",
                )


def _list_overdue(facts: AlertFacts) -> Iterator[Alert]:
    for flow in facts.overdue:
        try:
            FlowConfig.model_validate_json(flow.config).parse_schedule(flow.flow_id)
        except Exception as error:  # noqa: BLE001  whatever keeps the scheduler from reading it is told
            said = f"the schedule of the flow {flow.flow.group}/{flow.flow.name} can't be read by this node: {error}"
            yield Alert(
                AlertKind.SCHEDULE_UNREADABLE,
                flow.fire_at,
                said[:MESSAGE_LENGTH_MAX],
                "Upgrade the node, or change the flow's schedule or timezone.",
                flow=flow.flow,
            )


def _list_undeleted(facts: AlertFacts) -> Iterator[Alert]:
    for job in facts.undeleted:
        what = f"the job {job.job_name}: {job.message}"
        fix = "Remove it at the source by hand, such as the slot of its change log."
        yield _about(AlertKind.DELETION_FAILED, job, what, fix)


def _about(kind: AlertKind, job: AlertedJob, what: str, fix: str) -> Alert:
    return Alert(kind, job.since, what, fix, job.flow, job.execution_id, job.executor)


def _since(facts: AlertFacts, health: ExecutorHealth) -> dt.datetime | None:
    return None if health.heard_ago_s is None else facts.now - dt.timedelta(seconds=health.heard_ago_s)
