"""Where whole runners are tortured: one Postgres for log and source, a Spark Connect server, one destination."""

import random
import time
from collections import Counter
from pathlib import Path
from typing import Final

import psycopg

from gobblin_assets.db import embedded
from tests.torture.feeder import Feeder
from tests.torture.row_watch import Rows
from tests.torture.runner_process import Process
from tests.torture.schedule import RunnerPlan
from tests.torture.server import Victim
from tests.torture.spark_arena import SparkArena
from tests.torture.tally import Tally
from tests.torture.whole_runner import Shop, start_whole_runner

SOURCE_DATABASE: Final = "shop"
_URNS: Final = ("public.orders", "public.clicks", "public.Odd Näme")
_FIRST_ROWS: Final = 150
_FEED_EVERY_S: Final = 0.5


class WholeArena(SparkArena):
    """Begins with the first rows in the tables, a warm Spark server, nothing published, and no runner."""

    kind = "whole"

    def __init__(self, home: Path, seed: str, tally: Tally) -> None:
        super().__init__(home, seed, tally, _URNS)

    def open_source(self, seed: str) -> "_Tables":
        return _Tables(self.victim, seed)

    def site(self) -> Shop:
        server = self.victim.server
        return Shop(
            home=str(self.home),
            database_url=self.victim.url,
            jdbc_url=server.jdbc_url(SOURCE_DATABASE),
            user=server.user,
            password=server.password(),
            urns=self.urns,
        )

    def start(self, plan: RunnerPlan) -> Process:
        return start_whole_runner(plan, self.site(), self.runners.logs)

    def mend(self) -> None:
        """Nothing to do: Postgres is up again, and no other disturbance lasts."""


class _Tables(Feeder):
    """The tables, with rows numbered from 0. One writer adds them, so that their order is that of their commits."""

    def __init__(self, victim: Victim, seed: str) -> None:
        super().__init__(_FEED_EVERY_S)
        self._victim = victim
        self._dice = random.Random(f"{seed}/source")
        embedded.create_database(victim.server, SOURCE_DATABASE)
        with victim.connect(SOURCE_DATABASE) as connection:
            for urn in _URNS:
                connection.execute(f"CREATE TABLE {_quote(urn)} (number bigint PRIMARY KEY, value text)".encode())
        for urn in _URNS:
            self._add(urn, _FIRST_ROWS)

    def rows(self, urn: str) -> Rows:
        with self._victim.connect(SOURCE_DATABASE) as connection:
            found = connection.execute(f"SELECT number, value FROM {_quote(urn)}".encode()).fetchall()
        return Counter((int(str(number)), str(value)) for number, value in found)

    def add_some(self) -> None:
        try:
            self._add(self._dice.choice(_URNS), self._dice.choice((1, 2, 3, 25)))
        except psycopg.Error:
            # Postgres is down. The next insertion finds out whether these rows were stored.
            time.sleep(_FEED_EVERY_S)

    def _add(self, urn: str, count: int) -> None:
        with self._victim.connect(SOURCE_DATABASE) as connection:
            connection.execute(
                f"INSERT INTO {_quote(urn)} SELECT n, %(urn)s || '-' || n FROM (SELECT coalesce(max(number) + 1, 0) AS"
                f" low FROM {_quote(urn)}) m, generate_series(m.low, m.low + %(count)s - 1) n".encode(),
                {"urn": urn, "count": count},
            )


def _quote(urn: str) -> str:
    schema, _, table = urn.partition(".")
    return f'"{schema}"."{table}"'
