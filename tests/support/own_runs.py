"""Runs that an executor begins by itself, as Dagster does of assets, and nodes that make executions of them."""

import random
import time
import uuid
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Engine, text

from gobblin_assets import failpoints
from gobblin_assets.db.engine import open_external
from gobblin_assets.model.job_ticket import JobTicket, SentTicket, TicketId, TicketSelection, TicketVerb
from gobblin_assets.service.adoption import RunAdoption
from gobblin_assets.service.postgres.adoptions import PostgresAdoptionStore
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.statuses import ENDED, FlowStatus
from gobblin_assets.state.tickets import AttemptEnd, Claim, TicketReportKind
from tests.support.flow_world import EXECUTOR, KEY, ROWS, FlowWorld, make_config, run_to_the_end

DAGSTER = "dagster"
"""As the code location ``flows`` writes it into its tickets."""

LISTED_MAX = 99
LOOKS_MAX = 5
_LOOK_S = 0.02
_ENDS = (AttemptEnd.COMPLETE, AttemptEnd.COMPLETE, AttemptEnd.FAILED, AttemptEnd.CANCELLED)
_WATERMARKS = {"id": ("0", str(ROWS))}

_ACCOUNTS = text("""
    SELECT count(e.execution_id) AS executions,
           coalesce(max(e.status), 'none') AS status,
           (SELECT r.details ->> 'state' FROM gobblin.ticket_report r
             WHERE r.ticket_id = t.ticket_id AND r.kind = 'ended'
             ORDER BY r.attempt DESC LIMIT 1) AS state
      FROM gobblin.job_ticket t
      LEFT JOIN gobblin_service.flow_execution e ON e.request_id = t.ticket_id
     WHERE t.own_number IS NOT NULL
     GROUP BY t.ticket_id
""")


def make_adoption(world: FlowWorld) -> RunAdoption:
    return RunAdoption(PostgresAdoptionStore(world.engine), world.logs, lambda: world.compiler.topology)


def begin_own(
    world: FlowWorld, ticket: JobTicket, asked_by: str = DAGSTER, *, ticket_id: uuid.UUID | None = None
) -> tuple[Claim | None, SentTicket]:
    """As a run of the flow's assets does. Without a claim: the ticket is there already, and may not be begun."""
    selection = TicketSelection(datasets=("orders",), partitions=("2026-11-01",))
    own = TicketId(ticket_id or uuid.uuid4())
    sent = SentTicket(own, TicketVerb.ADD, EXECUTOR, ticket, selection, asked_by=asked_by)
    return world.executor.tickets.send_claimed(sent, f"host dagster:{own}", ttl_s=60), sent


def list_adopted(world: FlowWorld, key: FlowKey) -> Sequence[FlowStatus]:
    """The executions of the flow that Dagster began."""
    executions = world.store.list_executions(key, after=None, limit=LISTED_MAX)
    return [each for each in executions if each.asked_by == DAGSTER]


def run_assets_to_the_end(world: FlowWorld, name: str) -> FlowStatus:
    """One process' life: the flow runs once, then its assets do, and nodes of the service see it.

    What a process died with, the executor's JobMonitor goes on with, if its ticket is in the log; else it is begun.
    """
    key = FlowKey(KEY.group, name)
    first = run_to_the_end(world, name, make_config("lake", name=name))
    jobs = world.executor.tickets.load_jobs([TicketId(first.jobs[0].ticket_id)])
    ticket = next(iter(jobs.values()))
    own = TicketId(uuid.uuid5(uuid.NAMESPACE_URL, name))
    claim, _sent = begin_own(world, ticket, ticket_id=own)
    nodes = [make_adoption(world), make_adoption(world)]
    nodes[0].look()
    if claim is not None:
        _work(world, claim)
    for _ in range(LOOKS_MAX):
        for node in nodes:
            node.look()
        world.monitor.look()
        if adopted := [each for each in list_adopted(world, key) if each.status in ENDED]:
            return adopted[0]
    raise AssertionError(f"{name} has no execution that ended: {list_accounts(world.engine)}")


def _work(world: FlowWorld, claim: Claim, end: AttemptEnd = AttemptEnd.COMPLETE) -> None:
    job_name = world.executor.tickets.get_claimed(claim).get_job_ticket().job_name
    world.executor.report(claim, TicketReportKind.RUNNING, {"dagster_run_id": "run"})
    world.monitor.look()
    if end is AttemptEnd.COMPLETE:
        # As `run_to_the_end` does: whoever goes on finds the publication of who died.
        made = uuid.uuid5(uuid.NAMESPACE_URL, job_name)
        world.executor.publish(claim, rows=ROWS, watermarks=_WATERMARKS, sequence_id=made)
    details: dict[str, Any] = {} if end is AttemptEnd.COMPLETE else {"message": "it broke"}
    world.executor.tickets.end(claim, end, details)


def live_as_dagster(url: str, ticket: JobTicket, seed: int) -> None:
    """Begin own runs and work on them, and on what other processes left, until somebody ends this process."""
    world, chance = FlowWorld(open_external(url)), random.Random(seed)
    while True:
        claim, _sent = begin_own(world, ticket)
        if chance.random() < 0.5 and (left := world.executor.claim()) is not None:
            _work(world, left[0])
        if claim is not None:
            _work(world, claim, chance.choice(_ENDS))


def live_as_adopter(url: str, failpoint: str) -> None:
    """Adopt and read reports, as a node of the service does, until this process dies at the failpoint or is ended."""
    failpoints.arm(failpoint)
    world = FlowWorld(open_external(url))
    adoption = make_adoption(world)
    while True:
        adoption.look()
        world.monitor.look()
        time.sleep(_LOOK_S)


def settle_own(world: FlowWorld) -> None:
    """End what dead processes left, as the last node and executor."""
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE gobblin.ticket_claim SET expires_at = clock_timestamp() - interval '1 s'"))
    while (left := world.executor.claim()) is not None:
        _work(world, left[0])
    make_adoption(world).look()
    world.monitor.look()


def list_accounts(engine: Engine) -> list[tuple[int, str, str]]:
    """Of each own ticket: how many executions it has, their status, and the end that its last attempt reported."""
    with engine.connect() as connection:
        return [(row.executions, row.status, row.state) for row in connection.execute(_ACCOUNTS)]
