"""The person beside workers that follow a database: reads what they say, and runs the command that they name.

Keeps also what has to be said: silence about an act that docs/CHANGES.md promises to notice is a difference.
"""

import re
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
from tests.torture.commands import Commands
from tests.torture.feeder import Feeder
from tests.torture.schedule import Injection
from tests.torture.server import Victim
from tests.torture.tally import Tally

SAID_S_MAX: Final = 180.0
"""Workers look twice a minute, die now and then before they could, and the person hears nothing during a command."""

_EVERY_S: Final = 0.5
_REMEDY: Final = "sink recopy JOB --"
_TABLE: Final = re.compile(r"\bpublic\.(\w+)")
_TERMS: Final = """
    SELECT c.oid::bigint, p.oid || ' ' || p.xmin, 'table ' || r.oid
      FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid JOIN pg_class c ON c.oid = r.prrelid
     WHERE p.pubname = 'lake' AND c.oid = to_regclass(%s)
"""


@dataclass(frozen=True, slots=True)
class Owed:
    """The workers have to name it, with its remedy; or a new copy begins anyway."""

    act: Injection
    named: str
    since: float


def hear_of_tables(tables: Collection[str]) -> Callable[[str], Collection[str]]:
    """The tables that a line of a worker names with their remedy."""

    def hear(line: str) -> Collection[str]:
        # "--all" is said of the tables that rest, in whose name the line begins.
        return (set(_TABLE.findall(line)) or set(tables)) if _REMEDY in line else ()

    return hear


class Sayings:
    """What workers say in their logs, and what they have to say. ``hear``: what a line names with its remedy."""

    def __init__(self, logs: Path, hear: Callable[[str], Collection[str]], tally: Tally) -> None:
        self._logs = logs
        self._hear = hear
        self._tally = tally
        self._read: dict[Path, int] = {}
        self._owed: list[Owed] = []

    def expect(self, act: Injection, named: Sequence[str]) -> None:
        """From now on."""
        self._owed += [Owed(act, each, time.monotonic()) for each in named]
        self._tally.add("acts that have to be said", len(named))

    def listen(self) -> set[str]:
        """What new lines name with its remedy; nothing is owed of it any more."""
        named: set[str] = set()
        for log in self._logs.glob("*.log"):
            with log.open("rb") as lines:
                lines.seek(self._read.get(log, 0))
                whole = lines.read().rpartition(b"\n")[0]
            self._read[log] = self._read.get(log, 0) + len(whole)
            for line in whole.decode("utf-8", "replace").splitlines():
                named.update(self._hear(line))
        self._settle(named, "acts that were said")
        return named

    def forgive(self, named: Collection[str]) -> None:
        """A new copy has begun, whatever was said."""
        self._settle(named, "acts that a new copy overtook")

    def judge(self) -> None:
        """Once everything has come to rest."""
        self.listen()
        for each in self._owed:
            self._tally.violate(f"nobody said what has happened to {each.named}: {each.act}")

    def _settle(self, named: Collection[str], how: str) -> None:
        now = time.monotonic()
        for each in [each for each in self._owed if each.named in named]:
            self._owed.remove(each)
            took_s = now - each.since
            self._tally.add(how)
            if took_s > SAID_S_MAX:
                self._tally.violate(f"{each.act}: it took {took_s:.0f} s until somebody said so of {each.named}")


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
        self._commands = Commands(folder, self._variables)
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
        is_begun = self._commands.run("sink", "recopy", known.write_job(), "--dataset", f"public.{table}")
        self._tally.add("new copies that a person began" if is_begun else "new copies that were refused for now")
        return is_begun

    def _variables(self) -> Mapping[str, str]:
        return {**self._open_tables(None).variables, "GOBBLIN_DATABASE_URL": self._victim.url}
