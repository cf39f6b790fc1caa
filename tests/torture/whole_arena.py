"""Where whole runners are tortured: one Postgres for log and source, a Spark Connect server, one destination."""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import psycopg

from gobblin_assets.db import embedded
from gobblin_assets.errors import GobblinError
from gobblin_assets.ingest.spark import connect_server
from gobblin_assets.ingest.spark.connect_server import ConnectServer
from tests.torture.disturber import Strike, strikes_on_the_server
from tests.torture.history import Destination
from tests.torture.observer import Subject
from tests.torture.runner_process import Process
from tests.torture.runners import Runners
from tests.torture.schedule import Action, Injection, RunnerPlan, plan_calm_runner, plan_whole_runner
from tests.torture.server import Victim
from tests.torture.tally import Tally
from tests.torture.whole_runner import Shop, start_spark, start_whole_runner

SOURCE_DATABASE: Final = "shop"
_URNS: Final = ("public.orders", "public.clicks", "public.Odd Näme")
_FIRST_ROWS: Final = 150
_FEED_EVERY_S: Final = 0.5


class WholeArena:
    """Made with the first rows in the tables, Spark warm, nothing published, nobody running."""

    kind = "whole"
    at_work_max = 3
    disturbed_every_s = 25.0

    def __init__(self, home: Path, seed: str, tally: Tally) -> None:
        self.tally = tally
        self.victim = Victim(home, seed)
        self._home = home
        logs = home / "runners"
        logs.mkdir()
        Path(self._shop().root).mkdir()
        self._source = _Source(self.victim, seed)
        self.runners = Runners(
            lambda number: plan_whole_runner(seed, number, datasets=len(_URNS)),
            self.start,
            self.victim.connect,
            logs,
            tally,
            at_work_max=self.at_work_max,
        )
        self._calm_runners = 0
        start_spark(self._shop())

    def strikes(self) -> Mapping[Injection, Strike]:
        return {**strikes_on_the_server(self.victim), Injection.SPARK_KILLED: self._kill_spark}

    def start(self, plan: RunnerPlan) -> Process:
        return start_whole_runner(plan, self._shop(), self.runners.logs)

    def plan_rest(self) -> Sequence[RunnerPlan]:
        return [self._plan_calm(Action.APPEND)]

    def plan_resume(self) -> RunnerPlan:
        return self._plan_calm(Action.RESUME)

    def feed(self) -> None:
        self._source.start()

    def stop_feeding(self) -> None:
        self._source.stop()

    def mend(self) -> None:
        start_spark(self._shop())

    def subjects(self) -> Sequence[Subject]:
        return [Subject(self._shop().job, urn) for urn in _URNS]

    def destinations(self) -> Sequence[Destination]:
        shop = self._shop()
        return [
            Destination(
                root=Path(shop.root),
                job=shop.job,
                sources={Subject(shop.job, urn): self._source.rows(urn) for urn in _URNS},
                events=shop.events,
                acknowledged=shop.acknowledged,
            )
        ]

    def close(self, *, keep: bool) -> None:
        """Everything that was started is over; the files are left to whoever made the home."""
        self._source.stop()
        with suppress(GobblinError):
            connect_server.stop(self._shop().spark_home)
        self.victim.stop()

    def _shop(self) -> Shop:
        """As it is reached now: a server that was started again may have another port."""
        server = self.victim.server
        return Shop(
            home=str(self._home),
            database_url=self.victim.url,
            jdbc_url=server.jdbc_url(SOURCE_DATABASE),
            user=server.user,
            password=server.password(),
            urns=_URNS,
        )

    def _kill_spark(self, _lasts_s: float) -> bool:
        """The next runner starts it again."""
        server = self._find_spark()
        if server is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGKILL)
        return True

    def _find_spark(self) -> ConnectServer | None:
        try:
            return connect_server.find(self._shop().spark_home)
        except GobblinError:
            return None

    def _plan_calm(self, action: Action) -> RunnerPlan:
        self._calm_runners += 1
        return plan_calm_runner(self._calm_runners, action, lake=0, datasets=len(_URNS))


class _Source:
    """The tables: rows numbered from 0, added by one writer, so that their order is that of their commits."""

    def __init__(self, victim: Victim, seed: str) -> None:
        self._victim = victim
        self._dice = random.Random(f"{seed}/source")
        self._full = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        embedded.create_database(victim.server, SOURCE_DATABASE)
        with victim.connect(SOURCE_DATABASE) as connection:
            for urn in _URNS:
                connection.execute(f"CREATE TABLE {_quote(urn)} (number bigint PRIMARY KEY, value text)".encode())
        for urn in _URNS:
            self._add(urn, _FIRST_ROWS)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._full.set()
        if self._thread.ident is not None:
            self._thread.join()

    def rows(self, urn: str) -> "Counter[tuple[int, str]]":
        with self._victim.connect(SOURCE_DATABASE) as connection:
            found = connection.execute(f"SELECT number, value FROM {_quote(urn)}".encode()).fetchall()
        return Counter((int(str(number)), str(value)) for number, value in found)

    def _feed(self) -> None:
        while not self._full.wait(_FEED_EVERY_S):
            try:
                self._add(self._dice.choice(_URNS), self._dice.choice((1, 2, 3, 25)))
            except psycopg.Error:
                # Postgres is away; whether these rows are in, the next insertion sees for itself.
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
