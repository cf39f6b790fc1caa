"""Questions to executors: what a node has, and what the jobs of a plan would read or copy now.

The service holds no password, so an executor answers. A question is a ticket of the verb PROBE in the executor's log,
and nothing else keeps it: any process of the service finds it there, for the user who asked.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.model.job_ticket import (
    ProbeKind,
    ProbeQuestion,
    SentTicket,
    TicketId,
    TicketSelection,
    TicketShape,
    TicketVerb,
    sent_ticket_from_json,
    sent_ticket_to_json,
)
from gobblin_assets.service.flow_store import SpecNotFoundError
from gobblin_assets.service.job_plan import FlowPlan, PlannedJob
from gobblin_assets.service.ticket_logs import TicketLogs, TicketWire
from gobblin_assets.service.topology import DAGSTER, PROCESS, DataNode, ExecutorSpec, NodeKind, Topology
from gobblin_assets.state.tickets import PROBE_LIFE_S, FoundProbe, describe_unanswered

ANSWER_WAIT_S_MAX: Final = 10.0
WAITING_AT_ONCE_MAX: Final = 10
"""So many requests wait for answers; a further one is told at once that there is none yet."""

TABLES_ASKED_MAX: Final = 20
"""Of one question."""

DRY_RUN_JOBS_MAX: Final = 12

_LOOK_EVERY_S: Final = 0.1
_SILENT_S: Final = 2.0
"""An executor that is there takes a question sooner."""

_OWN_LOG: Final = ""

_log = logging.getLogger(__name__)

_SUGGESTED: Final[Mapping[NodeKind, tuple[ProbeKind, str]]] = {
    NodeKind.DATABASE: (ProbeKind.TABLES, "jdbc"),
    NodeKind.CHANGE_LOG: (ProbeKind.TABLES, "postgres_log"),
    NodeKind.CLUSTER: (ProbeKind.TOPICS, "kafka"),
    NodeKind.FILES: (ProbeKind.PATHS, ""),
}
"""What a node of the kind has, and the kind of source by which an executor asks it."""


class ProbeState(StrEnum):
    """FAILED: what the place refused, or nobody answered."""

    WAITING = "WAITING"
    ANSWERED = "ANSWERED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Probe:
    """A question as it is now. ``answer``: plain JSON, by kind. ``message``: why there is none, as a sentence.

    ``field``, ``hint``, ``family``: of the error that the place answered with.
    """

    probe_id: TicketId
    kind: ProbeKind
    executor: str
    state: ProbeState
    age_s: float = 0.0
    answer: Mapping[str, Any] | None = None
    message: str = ""
    field: str = ""
    hint: str = ""
    family: str | None = None


@dataclass(frozen=True, slots=True)
class DryRunJob:
    """A job of a plan and its question. ``probe`` None: ``note`` says why nobody is asked."""

    job: PlannedJob
    probe: Probe | None
    note: str = ""


class Questioner(Protocol):
    """The user who asks, as far as questions are concerned."""

    @property
    def name(self) -> str: ...

    @property
    def groups(self) -> frozenset[str]: ...


@dataclass(slots=True)
class Probes:
    """Sends questions and reads their answers. ``topology``: that of now."""

    topology: Callable[[], Topology]
    logs: TicketLogs
    _sent: dict[TicketId, tuple[str, float]] = field(default_factory=dict)
    _waiting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(WAITING_AT_ONCE_MAX))

    def suggest(
        self, user: Questioner, node_name: str, *, tables: Sequence[str] = (), below: str = "", wait_s: float = 0
    ) -> Probe:
        """Ask what the node has; with ``tables``, what columns these have; with ``below``, what a directory has.

        Raises:
            SpecNotFoundError: there is no node of this name that the user may use.
            RejectedError: such a node has nothing to ask for, or no executor reaches it.
            RetryableError: too many questions wait for the executor.

        """
        node = self.topology().nodes.get(node_name)
        if node is None or not _may_use(node.groups, user):
            raise SpecNotFoundError(f"there is no node {node_name[:200]!a}", field="node", hint="Look at the topology.")
        question = _make_question(user, node, tables, below)
        executor = self._choose_executor(user, node)
        sent = SentTicket(_new_id(), TicketVerb.PROBE, executor.name, question=question)
        return self._send(executor, sent, wait_s)

    def plan_dry_run(
        self, user: Questioner, plan: FlowPlan, selection: TicketSelection, *, wait_s: float = 0
    ) -> list[DryRunJob]:
        """Ask for each run of the plan what it would read or copy now. Workers are not asked."""
        question = ProbeQuestion(ProbeKind.DRY_RUN, user.name)
        asked = [self._ask_job(each, question, selection) for each in plan.jobs]
        until = time.monotonic() + wait_s
        return [
            each
            if each.probe is None
            else DryRunJob(each.job, self.get(user, each.probe.probe_id, wait_s=until - time.monotonic()), each.note)
            for each in asked
        ]

    def get(self, user: Questioner, probe_id: TicketId, *, wait_s: float = 0) -> Probe:
        """SpecNotFoundError: this user has asked no such question."""
        store, found = self._find(user, probe_id)
        if found.end is None and wait_s > 0:
            found = self._await(store, probe_id, found, min(wait_s, ANSWER_WAIT_S_MAX))
        if found.end is None and found.age_s >= PROBE_LIFE_S:
            _give_up(store, probe_id, is_claimed=found.is_claimed)
            found = store.find_probe(probe_id) or found
        if found.end is not None:
            self._sent.pop(probe_id, None)
        return _show(probe_id, found)

    def end_late(self) -> None:
        """End the questions of this process that nobody has answered in time."""
        now_s = time.monotonic()
        for probe_id, (log, sent_at_s) in list(self._sent.items()):
            if now_s - sent_at_s <= PROBE_LIFE_S:
                continue
            try:
                store = self.logs.get_store(log)
                found = store.find_probe(probe_id)
                if found is not None and found.end is None:
                    _give_up(store, probe_id, is_claimed=found.is_claimed)
            except GobblinError as error:
                _log.warning("the question %s stays as it is: %s", probe_id, error)
            # What lives on is ended by its executor.
            self._sent.pop(probe_id, None)

    def _ask_job(self, job: PlannedJob, question: ProbeQuestion, selection: TicketSelection) -> DryRunJob:
        if job.ticket.shape is TicketShape.WORKER:
            return DryRunJob(job, None, "a worker follows its source until it is ended: there is no run to show")
        if job.number >= DRY_RUN_JOBS_MAX:
            return DryRunJob(job, None, f"only the first {DRY_RUN_JOBS_MAX} jobs are asked for")
        found = self.topology().executors.get(job.executor)
        if found is None:
            return DryRunJob(job, None, f"the executor {job.executor} has left the topology")
        executor = found.executor
        sent = SentTicket(_new_id(), TicketVerb.PROBE, executor.name, job.ticket, selection, question=question)
        note = "it reads what the jobs before it have published by now" if job.after else ""
        return DryRunJob(job, self._send(executor, sent, 0), note)

    def _choose_executor(self, user: Questioner, node: DataNode) -> ExecutorSpec:
        """The cheapest of those that the user may use and that are well; of equal ones, the first by name."""
        topology = self.topology()
        found = [each.executor for each in topology.executors.values()]
        able = [
            each
            for each in found
            if node.name in each.nodes and each.technology in (PROCESS, DAGSTER) and _may_use(each.groups, user)
        ]
        if not able:
            raise RejectedError(
                f"no executor that you may use reaches {node.name}, and the service has no password",
                field="node",
                hint="Write the names yourself, or ask whoever keeps the topology for an executor.",
            )
        return min(able, key=lambda each: (not topology.get_state(each.name).is_well, each.cost, each.name))

    def _send(self, executor: ExecutorSpec, sent: SentTicket, wait_s: float) -> Probe:
        # What no ticket may have is refused here: behind it, nobody could read the question.
        sent_ticket_from_json(sent_ticket_to_json(sent))
        store = self.logs.get_store(executor.way)
        store.send(sent)
        self._sent[sent.ticket_id] = executor.way, time.monotonic()
        asked = FoundProbe(sent, age_s=0.0, is_claimed=False, end=None)
        return _show(sent.ticket_id, self._await(store, sent.ticket_id, asked, min(wait_s, ANSWER_WAIT_S_MAX)))

    def _await(self, store: TicketWire, probe_id: TicketId, found: FoundProbe, wait_s: float) -> FoundProbe:
        """The question once it is answered, else as it is after so long."""
        if wait_s <= 0 or not self._waiting.acquire(blocking=False):
            return found
        try:
            until = time.monotonic() + wait_s
            while found.end is None and time.monotonic() < until:
                time.sleep(_LOOK_EVERY_S)
                found = store.find_probe(probe_id) or found
            return found
        finally:
            self._waiting.release()

    def _find(self, user: Questioner, probe_id: TicketId) -> tuple[TicketWire, FoundProbe]:
        """In whichever log it is. A log that is away is no reason, unless no other one has it."""
        away: GobblinError | None = None
        for log in self._list_logs(probe_id):
            try:
                store = self.logs.get_store(log)
                found = store.find_probe(probe_id)
            except GobblinError as error:
                away = error
                continue
            if found is not None and found.sent.question is not None and found.sent.question.asked_by == user.name:
                return store, found
        if away is not None:
            raise away
        raise SpecNotFoundError(f"you have asked no question {probe_id}", field="probe", hint="Ask it again.")

    def _list_logs(self, probe_id: TicketId) -> Iterator[str]:
        known = self._sent.get(probe_id)
        if known is not None:
            yield known[0]
            return
        yield from sorted({_OWN_LOG, *(each.executor.way for each in self.topology().executors.values())})


def _new_id() -> TicketId:
    return TicketId(uuid.uuid4())


def _may_use(groups: frozenset[str], user: Questioner) -> bool:
    return not groups or bool(groups & user.groups)


def _make_question(user: Questioner, node: DataNode, tables: Sequence[str], below: str) -> ProbeQuestion:
    if node.kind not in _SUGGESTED:
        raise RejectedError(
            f"{node.name} ({node.kind}) has nothing that flows begin with",
            field="node",
            hint=f"Ask a node of one of the kinds {', '.join(sorted(_SUGGESTED))}.",
        )
    kind, source_type = _SUGGESTED[node.kind]
    if tables and node.kind is not NodeKind.DATABASE:
        raise RejectedError(
            f"{node.name} ({node.kind}) tells no columns", field="tables", hint="Ask a database for those of tables."
        )
    if below and kind is not ProbeKind.PATHS:
        raise RejectedError(f"{node.name} ({node.kind}) has no directories", field="below", hint="Leave it out.")
    if kind is ProbeKind.PATHS:
        return ProbeQuestion(kind, user.name, root=node.root, names=(below,) if below else ())
    source = {"type": source_type, "connection": node.connection}
    return ProbeQuestion(ProbeKind.COLUMNS if tables else kind, user.name, source=source, names=tuple(tables))


def _give_up(store: TicketWire, probe_id: TicketId, *, is_claimed: bool) -> None:
    said = describe_unanswered(is_claimed=is_claimed)
    store.give_up(probe_id, {"family": None, "message": said, "hint": "", "field": ""})


def _show(probe_id: TicketId, found: FoundProbe) -> Probe:
    question, executor, end = found.sent.question, found.sent.executor, found.end
    kind = ProbeKind.DRY_RUN if question is None else question.kind
    runs = f"Look whether `gobblin-assets executor serve --name {executor}` runs."
    if end is None:
        said, hint = f"the executor {executor} is answering", ""
        if not found.is_claimed:
            said = f"no executor of the name {executor} has taken the question yet"
            hint = runs if found.age_s >= _SILENT_S else ""
        return Probe(probe_id, kind, executor, ProbeState.WAITING, found.age_s, message=said, hint=hint)
    if "answer" in end:
        return Probe(probe_id, kind, executor, ProbeState.ANSWERED, found.age_s, answer=end["answer"])
    return Probe(
        *(probe_id, kind, executor, ProbeState.FAILED, found.age_s, None),
        message=str(end.get("message") or ""),
        field=str(end.get("field") or ""),
        hint=str(end.get("hint") or ("" if end.get("family") else runs)),
        family=end.get("family"),
    )


def list_answers(probes: Sequence[Probe], kind: ProbeKind) -> Iterator[Mapping[str, Any]]:
    """The answers to questions of the kind, of those that have one."""
    yield from (each.answer for each in probes if each.kind is kind and each.answer is not None)
