"""A process paused in the middle of storing its steps holds the sequence; the server must take it back."""

import os
import signal
from pathlib import Path
from typing import Any

from gobblin_assets.commit.postgres import building
from tests.support.lake import FORKS, Lake, Worker, World


def test_a_copy_that_waits_for_a_paused_client_is_ended_by_the_server(lake: Lake, world: World) -> None:
    process = FORKS.Process(target=_run_and_pause_in_a_copy, args=(lake,))
    process.start()
    zombie = Worker(process, Path(lake.directory, "no failpoints"))
    zombie.wait_until_stopped()
    world.expire_leases()

    assert not world.run().failed

    zombie.wake_up()
    zombie.wait()
    world.run()
    world.check_exactly_once()


def _run_and_pause_in_a_copy(lake: Lake) -> None:
    copy_segments = building._copy_segments

    def pause_first(connection: Any, staged: Any, dataset_id: int) -> None:
        building._copy_segments = copy_segments
        driver = connection.connection.driver_connection
        with driver.cursor() as cursor, cursor.copy(building._COPY_SEGMENTS):
            os.kill(os.getpid(), signal.SIGSTOP)
        copy_segments(connection, staged, dataset_id)

    building.COPY_S_MAX = 2
    building._copy_segments = pause_first
    World(lake).run()
