"""The Dagster instance of a home: its folder, and its storage beside the commit log."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Final

from sqlalchemy import URL, make_url

from gobblin_assets.db import embedded
from gobblin_assets.errors import RejectedError
from gobblin_assets.settings import DATABASE_URL_VARIABLE, Settings, make_home

DATABASE: Final = "dagster"
URL_VARIABLE: Final = "GOBBLIN_DAGSTER_URL"
HOME_VARIABLE: Final = "DAGSTER_HOME"

_DRIVER: Final = "postgresql+psycopg2"
_CONFIGURATION: Final = "dagster.yaml"


def prepare_instance(settings: Settings, report: Callable[[str], None]) -> dict[str, str]:
    """What the environment of `dagster dev` needs; its folder and, in the embedded server, its database are made.

    The folder is ``dagster`` in the home; a ``dagster.yaml`` that somebody put there stays as it is. The URL may
    hold a password: pass it on, never print it.
    """
    folder = settings.home / "dagster"
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
    return {HOME_VARIABLE: str(folder), URL_VARIABLE: storage_url(settings, report)}


def storage_url(settings: Settings, report: Callable[[str], None]) -> str:
    """Dagster's storage: a database of its own in the embedded server, else the database of the commit log.

    There Dagster's tables lie in the schema ``public``, and ours in ``gobblin``.
    """
    if settings.database_url is None:
        server = embedded.start(settings.home, report)
        embedded.create_database(server, DATABASE)
        return _with_driver(make_url(server.url(DATABASE)))
    url = make_url(settings.database_url)
    if url.get_backend_name() not in {"postgresql", "postgres"}:
        raise RejectedError(
            f"expected a Postgres URL, found the dialect {url.drivername!r}",
            field=DATABASE_URL_VARIABLE,
            hint="Set it to postgresql://user:password@host:5432/database.",
        )
    return _with_driver(url)


def _with_driver(url: URL) -> str:
    base, _, rest = url.set(drivername=_DRIVER).render_as_string(hide_password=False).partition("?")
    # libpq does not read a plus sign as a space.
    return f"{base}?{rest.replace('+', '%20')}" if rest else base


def _read_shipped() -> str:
    return Path(str(files("resources") / _CONFIGURATION)).read_text(encoding="utf-8")
