"""The one way to a database connection: the embedded Postgres, or the server that GOBBLIN_DATABASE_URL names."""

import os
import threading
import urllib.parse
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection, ExceptionContext
from sqlalchemy.exc import ArgumentError, DBAPIError

from gobblin_assets.db import embedded, schema
from gobblin_assets.db.libpq import blamed_variable, neutral_parameters
from gobblin_assets.db.supervision import revive
from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.settings import DATABASE_URL_VARIABLE, Settings

DATABASE: Final = "gobblin"
APPLICATION_NAME: Final = "gobblin-assets"

# Enough for one run's driver threads and its heartbeat; a hundred runs still fit into an ordinary server.
POOL_SIZE: Final = 5
POOL_OVERFLOW_MAX: Final = 10
POOL_WAIT_S_MAX: Final = 30
CONNECT_WAIT_S_MAX: Final = 10
# A process paused in the middle of a transaction holds its locks. After this time the server takes them back, so that a
# process that takes the dataset over waits no longer. Our transactions do nothing slow between their statements.
IDLE_IN_TRANSACTION_S_MAX: Final = 5
# That limit does not act on a process paused while it sends a statement; this one does, from Postgres 17 on.
TRANSACTION_S_MAX: Final = 120

# A peer that vanished is noticed within a minute, whether idle (keepalives) or with data on its way.
SILENT_S_MAX: Final = 60

_CONNECT_ARGUMENTS: Final[dict[str, Any]] = {
    "connect_timeout": CONNECT_WAIT_S_MAX,
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "application_name": APPLICATION_NAME,
}

_DIALECTS: Final = {"postgresql", "postgres", "postgresql+psycopg", "postgresql+psycopg2"}
_SECRET_OPTIONS: Final = ("password", "sslpassword", "oauth_client_secret")
_SECRET_MASK: Final = "***"  # noqa: S105  what stands where a secret was
# Answers of a server about a mistake that waiting does not correct; a refused connection has no SQLSTATE.
_MISTAKES: Final = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied")
_URL_HINT: Final = f"Set {DATABASE_URL_VARIABLE} to postgresql://user:password@host:5432/database."


def connect(settings: Settings, say: Callable[[str], None], *, silent_s_max: int = SILENT_S_MAX) -> Engine:
    """An engine whose schema this code can work with. Its repr shows no password.

    ``silent_s_max``: a server that confirms nothing of what is sent for so long is away, unless the URL says
    otherwise.

    The embedded server is started, and its schema upgraded, if necessary. The schema of an external server is only
    checked.

    Raises:
        RejectedError: not a Postgres URL, wrong credentials, or a schema that is older or newer than the code.
        RetryableError: the server can't be reached.

    """
    if settings.database_url is None:
        engine = open_embedded(settings, say)
        try:
            schema.upgrade(engine, say)
        except BaseException:
            engine.dispose()
            raise
        return engine
    engine = open_external(settings.database_url, silent_s_max=silent_s_max)
    try:
        status = _first_look(engine)
        if status.relation is not schema.SchemaRelation.CURRENT:
            raise schema.refusal(status)
    except BaseException:
        engine.dispose()
        raise
    return engine


def open_for_upgrade(settings: Settings, say: Callable[[str], None]) -> Engine:
    """An engine for any version of the schema: only for ``db upgrade`` and ``db check``.

    Raises:
        RejectedError: not a Postgres URL, or wrong credentials.
        RetryableError: the server can't be reached.

    """
    if settings.database_url is None:
        return open_embedded(settings, say)
    engine = open_external(settings.database_url)
    try:
        _first_look(engine)
    except BaseException:
        engine.dispose()
        raise
    return engine


def open_embedded(settings: Settings, say: Callable[[str], None]) -> Engine:
    """The embedded server's database ``gobblin``, both made if necessary, with its schema as it is.

    If the server dies, the engine's next connection starts it again; one that somebody stopped stays down.
    """
    server = embedded.start(settings.home, say)
    embedded.create_database(server, DATABASE)
    engine = _make_engine(make_url(server.url(DATABASE)), {})
    event.listen(engine, "do_connect", _reviver(settings.home, say))
    return engine


def open_external(database_url: str, *, silent_s_max: int = SILENT_S_MAX) -> Engine:
    """An engine for a URL; connects to nothing."""
    return _make_engine(*parse_database_url(database_url), silent_s_max=silent_s_max)


def parse_database_url(database_url: str) -> tuple[URL, dict[str, str]]:
    """The URL with our driver, and the secrets of its query as connection arguments, where no repr shows them.

    Raises:
        RejectedError: not a Postgres URL. The message never repeats any of it.

    """
    if database_url.partition("?")[0].count("@") > 1:
        # The rest of such a password would pass for a host name, and be printed as one.
        raise RejectedError(
            "the URL has more than one '@'.",
            field=DATABASE_URL_VARIABLE,
            hint="Write an '@' inside the user or password as %40.",
        )
    try:
        url = make_url(database_url)
    except (ArgumentError, ValueError):
        raise RejectedError("this is no database URL.", field=DATABASE_URL_VARIABLE, hint=_URL_HINT) from None
    if url.drivername not in _DIALECTS:
        raise RejectedError(
            f"expected a Postgres URL, found the dialect {url.drivername!r}.",
            field=DATABASE_URL_VARIABLE,
            hint=_URL_HINT,
        )
    secrets = {name: str(url.query[name]) for name in _SECRET_OPTIONS if name in url.query}
    return url.set(drivername=embedded.DRIVER).difference_update_query(secrets), secrets


def scrub(message: str, secrets: Collection[str]) -> str:
    """The message without secrets, whether written plainly or as in a URL."""
    for secret in sorted(secrets, key=len, reverse=True):
        for written in {secret, urllib.parse.quote(secret, safe=""), urllib.parse.quote_plus(secret)}:
            message = message.replace(written, _SECRET_MASK)
    return message


def _make_engine(url: URL, secrets: dict[str, str], *, silent_s_max: int = SILENT_S_MAX) -> Engine:
    arguments = {**_CONNECT_ARGUMENTS, "tcp_user_timeout": 1_000 * silent_s_max}
    arguments["keepalives_idle"] = min(arguments["keepalives_idle"], silent_s_max)
    ours = {name: value for name, value in arguments.items() if name not in url.query}
    asked = {*url.translate_connect_args(database="dbname", username="user"), *url.query, *ours, *secrets}
    given = ours | neutral_parameters(asked)
    engine = create_engine(
        url,
        isolation_level="READ COMMITTED",
        pool_pre_ping=True,
        pool_size=POOL_SIZE,
        max_overflow=POOL_OVERFLOW_MAX,
        pool_timeout=POOL_WAIT_S_MAX,
        # Parameters hold whole segments, and error messages travel into logs.
        hide_parameters=True,
        connect_args=given | secrets,
    )
    passwords = {secret for secret in (url.password, *secrets.values()) if secret}
    # First of all: SQLAlchemy asks a new connection for its default schema.
    event.listen(engine, "connect", _settle_session, insert=True)
    if passwords:
        event.listen(engine, "handle_error", _scrubber(passwords))
    return engine


def _reviver(home: Path, say: Callable[[str], None]) -> Callable[..., None]:
    lock = threading.Lock()

    def revive_first(*_connecting: object) -> None:
        # A process' threads wait for the one that starts the server; other processes try to connect again.
        with lock:
            try:
                revive(home, say)
            except (GobblinError, OSError) as error:
                # The connection fails, and its transaction is tried again within its bounds.
                say(f"The embedded Postgres of {home} has died and can't be started: {error}")

    return revive_first


def _settle_session(connection: DBAPIConnection, _record: object) -> None:
    """Set the session so that timestamps are in UTC and only qualified names resolve, whatever the role's settings are.

    By default a role with the name of our schema would find our tables without the schema's name.
    """
    cursor = connection.cursor()
    cursor.execute(
        "SELECT set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO, MDY', false),"
        " set_config('search_path', '', false),"
        f" set_config('idle_in_transaction_session_timeout', '{IDLE_IN_TRANSACTION_S_MAX}s', false)"
    )
    cursor.execute(
        f"SELECT set_config(name, '{TRANSACTION_S_MAX}s', false) FROM pg_settings WHERE name = 'transaction_timeout'"
    )
    cursor.close()
    connection.commit()


def _scrubber(passwords: Collection[str]) -> Callable[[ExceptionContext], None]:
    def scrub_error(context: ExceptionContext) -> None:
        for error in (context.original_exception, context.sqlalchemy_exception):
            if error is not None:
                error.args = tuple(scrub(part, passwords) if isinstance(part, str) else part for part in error.args)

    return scrub_error


def _first_look(engine: Engine) -> schema.SchemaStatus:
    try:
        return schema.read_version(engine)
    except DBAPIError as error:
        said = str(error.orig).strip()
        if variable := blamed_variable(said, os.environ):
            raise RejectedError(said, field=variable, hint="Unset the variable in this process.") from None
        where = f"{engine.url.host or 'the local socket'}:{engine.url.port or 5432}, database {engine.url.database!r}"
        if any(mistake in said for mistake in _MISTAKES):
            raise RejectedError(f"{where}: {said}", field=DATABASE_URL_VARIABLE, hint=_URL_HINT) from None
        raise RetryableError(
            f"the Postgres server at {where} does not answer: {said}",
            hint=f"Look whether it runs, and at {DATABASE_URL_VARIABLE}.",
        ) from None
