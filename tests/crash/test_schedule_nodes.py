"""Three nodes fire the same flows, each a process; they are killed and stopped, and every slot is accounted once."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

import pytest
from sqlalchemy import Engine, text

from tests.support.dense_schedules import align_flows, find_faults, live_as_node, settle
from tests.support.flow_world import FlowWorld, make_config
from tests.support.forks import FORKS

pytestmark = pytest.mark.service_schema

NODES = 3
KILLS = 4
KILLS_THOROUGH = 40
STOPPED_S = 0.4
OPTIONS = (
    {},
    {"overlap": "queue"},
    {"overlap": "allow"},
    {"catch_up": "all", "catch_up_max": 5},
    {"catch_up": "none"},
)
FLOWS = 4 * len(OPTIONS)


@contextmanager
def nodes(url: str) -> Iterator[list[BaseProcess]]:
    running = [start(url, number) for number in range(NODES)]
    try:
        yield running
    finally:
        for node in running:
            node.kill()
            node.join()


def start(url: str, number: int) -> BaseProcess:
    # One node only fires.
    node = FORKS.Process(target=live_as_node, args=(url, number > 0), daemon=True)
    node.start()
    return node


@pytest.mark.parametrize("kills", [KILLS, pytest.param(KILLS_THOROUGH, marks=pytest.mark.thorough)])
def test_each_slot_is_accounted_once_whatever_nodes_die_or_stop(engine: Engine, database_url: str, kills: int) -> None:
    world = FlowWorld(engine)
    for number in range(FLOWS):
        options = OPTIONS[number % len(OPTIONS)]
        world.flows.create(world.person, make_config("lake", name=f"flow{number}", schedule="* * * * *", **options))
    chance = random.Random(kills)
    first = align_flows(engine)
    with nodes(database_url) as running:
        wait_for_fires(engine)
        for _ in range(kills):
            number = chance.randrange(NODES)
            time.sleep(chance.random() * 0.3)
            pid = running[number].pid
            assert pid is not None
            if chance.random() < 0.3:
                # It is paused past what it saw, and goes on with that.
                os.kill(pid, signal.SIGSTOP)
                time.sleep(STOPPED_S)
                os.kill(pid, signal.SIGCONT)
                continue
            running[number].kill()
            running[number].join()
            running[number] = start(database_url, number)
            change_beside(world, chance)
    settle(engine)
    assert find_faults(engine, first) == []
    with engine.connect() as connection:
        states = Counter(connection.execute(text("SELECT state FROM gobblin_service.flow_slot")).scalars())
    assert states["RUN"] >= FLOWS
    assert set(states) == {"RUN", "COALESCED", "SKIPPED"}


def change_beside(world: FlowWorld, chance: random.Random) -> None:
    flow = world.flows.list_flows(limit=FLOWS).flows[chance.randrange(FLOWS)]
    if chance.random() < 0.5:
        world.flows.pause(flow.spec.key)
        world.flows.resume(flow.spec.key)
    else:
        changed = flow.spec.config.model_copy(update={"description": f"changed at {time.monotonic()}"})
        world.flows.update(world.person, changed)


def wait_for_fires(engine: Engine) -> None:
    end = time.monotonic() + 30
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        while time.monotonic() < end:
            if connection.execute(text("SELECT count(*) FROM gobblin_service.flow_slot")).scalar_one() >= FLOWS:
                return
            time.sleep(0.1)
    raise AssertionError("nothing was fired")
