"""Where runners read tables by Arrow: the arena of small runners, with tables of the same server as sources."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import psycopg

from gobblin_assets.db import embedded
from tests.support.lake import Lake
from tests.support.postgres import Database, describe_database
from tests.support.table_lake import TableLake
from tests.torture.disturber import Strike
from tests.torture.feeder import Feeder
from tests.torture.schedule import Injection
from tests.torture.small_arena import FED_ROWS, FEED_EVERY_S, SmallArena
from tests.torture.stranger import LONGER
from tests.torture.tally import Tally

SOURCE_DATABASE: Final = "shop"


class TableArena(SmallArena):
    """Begins with the first rows in the tables, nothing published, and no runner."""

    kind = "table"
    at_work_max = 4
    names = (
        ("public.orders", "public.Odd Näme", "public.refunds"),
        ("public.clicks", "public.page views", "public.customers"),
    )

    def __init__(self, home: Path, seed: str, tally: Tally, refused: str | None) -> None:
        self._has_database = False
        self._rude = random.Random(f"{seed}/stranger")
        super().__init__(home, f"{seed}/{self.kind}", tally, refused)

    @property
    def lakes(self) -> Sequence[TableLake]:
        source = self._describe_source()
        return [replace(lake, source=source) for lake in super().lakes if isinstance(lake, TableLake)]

    def make_lake(self, **options: Any) -> Lake:
        """A lake with empty tables. One lake's tables are read together, the other's by several attempts each."""
        if not self._has_database:
            embedded.create_database(self.victim.server, SOURCE_DATABASE)
            self._has_database = True
        made = TableLake(source=self._describe_source(), shares=options["urns"] == self.names[0], **options)
        made.make_tables()
        return made

    def open_feeder(self, dice: random.Random) -> Feeder:
        return _Rows(lambda: self.lakes, dice)

    def strikes(self) -> Mapping[Injection, Strike]:
        def ended(lasts_s: float) -> bool:
            try:
                return self.victim.end_sessions(SOURCE_DATABASE, lasts_s)
            except psycopg.Error:
                # A backend was killed a moment ago, and Postgres is recovering.
                return False

        return {**super().strikes(), Injection.SESSIONS_ENDED: ended}

    def acts(self) -> Mapping[Injection, Strike]:
        urns = [urn for names in self.names for urn in names]

        def locked(lasts_s: float) -> bool:
            schema, _, table = self._rude.choice(urns).partition(".")
            return self.victim.lock_table(f'{schema}."{table}"', LONGER * lasts_s, SOURCE_DATABASE)

        return {Injection.TABLE_LOCKED: locked}

    def _describe_source(self) -> Database:
        return describe_database(self.victim.server, SOURCE_DATABASE)


class _Rows(Feeder):
    """The only writer, so that the order of rows is that of their commits."""

    def __init__(self, find_lakes: Callable[[], Sequence[Lake]], dice: random.Random) -> None:
        super().__init__(FEED_EVERY_S)
        self._find_lakes = find_lakes
        self._dice = dice

    def add_some(self) -> None:
        lake = self._dice.choice(self._find_lakes())
        try:
            lake.add_rows(self._dice.choice(lake.urns), self._dice.choice(FED_ROWS))
        except psycopg.Error:
            # Postgres is down. The next insertion finds out whether these rows were stored.
            return
