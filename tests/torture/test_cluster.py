"""A cluster of which everything is killed, stopped and cut off: nothing is missing, nothing is there twice."""

import itertools
import time
from pathlib import Path

import pytest

from demo.kafka.broker import start_broker
from gobblin_assets.db.embedded import EmbeddedServer
from tests.support.database_pool import DatabasePool
from tests.support.postgres import Database
from tests.torture.cluster_faults import Fault, Victim, plan_faults
from tests.torture.cluster_history import FULL, SMALL, open_history

HISTORIES = 8
KILLS_OF_A_HISTORY = 40
KILLS_OF_A_SHARE = 10
DISTURBED_S_MAX = 600.0


def test_a_seed_repeats_the_plan_and_all_plans_together_meet_everybody() -> None:
    plans = [list(itertools.islice(plan_faults(str(seed), frozenset(Victim)), 90)) for seed in range(HISTORIES)]
    assert plans[0] == list(itertools.islice(plan_faults("0", frozenset(Victim)), 90)) != plans[1]
    met = {(each.victim, each.fault) for plan in plans for each in plan}
    assert {victim for victim, fault in met if fault is Fault.KILL} == frozenset(Victim) - {Victim.CONNECTIONS}
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


@pytest.mark.timeout(600)
def test_nodes_an_executor_and_a_broker_are_killed(
    server: EmbeddedServer, database_pool: DatabasePool, source_database: Database, tmp_path: Path
) -> None:
    torture(server, database_pool, source_database, tmp_path, "share", SMALL, KILLS_OF_A_SHARE)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_all_of_a_cluster_is_killed(
    server: EmbeddedServer, database_pool: DatabasePool, source_database: Database, tmp_path: Path, seed: int
) -> None:
    torture(server, database_pool, source_database, tmp_path, str(seed), FULL, KILLS_OF_A_HISTORY)
