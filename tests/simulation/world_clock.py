"""A clock that processes share with the files of their world."""

import datetime as dt
from typing import Final

from tests.simulation.world import SimClock, World

SECONDS_AT_FIRST: Final = 1_700_000_000
"""Since 1970, when the world's clock begins."""


class WorldClock(SimClock):
    """Tells the time of the world, whose files have it, and lets it pass. The limit on a lease stands still as ever."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(number, now_s=1e6 * number)
        self._db = world.db

    def now(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(SECONDS_AT_FIRST + self._db.now_s, dt.UTC)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._db.advance(seconds)
