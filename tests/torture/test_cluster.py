"""A cluster of which everything is killed, stopped and cut off: nothing is missing, nothing is there twice."""

import itertools
import time
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from demo.kafka.broker import start_broker
from gobblin_assets.db import schema
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.service.postgres.history import SERVICE_HISTORY
from tests.support.database_pool import DatabasePool
from tests.support.flow_world import FlowWorld, make_config
from tests.support.postgres import Database
from tests.torture.cluster_faults import ClusterVictim, Fault, plan_faults
from tests.torture.cluster_history import FULL, SMALL, open_history
from tests.torture.cluster_proof import STEP, find_log_faults, find_slot_faults

KILLS_MIN = 300
HISTORIES = 5
KILLS_OF_A_HISTORY = 62
SHARES = 3
KILLS_OF_A_SHARE = 10
DISTURBED_S_MAX = 1200.0

_SLOT = """
    INSERT INTO gobblin_service.flow_slot (flow_id, slot_at, until_at, count, state)
    VALUES (:flow, :at, :until, :count, :state)
"""
_SECOND_CLAIM = """
    INSERT INTO gobblin.ticket_claim
        (ticket_id, attempt, claim_id, digest, log_id, owner, expires_at, ended_as, ended_at)
    SELECT ticket_id, attempt + 1, gen_random_uuid(), digest, log_id, owner, expires_at, ended_as, ended_at
      FROM gobblin.ticket_claim
"""


def test_a_seed_repeats_the_plan_and_all_plans_together_meet_everybody() -> None:
    plans = [list(itertools.islice(plan_faults(str(seed), frozenset(ClusterVictim)), 90)) for seed in range(HISTORIES)]
    assert plans[0] == list(itertools.islice(plan_faults("0", frozenset(ClusterVictim)), 90)) != plans[1]
    assert HISTORIES * KILLS_OF_A_HISTORY >= KILLS_MIN
    met = {(each.victim, each.fault) for plan in plans for each in plan}
    killed = {victim for victim, fault in met if fault is Fault.KILL}
    assert killed == frozenset(ClusterVictim) - {ClusterVictim.CONNECTIONS}
    assert {fault for _victim, fault in met} == frozenset(Fault)


def torture(
    server: EmbeddedServer,
    pool: DatabasePool,
    source: Database,
    folder: Path,
    seed: str,
    names: tuple[str, ...],
    kills: int,
) -> None:
    begun = time.monotonic()
    with (
        start_broker(folder / "kafka") as broker,
        open_history(server, pool, source, broker, seed, names) as history,
    ):
        history.play(kills, DISTURBED_S_MAX)
        history.settle()
        faults = history.find_faults()
        met = ", ".join(f"{victim} {fault} {times}" for (victim, fault), times in sorted(history.disturber.met.items()))
        print(f"seed {seed}: {history.disturber.kills} kills in {time.monotonic() - begun:.0f} s: {met}")
        assert not faults, "\n".join([*faults, history.say()])
        assert history.disturber.kills >= kills


@pytest.mark.rare
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("seed", [f"share{number}" for number in range(SHARES)])
def test_nodes_an_executor_and_a_broker_are_killed(
    server: EmbeddedServer, database_pool: DatabasePool, source_database: Database, tmp_path: Path, seed: str
) -> None:
    torture(server, database_pool, source_database, tmp_path, seed, SMALL, KILLS_OF_A_SHARE)


@pytest.mark.thorough
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_all_of_a_cluster_is_killed(
    server: EmbeddedServer, database_pool: DatabasePool, source_database: Database, tmp_path: Path, seed: int
) -> None:
    torture(server, database_pool, source_database, tmp_path, str(seed), FULL, KILLS_OF_A_HISTORY)


def test_the_verdict_sees_slots_that_are_missing_or_have_no_execution(engine: Engine) -> None:
    schema.upgrade(engine, history=SERVICE_HISTORY)
    world = FlowWorld(engine)
    world.flows.create(world.person, make_config(schedule="0 * * * * ?", run_immediately=False))
    with engine.begin() as connection:
        (flow_id, last) = connection.execute(text("SELECT flow_id, next_fire_at FROM gobblin_service.flow")).one()
        for minutes, state, count in ((9, "SKIPPED", 1), (7, "COALESCED", 3), (3, "SKIPPED", 2)):
            slot = {"flow": flow_id, "at": last - minutes * STEP, "count": count, "state": state}
            slot["until"] = slot["at"] + (count - 1) * STEP
            connection.execute(text(_SLOT), slot)
    assert list(find_slot_faults(engine)) == [
        f"orders: expected the slot {last - 8 * STEP}, found {last - 7 * STEP}",
        f"orders: expected the slot {last - 4 * STEP}, found {last - 3 * STEP}",
        f"orders: accounted to {last - STEP}, and next is {last}",
    ]


def test_the_verdict_sees_tickets_that_are_open_or_complete_twice_and_what_was_told_and_not_published(
    engine: Engine,
) -> None:
    """The executor of this world tells of publications that no log has."""
    schema.upgrade(engine, history=SERVICE_HISTORY)
    world = FlowWorld(engine)
    world.flows.create(world.person, make_config())
    world.play(rows=1)
    with engine.connect() as connection:
        (ticket,) = connection.execute(text("SELECT ticket_id FROM gobblin.job_ticket")).scalars()
        (job,) = connection.execute(text("SELECT job_name FROM gobblin_service.flow_job")).scalars()
        told = text("SELECT sequence_id FROM gobblin.ticket_report WHERE kind = 'published'")
        (sequence,) = connection.execute(told).scalars()
    unpublished = [
        f"own: the sequence {sequence} is told, and not done",
        f"{job} is bound to own, and published in []",
    ]
    assert list(find_log_faults({"own": engine}, engine)) == unpublished
    with engine.begin() as connection:
        # The log's own triggers refuse it.
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(text(_SECOND_CLAIM))
        connection.execute(text("UPDATE gobblin.job_ticket SET ended_as = NULL, ended_at = NULL"))
    assert list(find_log_faults({"own": engine}, engine)) == [
        f"own: open is ticket {ticket}",
        f"own: the ticket {ticket} is complete twice",
        *unpublished,
    ]
