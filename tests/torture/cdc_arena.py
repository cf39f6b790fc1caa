"""Where change logs are tortured: a database that is written to, a Postgres for the log, workers that come and go."""

import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from gobblin_assets.db.engine import open_external
from tests.support.audited_log import AuditedLog, require_replay, require_whole_log
from tests.support.changed_tables import JOB, ChangedTables
from tests.torture import isolation
from tests.torture.cdc_runner import CdcSite
from tests.torture.cdc_source import ShopOddities, Source
from tests.torture.disturber import Strike, strikes_on_the_disk, strikes_on_the_server
from tests.torture.history import Destination, check_history, check_log
from tests.torture.observer import Connection, Remembered, Seen, Subject, Watch
from tests.torture.person import Person, Sayings, hear_of_tables
from tests.torture.proxy import Proxies
from tests.torture.row_history import check_storage
from tests.torture.row_watch import find_active
from tests.torture.runner_process import Process
from tests.torture.runners import Runners
from tests.torture.schedule import (
    LEASE_TTL_S,
    ON_A_MOUNT,
    Action,
    Injection,
    RunnerPlan,
    plan_calm_runner,
    plan_cdc_runner,
)
from tests.torture.server import Victim
from tests.torture.sink_runner import start_sink_runner
from tests.torture.stranger import TableStranger
from tests.torture.tally import Tally

TABLES: Final = ("orders", "notes")
TMPFS_SIZE: Final = "256m"
_OPTIONS: Final[Mapping[str, Any]] = {
    "lease": {"ttl_s": LEASE_TTL_S},
    "retire_grace_s": 0,
    "log": {"fold_keep": 10, "fold_min": 5, "fold_age_s": 5},
    "sink": {"every_s": 0.3, "roll": {"age_s": 0.6}},
}
_END: Final = "SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn"


class CdcArena:
    """Begins with rows in the tables, nothing published, and no worker.

    ``refused``: why a mount is not possible here; None: it may be possible.
    """

    kind = "cdc"
    at_work_max = 2
    disturbed_every_s = 7.0

    def __init__(self, home: Path, seed: str, tally: Tally, refused: str | None) -> None:
        self.tally = tally
        self.victim = Victim(home, seed)
        # Beside the arena, where a later torture finds what a killed one has left.
        self._source = Source(home.with_name("cdc-source"), seed)
        self._home = home
        (home / "runners").mkdir()
        self._mount = home / "lake"
        self._mount.mkdir()
        refused = refused or isolation.mount_tmpfs(self._mount, TMPFS_SIZE)
        self._is_mounted = refused is None
        for injection in ON_A_MOUNT if refused is not None else ():
            tally.skip(injection, f"not done: {refused}")
        self._audited = AuditedLog(self._source.database)
        self._proxies = Proxies(home, self.victim, seed, tally)
        self.runners = Runners(
            lambda number: plan_cdc_runner(seed, number, datasets=len(TABLES)),
            self.start,
            self.victim.connect,
            home / "runners",
            tally,
            at_work_max=self.at_work_max,
        )
        self._oddities = ShopOddities(self._source, seed, tally)
        self._sayings = Sayings(self.runners.logs, hear_of_tables(TABLES), tally)
        self._person = Person(home, self._sayings, self._source.connect, self._open_tables, self.victim, tally)
        self._stranger = TableStranger(self._source, TABLES, self._person, self._sayings)
        self._calm_runners = 0
        self._end = 0

    def strikes(self) -> Mapping[Injection, Strike]:
        def killed(number: signal.Signals) -> Strike:
            def strike(lasts_s: float) -> bool:
                self._source.kill(number, lasts_s)
                return True

            return strike

        return {
            **strikes_on_the_server(self.victim),
            **(strikes_on_the_disk(self._mount) if self._is_mounted else {}),
            Injection.SOURCE_KILLED: killed(signal.SIGKILL),
            Injection.SOURCE_STOPPED: killed(signal.SIGQUIT),
            Injection.WALSENDER_ENDED: lambda _lasts_s: self._source.end_walsenders(),
        }

    def acts(self) -> Mapping[Injection, Strike]:
        return self._stranger.strikes()

    def start(self, plan: RunnerPlan) -> Process:
        tables = self._open_tables(None)
        site = CdcSite(
            self._proxies.url(plan.route),
            tables.described,
            tables.variables,
            tuple(f"public.{table}" for table in TABLES),
            self._end,
        )
        return start_sink_runner(plan, site, self.runners.logs)

    def plan_rest(self) -> Sequence[RunnerPlan]:
        return [self._plan_calm(Action.STREAM)]

    def plan_resume(self) -> RunnerPlan:
        return self._plan_calm(Action.RESUME)

    def feed(self) -> None:
        self._oddities.start()
        self._person.start()

    def stop_feeding(self) -> None:
        self._oddities.stop()
        self._source.start()
        self._stranger.leave()
        with self._source.connect() as connection:
            # What is behind the last commit is written out as well.
            connection.execute("CHECKPOINT")
            (found,) = connection.execute(_END).fetchall()
        self._end = int(str(found[0]))

    def mend(self) -> None:
        self._proxies.calm_down()
        self._source.start()

    def subjects(self) -> Sequence[Subject]:
        return [Subject(JOB, f"public.{table}") for table in TABLES]

    def watch(self) -> Watch:
        return ChangeWatch(self.tally)

    def judge(self, seen: Remembered) -> None:
        self._person.stop()
        self._sayings.judge()
        engine = open_external(self.victim.url)
        try:
            tables = self._open_tables(engine)
            for table in TABLES:
                self._judge_table(tables, table)
            self._ask(lambda: require_whole_log(tables, self._audited))
        finally:
            engine.dispose()
        with self.victim.connect() as connection:
            visible = [path for subject in self.subjects() for path in find_active(connection, subject)[1]]
            check_storage(JOB, self._mount, visible, self.tally)
            destination = Destination(JOB, self._mount / JOB, None, None)
            check_history(connection, destination, self.subjects(), seen, self.tally)
            check_log(connection, self.tally)

    def close(self, *, keep: bool) -> None:
        """As ``SinkArena.close``."""
        self._oddities.stop()
        self._person.stop()
        self._proxies.close()
        self.victim.stop()
        self._source.stop()
        if self._is_mounted:
            if keep:
                shutil.copytree(self._mount, self._mount.with_name("lake as it was"), symlinks=True)
            isolation.unmount(self._mount)

    def _judge_table(self, tables: ChangedTables, table: str) -> None:
        rows = tables.log_of(table).to_pylist()
        self.tally.add("changes published", len(rows))
        self._ask(lambda: require_replay(rows, "id"))
        names = [name for name in rows[0] if not name.startswith("_")] if rows else []
        with self._source.connect() as connection:
            shown = [
                each.name for each in connection.execute(f"SELECT * FROM {table} LIMIT 0".encode()).description or ()
            ]
        kept = [names.index(name) for name in shown]
        found = {tuple(row[place] for place in kept) for row in tables.rebuild(table, "id")}
        source = set(tables.rows_of(table, shown))
        self.tally.add("rows at the source", len(source))
        if found != source:
            self.tally.violate(
                f"{table}: {len(source - found)} rows are missing, such as {[*(source - found)][:2]}; "
                f"{len(found - source)} are too many, such as {[*(found - source)][:2]}"
            )

    def _ask(self, require: Any) -> None:
        try:
            require()
        except AssertionError as error:
            self.tally.violate(str(error))

    def _open_tables(self, engine: Any) -> ChangedTables:
        return ChangedTables(self._home, self._source.database, engine, TABLES, options=_OPTIONS)

    def _plan_calm(self, action: Action) -> RunnerPlan:
        self._calm_runners += 1
        return replace(
            plan_calm_runner(self._calm_runners, action, lake=0, datasets=len(TABLES)), lease_wait_s=LEASE_TTL_S
        )


class ChangeWatch:
    """``Watch`` of change logs: what was published once stays, and no change and no copied row is there twice."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._rows: dict[Subject, int] = {}
        self._paths: dict[Subject, set[str]] = {}
        self._places: dict[Subject, set[tuple[object, ...]]] = {}

    def judge(self, subject: Subject, seen: Seen) -> None:
        before = self._rows.get(subject, 0)
        if seen.rows < before:
            self._tally.violate(f"{subject}: {before} rows were published, and now there are {seen.rows}")
        self._rows[subject] = seen.rows

    def look(self, connection: Connection, subject: Subject) -> None:
        _position, files = find_active(connection, subject)
        known, places = self._paths.setdefault(subject, set()), self._places.setdefault(subject, set())
        gone = known - files.keys()
        if gone:
            self._tally.violate(f"{subject}: {len(gone)} files that a reader saw are gone, such as {sorted(gone)[:2]}")
        for path in files.keys() - known:
            table = pq.read_table(path, columns=["id", "_op", "_copy", "_lsn", "_seq"], partitioning=None)
            found = [
                (row["_copy"], row["_lsn"], row["_seq"], row["id"] if row["_op"] == "r" else None)
                for row in table.to_pylist()
            ]
            twice = places.intersection(found)
            if twice or len(set(found)) < len(found):
                self._tally.violate(f"{subject}: changes are there twice, such as {[*twice][:3]}, in {path}")
            places.update(found)
            known.add(path)
        self._tally.add("samples with all rows of a dataset")
