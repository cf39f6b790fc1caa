"""The person beside workers that follow a database: reads what they say, and runs the command that they name.

Keeps also what has to be said: silence about an act that docs/CHANGES.md promises to notice is a difference.
"""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

from gobblin_assets.db.engine import open_external
from gobblin_assets.errors import GobblinError
from gobblin_assets.sources.postgres_log.log_starts import PLACE_MIN
from tests.support.changed_tables import ChangedTables
from tests.torture.feeder import Feeder
from tests.torture.schedule import Injection
from tests.torture.server import Victim
from tests.torture.tally import Tally

SAID_S_MAX: Final = 180.0
"""Workers look twice a minute, die now and then before they could, and the person hears nothing during a command."""

_EVERY_S: Final = 0.5
_COMMAND_S_MAX: Final = 120.0
_REMEDY: Final = "sink recopy JOB --"
_TABLE: Final = re.compile(r"\bpublic\.(\w+)")
_TERMS: Final = """
    SELECT c.oid::bigint, p.oid || ' ' || p.xmin, 'table ' || r.oid
      FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid JOIN pg_class c ON c.oid = r.prrelid
     WHERE p.pubname = 'lake' AND c.oid = to_regclass(%s)
"""


@dataclass(frozen=True, slots=True)
class Owed:
    """The workers have to name the table, with its remedy; or a new copy begins anyway."""

    act: Injection
    table: str
    since: float


class Sayings:
    """What workers say in their logs of ``tables``, and what they have to say."""

    def __init__(self, logs: Path, tables: Collection[str], tally: Tally) -> None:
        self._logs = logs
        self._tables = tables
        self._tally = tally
        self._read: dict[Path, int] = {}
        self._owed: list[Owed] = []

    def expect(self, act: Injection, tables: Sequence[str]) -> None:
        """From now on."""
        self._owed += [Owed(act, table, time.monotonic()) for table in tables]
        self._tally.add("acts that have to be said", len(tables))

    def listen(self) -> set[str]:
        """The tables that new lines name with their remedy; nothing is owed of them any more."""
        named: set[str] = set()
        for log in self._logs.glob("*.log"):
            with log.open("rb") as lines:
                lines.seek(self._read.get(log, 0))
                whole = lines.read().rpartition(b"\n")[0]
            self._read[log] = self._read.get(log, 0) + len(whole)
            for line in whole.decode("utf-8", "replace").splitlines():
                if _REMEDY in line:
                    # "--all" is said of the tables that rest, in whose name the line begins.
                    named |= set(_TABLE.findall(line)) or set(self._tables)
        self._settle(named, "acts that were said")
        return named

    def forgive(self, tables: Collection[str]) -> None:
        """A new copy has begun, whatever was said."""
        self._settle(tables, "acts that a new copy overtook")

    def judge(self) -> None:
        """Once everything has come to rest."""
        self.listen()
        for each in self._owed:
            self._tally.violate(f"nobody said what has happened to {each.table}: {each.act}")

    def _settle(self, tables: Collection[str], how: str) -> None:
        now = time.monotonic()
        for each in [each for each in self._owed if each.table in tables]:
            self._owed.remove(each)
            took_s = now - each.since
            self._tally.add(how)
            if took_s > SAID_S_MAX:
                self._tally.violate(f"{each.act}: it took {took_s:.0f} s until somebody said so of {each.table}")


class Person(Feeder):
    """``connect``: to the source. ``open_tables``: with the engine of the log, which is at ``victim``. ``folder`` gets
    what the person's commands say.
    """

    def __init__(
        self,
        folder: Path,
        sayings: Sayings,
        connect: Callable[[], "psycopg.Connection[tuple[object, ...]]"],
        open_tables: Callable[[Any], ChangedTables],
        victim: Victim,
        tally: Tally,
    ) -> None:
        super().__init__(_EVERY_S)
        self._folder = folder
        self._sayings = sayings
        self._connect = connect
        self._open_tables = open_tables
        self._victim = victim
        self._tally = tally
        self._acting = threading.Lock()

    def add_some(self) -> None:
        """One look: what is said is obeyed, once. Of what the command refuses, workers speak again."""
        with self._acting:
            named = sorted(self._sayings.listen())
            self._sayings.forgive([table for table in named if self._recopy(table)])

    @contextmanager
    def looking_away(self) -> Iterator[None]:
        """No new copy begins meanwhile."""
        with self._acting:
            yield

    def find_followed(self, *tables: str) -> Sequence[str]:
        """Those whose copy is published as a whole, and which are still the ones that were copied."""
        try:
            # Fails at once if the server is away, where the product would try again.
            self._victim.connect().close()
            engine = open_external(self._victim.url)
            try:
                known = self._open_tables(engine)
                return [table for table in tables if self._is_followed(known, table)]
            finally:
                engine.dispose()
        except (GobblinError, psycopg.Error, KeyError):
            # Who can't be asked is owed nothing.
            return []

    def _is_followed(self, known: ChangedTables, table: str) -> bool:
        if known.published_to(table) < PLACE_MIN:
            return False
        said: Any = known.facts_of(table).get("table_terms", {})
        with self._connect() as connection:
            found = connection.execute(_TERMS, [f"public.{table}"]).fetchall()
        return found == [(said.get("oid"), said.get("publication"), *said.get("members", ()))]

    def _recopy(self, table: str) -> bool:
        """Whether a new copy has begun. Of a table that is not at rest yet, none is."""
        known = self._open_tables(None)
        asked = ["sink", "recopy", known.write_job(), "--dataset", f"public.{table}"]
        command = [sys.executable, "-m", "gobblin_assets.cli", *asked]
        with (self._folder / "person.txt").open("ab") as said:
            try:
                code = subprocess.run(
                    command, env=self._environment(known), stdout=said, stderr=said, timeout=_COMMAND_S_MAX, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                code = -1
        self._tally.add("new copies that a person began" if not code else "new copies that were refused for now")
        return code == 0

    def _environment(self, known: ChangedTables) -> Mapping[str, str]:
        home = str(self._folder / "person")
        return {**os.environ, **known.variables, "GOBBLIN_DATABASE_URL": self._victim.url, "GOBBLIN_HOME": home}
