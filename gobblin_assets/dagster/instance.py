"""The Dagster instance of a home: its folder, and its storage beside the commit log."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Final

import dagster as dg
import psycopg2
from psycopg2.extensions import make_dsn, parse_dsn
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from gobblin_assets.db import embedded
from gobblin_assets.db.libpq import NEUTRAL, neutral_parameters
from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.settings import DAGSTER_URL_VARIABLE, DATABASE_URL_VARIABLE, Settings, make_home

Instance = dg.DagsterInstance

DATABASE: Final = "dagster"
URL_VARIABLE: Final = DAGSTER_URL_VARIABLE
HOME_VARIABLE: Final = "DAGSTER_HOME"

_DRIVER: Final = "postgresql+psycopg2"
_FOLDER: Final = "dagster"
# No job has this name: the question only shows whether the storage answers.
_NO_JOB: Final = "-"
_CONFIGURATION: Final = "dagster.yaml"


def prepare_instance(settings: Settings, say: Callable[[str], None]) -> dict[str, str]:
    """What the environment of `dagster dev` needs; its folder and, in the embedded server, its database are made.

    The folder is ``dagster`` in the home; a ``dagster.yaml`` that somebody put there stays as it is. The URL may
    hold a password: pass it on, never print it.
    """
    folder = settings.home / _FOLDER
    configuration = folder / _CONFIGURATION
    try:
        make_home(settings.home)
        folder.mkdir(exist_ok=True)
        if not configuration.exists():
            configuration.write_text(_read_shipped(), encoding="utf-8")
    except OSError as error:
        raise RejectedError(
            f"{configuration} can't be written: {error.strerror}", field="home", hint="Make its folder writable."
        ) from error
    return {HOME_VARIABLE: str(folder), URL_VARIABLE: storage_url(settings, say)}


def find_instance(
    settings: Settings, environment: Mapping[str, str], say: Callable[[str], None]
) -> dg.DagsterInstance | None:
    """The instance for reports from outside Dagster: the one of DAGSTER_HOME, else the home's.

    The home's instance is made if missing, except in the database of an external log: None if it was not made there.

    Raises:
        RejectedError: DAGSTER_HOME names a folder that can't be opened.
        RetryableError: the home's instance can't be opened.

    """
    named = environment.get(HOME_VARIABLE)
    if named:
        try:
            instance = dg.DagsterInstance.from_config(str(Path(named).expanduser()))
        except Exception as error:
            raise RejectedError(
                f"the Dagster instance in {named!r} can't be opened: {_in_short(error)}",
                field=HOME_VARIABLE,
                hint="Correct it, or unset it.",
            ) from error
        return instance
    is_external = settings.database_url is not None and settings.dagster_url is None
    if is_external and not (settings.home / _FOLDER / _CONFIGURATION).exists():
        return None
    variables = prepare_instance(settings, say)
    try:
        # Its configuration names the variable; everything that it opens is opened here.
        with _environment(URL_VARIABLE, variables[URL_VARIABLE]):
            instance = dg.DagsterInstance.from_config(variables[HOME_VARIABLE])
            instance.get_runs_count(dg.RunsFilter(job_name=_NO_JOB))
    except Exception as error:
        raise RetryableError(
            f"the Dagster instance in {variables[HOME_VARIABLE]} can't be opened: {_in_short(error)}",
            hint="Look after its storage.",
        ) from error
    return instance


def storage_url(settings: Settings, say: Callable[[str], None]) -> str:
    """Dagster's storage: what GOBBLIN_DAGSTER_URL names; else a database of its own in the embedded server, or the
    database of the commit log.

    There Dagster's tables lie in the schema ``public``, and ours in ``gobblin``. RejectedError for a URL that is not
    one of Postgres.
    """
    if settings.dagster_url is not None:
        return _with_driver(_read_url(settings.dagster_url, URL_VARIABLE))
    if settings.database_url is None:
        server = embedded.start(settings.home, say)
        embedded.create_database(server, DATABASE)
        return _with_driver(make_url(server.url(DATABASE)))
    return _with_driver(_read_url(settings.database_url, DATABASE_URL_VARIABLE))


def _read_url(text: str, variable: str) -> URL:
    hint = "Set it to postgresql://user:password@host:5432/database."
    try:
        url = make_url(text)
    except ArgumentError:
        # Without its cause: it repeats the text, which may hold a password.
        raise RejectedError("expected a Postgres URL, found none", field=variable, hint=hint) from None
    if url.get_backend_name() not in {"postgresql", "postgres"}:
        raise RejectedError(f"expected a Postgres URL, found the dialect {url.drivername!r}", field=variable, hint=hint)
    return url


def _with_driver(url: URL) -> str:
    given = {*url.translate_connect_args(database="dbname", username="user"), *url.query}
    # A URL drops an empty value, and SQLAlchemy passes a `dsn` on to psycopg 2 beside the rest, which wins.
    neutral = neutral_parameters(given, [name for name in NEUTRAL if _is_known(name)])
    if neutral:
        url = url.update_query_dict({"dsn": make_dsn(**neutral)})
    base, _, rest = url.set(drivername=_DRIVER).render_as_string(hide_password=False).partition("?")
    # libpq does not read a plus sign as a space.
    return f"{base}?{rest.replace('+', '%20')}" if rest else base


def _is_known(parameter: str) -> bool:
    """Whether the libpq that psycopg 2 brings, which may be an older one than psycopg's, has the parameter."""
    try:
        parse_dsn(f"{parameter}=x")
    except psycopg2.ProgrammingError:
        return False
    return True


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _in_short(error: BaseException) -> str:
    """Without the text of a driver's error, which may hold a password."""
    return type(error).__name__


def _read_shipped() -> str:
    return Path(str(files("gobblin_assets.dagster") / _CONFIGURATION)).read_text(encoding="utf-8")
