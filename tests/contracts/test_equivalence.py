"""The simulated database behaves like Postgres: the same random calls, right and wrong ones, give the same answers."""

import pytest
from sqlalchemy import Engine

from tests.simulation.database import SimDatabase
from tests.support.commit_log import JOB, open_postgres, open_simulated
from tests.support.shares import rotating
from tests.support.two_worlds import URNS, History


@pytest.mark.parametrize(
    ("seed", "lane_count"),
    [(0, 1), (0, 3), *(rotating(seed, 1) for seed in range(1, 8)), *(rotating(seed, 3) for seed in range(1, 4))],
)
def test_both_worlds_give_the_same_answers(emptied_engine: Engine, seed: int, lane_count: int) -> None:
    history = History(seed, open_simulated(SimDatabase()), open_postgres(emptied_engine), lane_count)

    history.run()

    assert history.succeeded > 200
    assert history.refused > 20
    versions = [state.version for state in history.simulated.datasets.load(JOB, URNS).values()]
    assert sum(versions) > 0, "no history that publishes nothing says much"
