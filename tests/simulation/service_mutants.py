"""Mutants of the service: of its own code, and of what its stores and logs do. Histories notice each."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final

from gobblin_assets.model.job_ticket import TicketId
from gobblin_assets.service import flow_jobs, job_progress, slots
from gobblin_assets.service.away_logs import AwayLogs
from gobblin_assets.service.execution_store import JobNeeds, SendTurn, UnsentTicket
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.flow_jobs import FlowJobNames
from gobblin_assets.service.job_progress import ExecutionOutcome, decide_execution
from gobblin_assets.service.job_retries import NextTicket, decide_next
from gobblin_assets.service.monitor import Monitor
from gobblin_assets.service.orchestrator import Orchestrator
from gobblin_assets.service.slots import FlowSlotState
from gobblin_assets.service.spec_executors.simple_kafka import SimpleKafkaSpecExecutor
from gobblin_assets.service.statuses import ENDED, ExecutionStatus
from gobblin_assets.state.tickets import AttemptEnd, TicketReportKind
from tests.simulation import service_stores, service_tables
from tests.simulation.mutant import Change, Mutant, patched
from tests.simulation.service_flows import FakeFlowStore
from tests.simulation.service_log import FakeLog
from tests.simulation.service_stores import FakeExecutionStore, FakeScheduleStore
from tests.simulation.service_tables import ServiceTables

_BEGIN_SEND: Final = FakeExecutionStore.begin_send
_FIRE: Final = FakeScheduleStore._fire
_LATEST: Final = slots._catch_up_latest
_SETTLE: Final = ServiceTables.settle


def _together(*changes: Change) -> Change:
    @contextmanager
    def change() -> Iterator[None]:
        with ExitStack() as stack:
            for each in changes:
                stack.enter_context(each())
            yield

    return change


def _marks_before_it_sends(self: FakeExecutionStore, job: Any, ticket_id: Any, **given: Any) -> SendTurn:
    turn = _BEGIN_SEND(self, job, ticket_id, **given)
    if turn is SendTurn.NOW:
        self.mark_sent(job, ticket_id)
    return turn


def _counts_no_inbox(self: FakeExecutionStore, job: Any, ticket_id: Any, **given: Any) -> SendTurn:
    return _BEGIN_SEND(self, job, ticket_id, **{**given, "waiting_max": None})


def _fires_and_stays(self: FakeScheduleStore, fire: Any) -> bool:
    flow = self._tables.flows[fire.flow.flow_id]
    seen = flow.next_fire_at, flow.due_at
    done = _FIRE(self, fire)
    flow.next_fire_at, flow.due_at = seen
    return done


def _forgets_missed(*given: Any, **named: Any) -> Any:
    return tuple(slot for slot in _LATEST(*given, **named) if slot.state is FlowSlotState.RUN)


def _ends_with_its_first_job(current: Any, jobs: Any, **named: Any) -> ExecutionOutcome:
    outcome = decide_execution(current, jobs, **named)
    failed = any(job.status is ExecutionStatus.FAILED for job in jobs)
    return ExecutionOutcome(ExecutionStatus.FAILED, "", {}) if failed and current not in ENDED else outcome


def _sends_again_what_is_complete(ended: Any, **given: Any) -> NextTicket | None:
    if ended.status is ExecutionStatus.COMPLETE:
        return NextTicket("again")
    return decide_next(ended, **given)


def _same_id(request_id: uuid.UUID, job_name: str, _attempt: int) -> TicketId:
    return TicketId(uuid.uuid5(request_id, job_name))


def _ends_idle_or_not(self: FakeLog, row: Any, message: str, **_more: object) -> bool:
    self._end(row, len(row.claims), AttemptEnd.CANCELLED, {"message": message})
    return True


def _claims_what_lives(self: FakeLog, row: Any) -> bool:
    return (
        bool(row.claims)
        and row.claims[-1].ended_at is None
        and row.claims[-1].expires_at > self.now()
        and row.is_worker
    )


def _needs_its_own_log(self: FakeExecutionStore, job: Any) -> JobNeeds:
    log_id = uuid.uuid5(uuid.NAMESPACE_URL, f"log {job.log}")
    return JobNeeds(log_id, job.ticket.capability, frozenset(), frozenset())  # type: ignore[arg-type]  # a log's id


def _lists_all_reports(self: FakeLog, ticket_ids: Any, _after: Any, *, limit: int) -> Any:
    return _LIST_REPORTS(self, ticket_ids, {}, limit=limit)


_LIST_REPORTS: Final = FakeLog.list_reports


def _opens_any_number(self: ServiceTables, flow: Any, fire_at: Any, selection: Any, *, may_overlap: bool) -> Any:
    made = _FIRE_EXECUTION(self, flow, fire_at, selection, may_overlap=True)
    if made is not None:
        made.may_overlap = may_overlap
    return made


_FIRE_EXECUTION: Final = ServiceTables.fire_execution


def _names_none_before(self: FakeExecutionStore, job: Any) -> UnsentTicket:
    return replace(_UNSENT(self, job), earlier=())


_UNSENT: Final = FakeExecutionStore._unsent


def _settles_the_first(self: ServiceTables, execution: Any) -> None:
    """Only jobs that fail decide of an execution."""
    if any(job.status is not ExecutionStatus.COMPLETE for job in execution.jobs):
        _SETTLE(self, execution)


def _ends_the_ticket_alone(self: FakeLog, row: Any, message: str, *, ends_live: bool = False) -> bool:
    if not (ends_live and self.is_live(row)):
        return _END_IDLE(self, row, message)
    self._append(row, len(row.claims), TicketReportKind.ENDED, {"state": AttemptEnd.CANCELLED.value})
    row.ended_as = AttemptEnd.CANCELLED
    return True


_END_IDLE: Final = FakeLog._end_idle


def _replans_names_alone(self: FakeFlowStore, flow_id: uuid.UUID, *, generation: int) -> None:
    with patched(ServiceTables, "request_deletions", lambda *_: None)():
        _REPLAN(self, flow_id, generation=generation)


_REPLAN: Final = FakeFlowStore.replan


SENT_ONCE: Final = Mutant(
    "a ticket over a wire is sent once", patched(SimpleKafkaSpecExecutor, "_resend", lambda _self: None)
)
"""Noticed where a topic is made anew."""

IN_SERVICE_HISTORIES: Final = (
    Mutant("a ticket is marked before it is sent", patched(FakeExecutionStore, "begin_send", _marks_before_it_sends)),
    Mutant("an inbox has no bound", patched(FakeExecutionStore, "begin_send", _counts_no_inbox)),
    Mutant("whoever looks may send", patched(Orchestrator, "_may_send", lambda _self, _unsent: True)),
    Mutant("a job is sent before its parents have ended", patched(FakeExecutionStore, "_has_parents", lambda *_: True)),
    Mutant("a flow that is fired stays due", patched(FakeScheduleStore, "_fire", _fires_and_stays)),
    Mutant("slots that were missed are forgotten", patched(slots, "_catch_up_latest", _forgets_missed)),
    Mutant("slots that wait are never begun", patched(FakeScheduleStore, "begin_waiting", lambda *_a, **_n: 0)),
    Mutant("a deleted flow's slots are left", patched(FakeFlowStore, "_account_due", lambda *_: None)),
    Mutant("an execution ends with a job", patched(service_tables, "decide_execution", _ends_with_its_first_job)),
    Mutant("what is complete is sent again", patched(service_stores, "decide_next", _sends_again_what_is_complete)),
    Mutant(
        "each ticket of a job has one id",
        _together(
            patched(service_tables, "make_ticket_id", _same_id),
            patched(FakeExecutionStore, "_unsent", _names_none_before),
        ),
    ),
    Mutant("a claim that lives is withdrawn", patched(FakeLog, "_end_idle", _ends_idle_or_not)),
    Mutant("a lost executor's worker keeps its attempt", patched(FakeLog, "_end_idle", _ends_the_ticket_alone)),
    Mutant("a replan leaves what sources keep", patched(FakeFlowStore, "replan", _replans_names_alone)),
    Mutant("flows are fired within windows", patched(FlowConfig, "find_window_end", lambda *_: None)),
    Mutant("a claim that lives is given to others", patched(FakeLog, "is_live", _claims_what_lives)),
    Mutant(
        "an attempt that died ends its job",
        patched(job_progress, "_OF_END", {**job_progress._OF_END, AttemptEnd.DIED: ExecutionStatus.FAILED}),
    ),
    Mutant("what was not reported is never told", patched(FakeLog, "list_unreported", lambda *_: [])),
    Mutant(
        "a report counts whenever it is read",
        _together(
            patched(FakeLog, "list_reports", _lists_all_reports),
            patched(job_progress, "_add_number", lambda *_: ()),
        ),
    ),
    Mutant("a log that was away stays away", patched(AwayLogs, "_ask", lambda *_: None)),
    Mutant("ends of deletions are not read", patched(Monitor, "_read_deletions", lambda *_: None)),
    Mutant("any number of executions is open", patched(ServiceTables, "fire_execution", _opens_any_number)),
    Mutant("complete jobs end no execution", patched(ServiceTables, "settle", _settles_the_first)),
    Mutant(
        "a job's name is bound to no log",
        _together(
            patched(FlowJobNames, "list_bound_hops", lambda _self: {}),
            patched(flow_jobs, "check_binding", lambda *_: None),
            patched(service_tables, "check_binding", lambda *_: None),
            patched(FakeExecutionStore, "_needs", _needs_its_own_log),
        ),
    ),
)
