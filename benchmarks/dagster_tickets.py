"""Tickets of a service that Dagster runs: how soon one is claimed, and how long many small ones take."""

import random
import time
import uuid
from contextlib import AbstractContextManager
from typing import Final

import dagster as dg
from sqlalchemy import text

from benchmarks.dagster_dev import DagsterDev, open_dagster
from benchmarks.increment_phases import SPLIT
from benchmarks.tables import Options, Samples, Table, verdict
from benchmarks.world import World, connection_of, describe_events, new_job
from gobblin_assets.dagster.runner_location import EXECUTOR_VARIABLE, PACK_VARIABLE
from gobblin_assets.dagster.ticket_sensors import INTERVAL_S, PACK_MAX_DEFAULT, TICKET_TAG
from gobblin_assets.model.job_ticket import JobTicket, SentTicket, TicketId, TicketVerb
from gobblin_assets.run.postgres import open_stores

CLAIMED_S_MAX, OWN_S_MAX, TOGETHER_S_MAX = 12.0, 2.0, 120.0

_EXECUTOR: Final = "bench"
_LOCATION: Final = "gobblin_assets.dagster.runner_location"
_ROWS: Final = 1_000
_TICKETS, _TICKETS_QUICK = 100, 10
_WAIT_S_MAX: Final = 900.0
_LOOK_S: Final = 0.2

_ASKED, _STARTED, _OWN, _CLAIMED, _ENDED = (
    "sent until the sensor has asked for a run",
    "Dagster: until the run's step begins",
    "the step until the claim",
    "sent until claimed",
    "sent until COMPLETE",
)

_MOMENTS: Final = text("""
    SELECT extract(epoch FROM t.sent_at)::float8 AS sent, extract(epoch FROM c.claimed_at)::float8 AS claimed,
           extract(epoch FROM t.ended_at)::float8 AS ended, t.ended_as
      FROM gobblin.job_ticket t JOIN gobblin.ticket_claim c USING (ticket_id)
     WHERE t.ticket_id = :ticket_id AND c.attempt = 1
""")
_OPEN: Final = text("SELECT count(*) FROM gobblin.job_ticket WHERE executor = :executor AND ended_at IS NULL")
_NOT_COMPLETE: Final = text(
    "SELECT count(*) FROM gobblin.job_ticket WHERE executor = :executor AND ended_as <> 'COMPLETE'"
)


def measure(world: World, options: Options) -> list[Table]:
    world.make_events(_ROWS)
    count = _TICKETS_QUICK if options.quick else _TICKETS
    alone, together = Samples(), Samples()
    for name, pack_max in {f"{PACK_MAX_DEFAULT} in a run": PACK_MAX_DEFAULT, "each in a run of its own": 1}.items():
        with _open_executor(world, pack_max) as dev:
            if pack_max > 1:
                _measure_single(world, dev, 2 * options.runs, alone)
            for _ in range(options.runs if pack_max > 1 else 1):
                together.add(name, _run_together(world, count))
    claimed, own = alone.median(_CLAIMED), alone.median(_OWN)
    packed_s = together.median(f"{PACK_MAX_DEFAULT} in a run")
    return [
        Table(
            "A ticket that Dagster runs, from its sending to its end",
            ("phase", "median", "min", "max"),
            tuple(alone.row(name) for name in alone.by_name),
            (
                verdict("sent until claimed", claimed, CLAIMED_S_MAX),
                verdict("of it ours: the step until the claim", own, OWN_S_MAX),
                f"The sensor looks every {INTERVAL_S} s; tickets are sent at any moment between.",
            ),
        ),
        Table(
            f"{count} tickets of {_ROWS:,} rows at once, until the last one is COMPLETE",
            ("how", "median", "min", "max"),
            tuple(together.row(name) for name in together.by_name),
            (verdict("packed", packed_s, TOGETHER_S_MAX), "Unpacked: measured once."),
        ),
    ]


def _open_executor(world: World, pack_max: int) -> AbstractContextManager[DagsterDev]:
    connection = connection_of(world.server)
    variables = {
        EXECUTOR_VARIABLE: _EXECUTOR,
        PACK_VARIABLE: str(pack_max),
        "GOBBLIN_JDBC_BENCH_URL": connection.url,
        "GOBBLIN_JDBC_BENCH_USER": connection.user or "",
        "GOBBLIN_JDBC_BENCH_PASSWORD": connection.password or "",
    }
    return open_dagster(world.home, _LOCATION, variables)


def _measure_single(world: World, dev: DagsterDev, count: int, samples: Samples) -> None:
    chance = random.Random(1)
    for number in range(count + 1):
        time.sleep(chance.uniform(0.0, INTERVAL_S))
        ticket_id = _send(world)
        _await_all(world)
        with world.engine.connect() as connection:
            moments = connection.execute(_MOMENTS, {"ticket_id": ticket_id}).one()
        asked, started = _find_run_moments(dev, ticket_id)
        # The first one is the first of its code server as well.
        if number > 0:
            samples.add(_ASKED, asked - moments.sent)
            samples.add(_STARTED, started - asked)
            samples.add(_OWN, moments.claimed - started)
            samples.add(_CLAIMED, moments.claimed - moments.sent)
            samples.add(_ENDED, moments.ended - moments.sent)


def _find_run_moments(dev: DagsterDev, ticket_id: TicketId) -> tuple[float, float]:
    """When the ticket's run was made, and when its step began (Unix time, s)."""
    (record,) = dev.instance.get_run_records(dg.RunsFilter(tags={TICKET_TAG: str(ticket_id)}))
    asked = dg.DagsterEventType.RUN_ENQUEUED, dg.DagsterEventType.STEP_START
    moments = [
        dev.instance.get_records_for_run(record.dagster_run.run_id, of_type=kind).records[0].timestamp for kind in asked
    ]
    return moments[0], moments[1]


def _run_together(world: World, count: int) -> float:
    begun = time.monotonic()
    for _ in range(count):
        _send(world)
    _await_all(world)
    with world.engine.connect() as connection:
        bad = connection.execute(_NOT_COMPLETE, {"executor": _EXECUTOR}).scalar_one()
    if bad:
        raise RuntimeError(f"{bad} tickets are not COMPLETE")
    return time.monotonic() - begun


def _send(world: World) -> TicketId:
    job = new_job()
    ticket = JobTicket(f"gobblin-job:/bench/{job}/{job}", "1", "ingest.jdbc", describe_events(world, job, SPLIT))
    sent = SentTicket(TicketId(uuid.uuid4()), TicketVerb.ADD, _EXECUTOR, ticket)
    open_stores(world.engine).tickets.send(sent)
    return sent.ticket_id


def _await_all(world: World) -> None:
    until = time.monotonic() + _WAIT_S_MAX
    while time.monotonic() < until:
        with world.engine.connect() as connection:
            if not connection.execute(_OPEN, {"executor": _EXECUTOR}).scalar_one():
                return
        time.sleep(_LOOK_S)
    raise RuntimeError(f"tickets are open after {_WAIT_S_MAX:g} s")
