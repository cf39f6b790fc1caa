"""Three nodes adopt what two processes of Dagster begin, and all are killed and stopped: one execution for each run."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

import pytest
from sqlalchemy import Engine

from gobblin_assets.db import schema
from gobblin_assets.model.job_ticket import JobTicket, TicketId
from gobblin_assets.service.postgres.history import SERVICE_HISTORY
from tests.crash.points import OF_AN_OWN_RUN
from tests.support.flow_world import KEY, FlowWorld, make_config, run_to_the_end
from tests.support.forks import FORKS
from tests.support.own_runs import list_accounts, live_as_adopter, live_as_dagster, settle_own

NODES = 3
DAGSTERS = 2
KILLS = 5
KILLS_THOROUGH = 60
STOPPED_S = 0.4
WAIT_S_MAX = 150


def start(url: str, ticket: JobTicket, number: int, seed: int) -> BaseProcess:
    """A node dies at one of its failpoints; a process of Dagster's works until it is killed."""
    chance = random.Random(seed)
    if number < NODES:
        failpoint = f"{chance.choice(OF_AN_OWN_RUN)}=kill@{chance.randint(1, 9)}"
        process = FORKS.Process(target=live_as_adopter, args=(url, failpoint), daemon=True)
    else:
        process = FORKS.Process(target=live_as_dagster, args=(url, ticket, seed), daemon=True)
    process.start()
    return process


@contextmanager
def running_all(url: str, ticket: JobTicket) -> Iterator[list[BaseProcess]]:
    running = [start(url, ticket, number, number) for number in range(NODES + DAGSTERS)]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.join()


@pytest.mark.parametrize("kills", [KILLS, pytest.param(KILLS_THOROUGH, marks=pytest.mark.thorough)])
def test_each_run_of_dagster_is_one_execution_whatever_dies_or_stops(
    engine: Engine, database_url: str, kills: int
) -> None:
    schema.upgrade(engine, history=SERVICE_HISTORY)
    world = FlowWorld(engine)
    first = run_to_the_end(world, KEY.name, make_config("lake"))
    (ticket,) = world.executor.tickets.load_jobs([TicketId(first.jobs[0].ticket_id)]).values()
    chance = random.Random(kills)
    with running_all(database_url, ticket) as running:
        await_accounts(engine, 10)
        deaths = 0
        while deaths < kills:
            time.sleep(chance.random() * 0.2)
            number = chance.randrange(len(running))
            process = running[number]
            assert process.pid is not None
            if process.is_alive() and chance.random() < 0.3:
                # It goes on with what it had read before.
                os.kill(process.pid, signal.SIGSTOP)
                time.sleep(STOPPED_S)
                os.kill(process.pid, signal.SIGCONT)
            elif number >= NODES or not process.is_alive():
                process.kill()
                process.join()
                deaths += 1
                running[number] = start(database_url, ticket, number, len(running) + deaths)
        await_accounts(engine, len(list_accounts(engine)) + 10)
    settle_own(world)
    accounts = Counter(list_accounts(engine))
    assert set(accounts) == {(1, state, state) for state in ("COMPLETE", "FAILED", "CANCELLED")}, accounts


def await_accounts(engine: Engine, count: int) -> None:
    """So many runs were begun."""
    until = time.monotonic() + WAIT_S_MAX
    while len(list_accounts(engine)) < count:
        assert time.monotonic() < until, "no run is begun"
        time.sleep(0.05)
