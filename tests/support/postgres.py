"""One embedded Postgres for a whole test session, shared by xdist's workers, with a database for each test.

The process that the user started makes the home and passes it on through the environment. The first test that
needs the server starts it; the process that made the home stops it in the end. The next session removes what a killed
session left behind: a session holds a lock on its home for as long as it lives.
"""

import fcntl
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from gobblin_assets.db import embedded, schema
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.engine import open_external
from gobblin_assets.db.schema_history import LOG_HISTORY, SchemaHistory
from tests.support.database_pool import DatabasePool

SESSION_HOME_VARIABLE = "GOBBLIN_TEST_SESSION_HOME"
LOGICAL_HOME = "logical"
"""The home of the session's second server, below its first one's."""

_PREFIX = "gobblin-tests-"
_LOCK = "session.lock"
_TEMPLATE_LOCK_KEY = 1
MAINTENANCE_S_MAX = 60
"""Reached only if something is wrong: DROP DATABASE waits until every backend of the server has noticed."""
# A database's pages need no sync here: no test takes the machine's power away.
_FASTER = ("fsync", "synchronous_commit", "full_page_writes")


@dataclass(frozen=True, slots=True)
class Database:
    """An empty database, in the parts that JDBC and psycopg need. ``url`` is SQLAlchemy's, without the password."""

    host: str
    port: int
    user: str
    password: str
    database: str
    url: str
    jdbc_url: str

    def connect(self, *, autocommit: bool = True) -> "psycopg.Connection[tuple[object, ...]]":
        return psycopg.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            dbname=self.database,
            autocommit=autocommit,
        )


def make_reachable_directory(prefix: str = _PREFIX) -> Path:
    """A temporary directory that the server's user can pass through; pytest's own (0700) are closed to it."""
    made = Path(tempfile.mkdtemp(prefix=prefix))
    made.chmod(0o711)
    return made


class SessionHome:
    """The home of this test session's server; held by the process that the user started."""

    def __init__(self) -> None:
        _sweep_dead_sessions()
        self.path = make_reachable_directory()
        self._lock = (self.path / _LOCK).open("w", encoding="ascii")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.environ[SESSION_HOME_VARIABLE] = str(self.path)

    def close(self) -> None:
        _remove_home(self.path)
        self._lock.close()
        os.environ.pop(SESSION_HOME_VARIABLE, None)


def start_session_server() -> EmbeddedServer:
    """The session's server; the first call starts it."""
    server = embedded.start(Path(os.environ[SESSION_HOME_VARIABLE]), lambda _line: None)
    _require_template(server, (LOG_HISTORY,))
    return server


def _require_template(server: EmbeddedServer, histories: Sequence[SchemaHistory]) -> str:
    """A database with the schemas, to make others of; the first call of a session makes it."""
    name = "_".join(["template_of", *(history.schema for history in histories)])
    with maintenance(server) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [_TEMPLATE_LOCK_KEY])
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            return name
        for setting in _FASTER:
            connection.execute(sql.SQL("ALTER SYSTEM SET {} = off").format(sql.Identifier(setting)))
        connection.execute("SELECT pg_reload_conf()")
        unfinished = f"{name}_unfinished"
        embedded.create_database(server, unfinished)
        engine = open_external(server.url(unfinished))
        for history in histories:
            schema.upgrade(engine, history=history)
        engine.dispose()
        _do(connection, "ALTER DATABASE {} RENAME TO {}", unfinished, name)
        # Any other connection to it would stop CREATE DATABASE … TEMPLATE.
        _do(connection, "ALTER DATABASE {} ALLOW_CONNECTIONS false", name)
    return name


@contextmanager
def temporary_database(server: EmbeddedServer) -> Iterator[str]:
    """An empty database of its own for the block."""
    name = _create(server, "template1")
    try:
        yield name
    finally:
        _drop(server, name)


@contextmanager
def migrated_database(server: EmbeddedServer, pool: DatabasePool) -> Iterator[str]:
    """A database of its own for the block, with the schemas of ``pool`` and no rows, as earlier blocks left it."""
    if pool.names:
        name = pool.names.pop()
    else:
        name = _create(server, _require_template(server, pool.histories))
        with maintenance(server, name) as connection:
            pool.learn(connection)
    try:
        yield name
    finally:
        with maintenance(server, name) as connection:
            is_kept = pool.give_back(connection, name)
        if not is_kept:
            _drop(server, name)


def describe_database(server: EmbeddedServer, name: str) -> Database:
    return Database(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password(),
        database=name,
        url=server.tcp_url(name),
        jdbc_url=server.jdbc_url(name),
    )


@contextmanager
def maintenance(
    server: EmbeddedServer, database: str = embedded.MAINTENANCE_DATABASE
) -> Iterator["psycopg.Connection[tuple[object, ...]]"]:
    """An autocommitting superuser's connection to the server, by default outside of any test's database."""
    with psycopg.connect(
        host=str(server.socket_directory),
        port=server.port,
        user=server.user,
        passfile=str(server.password_file),
        dbname=database,
        autocommit=True,
        options=f"-c statement_timeout={MAINTENANCE_S_MAX}s",
    ) as connection:
        yield connection


def _create(server: EmbeddedServer, template: str) -> str:
    name = f"test_{uuid.uuid4().hex}"
    with maintenance(server) as connection:
        # Half the cost of the server's default, which writes every page to its log.
        _do(connection, "CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY", name, template)
    return name


def _drop(server: EmbeddedServer, name: str) -> None:
    with maintenance(server) as connection:
        _do(connection, "DROP DATABASE {} WITH (FORCE)", name)


def _do(connection: "psycopg.Connection[tuple[object, ...]]", statement: str, *names: str) -> None:
    connection.execute(sql.SQL(statement).format(*(sql.Identifier(name) for name in names)))


def _sweep_dead_sessions() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        if path.stat().st_uid != os.geteuid():
            continue
        with path.open("w", encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            _remove_home(path.parent)


def _remove_home(path: Path) -> None:
    embedded.stop(path)
    embedded.stop(path / LOGICAL_HOME)
    shutil.rmtree(path)
