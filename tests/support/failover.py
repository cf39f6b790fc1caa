"""Two Postgres servers, one asynchronously streaming to the other, and one address that moves.

Runs go through processes that stop themselves. When all have stopped at a first place, the standby is cut off from
later changes. When all have stopped at a second place, the primary is killed, and the standby is promoted under the
same address. So one failover serves many runs, and each run knows which of its transactions the new primary has.
"""

import dataclasses
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql
from sqlalchemy import Connection, Engine, event, make_url

from gobblin_assets import failpoints
from gobblin_assets.db import backup, embedded, schema
from gobblin_assets.db.account import find_account
from gobblin_assets.db.cluster import ClusterFiles, try_lock
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.engine import open_external
from gobblin_assets.errors import GobblinError
from gobblin_assets.failpoints import Failpoint, stop_this_process
from tests.support.forks import FORKS
from tests.support.lake import Lake, World
from tests.support.postgres import maintenance
from tests.support.workers import Worker

BEFORE_THE_RUN: Final = "before the run"
COMMIT_OF_THE_SEAL: Final = "commit of the seal"

_WAIT_S_MAX: Final = 150.0
_POLL_S: Final = 0.01
_ADDRESS_PORT: Final = 5432
_TEMPLATE: Final = "template_of_the_log"
_SEAL: Final = "SET state = 'PREPARED', base_version"


class Pair:
    """The primary with its standby; the servers' user can pass through ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._homes = (directory / "first", directory / "second")
        self._address = directory / "address"
        self.primary = embedded.start(self._homes[0], _say_nothing)
        with maintenance(self.primary) as connection:
            # Processes are killed here, not a machine: written data stays.
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")
        embedded.create_database(self.primary, _TEMPLATE)
        engine = open_external(self.primary.url(_TEMPLATE))
        schema.upgrade(engine)
        engine.dispose()
        self.standby = self._make_standby(directory / "copy")
        self._address.mkdir()
        self._answer_by(self.primary)

    def create_database(self, name: str) -> str:
        """A database with an empty log; its URL has the address that moves."""
        with maintenance(self.primary) as connection:
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(_TEMPLATE))
            )
        place = {"host": str(self._address), "port": str(_ADDRESS_PORT)}
        return make_url(self.primary.url(name)).update_query_dict(place).render_as_string(hide_password=False)

    def cut_off(self) -> None:
        """The standby has all changes that were committed until now, and gets no more."""
        with maintenance(self.primary) as first, maintenance(self.standby) as second:
            written = _one(first, "SELECT pg_current_wal_lsn()")
            _wait_until(lambda: _one(second, "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", written), "catch up")
            second.execute("ALTER SYSTEM SET primary_conninfo = ''")
            second.execute("SELECT pg_reload_conf()")
            _wait_until(lambda: _one(second, "SELECT count(*) = 0 FROM pg_stat_wal_receiver"), "stop receiving")

    def fail_over(self) -> None:
        """Kill the primary, promote the standby, and let it answer in the other's place."""
        files = embedded.files_of(self._homes[0])
        postmaster = int(files.pid_file.read_text(encoding="ascii").split()[0])
        assert Path(f"/proc/{postmaster}/cwd").samefile(files.data)
        os.kill(postmaster, signal.SIGKILL)
        _wait_until(lambda: _is_free(files), "be gone")
        with maintenance(self.standby) as connection:
            assert _one(connection, "SELECT pg_promote(true, %s)", int(_WAIT_S_MAX)), "the standby was not promoted"
        self._answer_by(self.standby)

    def stop(self) -> None:
        for home in self._homes:
            embedded.stop(home)

    def _make_standby(self, copy: Path) -> EmbeddedServer:
        backup.backup(self._homes[0], copy, _say_nothing)
        backup.restore(self._homes[1], copy, _say_nothing)
        files = embedded.files_of(self._homes[1])
        account = find_account(files.data)
        # The server's user can't read the file, which belongs to the home's owner.
        password = files.data / "standby.pgpass"
        password.write_text(files.password_file.read_text(encoding="utf-8"), encoding="utf-8")
        password.chmod(0o600)
        signal_file = files.data / "standby.signal"
        signal_file.touch()
        with (files.data / "postgresql.auto.conf").open("a", encoding="utf-8") as settings:
            settings.write(
                f"primary_conninfo = 'host={self.primary.socket_directory} port={self.primary.port}"
                f" user={self.primary.user} passfile={password}'\n"
            )
        for path in (password, signal_file):
            account.own(path)
        return embedded.start(self._homes[1], _say_nothing)

    def _answer_by(self, server: EmbeddedServer) -> None:
        name = f".s.PGSQL.{_ADDRESS_PORT}"
        new = self._address / "new"
        new.symlink_to(server.socket_directory / f".s.PGSQL.{server.port}")
        new.replace(self._address / name)


@dataclass(frozen=True)
class Moment:
    """The two places in a run between which the new primary lacks the transactions.

    ``last_known`` and ``death`` are failpoints or one of the places named above; equal ones lose nothing. If the
    answer to a COMMIT ``is_lost``, its sender does not get it.
    """

    last_known: str
    death: str
    is_lost: bool = False

    def stops(self) -> list[str]:
        found = dict.fromkeys((self.last_known, self.death))
        return [place for place in found if place != BEFORE_THE_RUN]

    def __str__(self) -> str:
        return f"{self.last_known} to {self.death}{' unanswered' if self.is_lost else ''}".replace(" ", "-")


@dataclass(frozen=True)
class Outcome:
    """The report of one dataset; for a run that failed as a whole, only its error."""

    outcome: str
    error_family: str | None
    error: str | None


@dataclass(frozen=True)
class Survivor:
    """One run that goes through the failover, and the world that it works in."""

    moment: Moment
    lake: Lake
    worker: Worker
    ends_in: Path

    def outcome(self) -> Outcome:
        assert self.ends_in.exists(), "the run ended by something that is no error family"
        return Outcome(**json.loads(self.ends_in.read_text(encoding="utf-8")))

    def wait_at(self, place: str) -> None:
        self.worker.wait_until_stopped()
        assert self.worker.reached()[-1].partition("=")[0] == place, f"{self.moment}: stopped elsewhere"


def fail_over_under(pair: Pair, runs: Sequence[tuple[Moment, Lake]]) -> list[Survivor]:
    """Bring each lake's run to its moment, fail over once, and let all runs go on to their ends; in the given order."""
    started: dict[int, Survivor] = {}
    try:
        for number, (moment, lake) in enumerate(runs):
            if moment.last_known != BEFORE_THE_RUN:
                started[number] = _start(moment, lake)
        for survivor in started.values():
            survivor.wait_at(survivor.moment.last_known)
        pair.cut_off()
        for number, (moment, lake) in enumerate(runs):
            if number not in started:
                started[number] = _start(moment, lake)
            elif moment.death != moment.last_known:
                started[number].worker.wake_up()
        for survivor in started.values():
            survivor.wait_at(survivor.moment.death)
        pair.fail_over()
    finally:
        for survivor in started.values():
            survivor.worker.wake_up()
    for survivor in started.values():
        survivor.worker.wait()
    return [started[number] for number in range(len(runs))]


def _start(moment: Moment, lake: Lake) -> Survivor:
    log, ends_in = Path(lake.directory, "places.log"), Path(lake.directory, "outcome.json")
    process = FORKS.Process(target=_work, args=(lake, moment, str(log), str(ends_in)))
    process.start()
    return Survivor(moment, lake, Worker(process, log), ends_in)


def _work(lake: Lake, moment: Moment, log: str, ends_in: str) -> None:
    world = World(lake)
    points = [place for place in moment.stops() if place != COMMIT_OF_THE_SEAL]
    failpoints.arm(",".join(f"{point}=stop" for point in points), log)
    if moment.is_lost:
        # A second failpoint at the same place: it is reached after the first has woken up again.
        failpoints.arm(f"{Failpoint(moment.death)}=lose", log)
    if COMMIT_OF_THE_SEAL in moment.stops():
        _stop_before_commit(world.engine, _SEAL, log)
    try:
        (report,) = world.run().datasets
        ended = Outcome(str(report.outcome), report.error_family, report.error)
    except GobblinError as error:
        family = next(each for each in type(error).__mro__ if each.__base__ is GobblinError)
        ended = Outcome("RAISED", family.__name__, str(error))
    Path(ends_in).write_text(json.dumps(dataclasses.asdict(ended)), encoding="utf-8")


def _stop_before_commit(engine: Engine, statement: str, log: str) -> None:
    """Stop this process when the first transaction with ``statement`` has done everything except its COMMIT."""
    waiting = [False]

    def look(_connection: Any, _cursor: Any, text: str, _parameters: Any, _context: Any, _many: bool) -> None:
        waiting[0] = waiting[0] or statement in text

    def stop(_connection: Connection) -> None:
        if waiting[0]:
            event.remove(engine, "before_cursor_execute", look)
            waiting[0] = False
            with Path(log).open("a", encoding="utf-8") as out:
                out.write(f"{COMMIT_OF_THE_SEAL}=stop\n")
            stop_this_process()

    event.listen(engine, "before_cursor_execute", look)
    event.listen(engine, "commit", stop)


@contextmanager
def open_pair(directory: Path) -> Iterator[Pair]:
    pair = Pair(directory)
    try:
        yield pair
    finally:
        pair.stop()


def _is_free(files: ClusterFiles) -> bool:
    with try_lock(files.running_lock) as held:
        return held is not None


def _one(connection: "psycopg.Connection[tuple[object, ...]]", query: str, *arguments: object) -> object:
    row = connection.execute(query.encode(), arguments).fetchone()
    assert row is not None
    return row[0]


def _wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + _WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline, f"the server did not {what} in time"
        time.sleep(_POLL_S)


def _say_nothing(_line: str) -> None:
    pass
