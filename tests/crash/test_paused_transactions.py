"""A process paused inside a transaction holds its sequence; the server must free the sequence for the next owner."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.commit.postgres import building
from gobblin_assets.db import engine
from gobblin_assets.failpoints import stop_this_process
from tests.support.forks import FORKS
from tests.support.lake import Lake, World
from tests.support.unfinished import UnfinishedSender
from tests.support.workers import Worker


def _pause_between_statements(lake: Lake) -> None:
    segment_rows = building._segment_rows

    def pause_first(*arguments: Any) -> Any:
        building._segment_rows = segment_rows
        stop_this_process()
        return segment_rows(*arguments)

    building._segment_rows = pause_first
    World(lake).run()


def _pause_inside_a_statement(lake: Lake) -> None:
    engine.TRANSACTION_S_MAX = 2  # type: ignore[misc]  # in this process alone, so that the test need not wait
    unfinished = UnfinishedSender(lake.database_url, b"INSERT INTO gobblin.segment")
    World(replace(lake, database_url=unfinished.database_url)).run()


@pytest.mark.parametrize("pause", [_pause_between_statements, _pause_inside_a_statement])
def test_the_next_owner_does_not_wait_until_it_wakes_up(
    lake: Lake, world: World, pause: Callable[[Lake], None]
) -> None:
    process = FORKS.Process(target=pause, args=(lake,))
    process.start()
    zombie = Worker(process, Path(lake.directory, "no failpoints"))
    zombie.wait_until_stopped()
    world.expire_leases()

    assert not world.run().failed

    zombie.wake_up()
    zombie.wait()
    world.run()
    world.check_exactly_once()
