"""Settings from the process's environment, which entry points read once and pass on as a value.

Variables of libpq that act whatever a program gives are removed here. Each command does so when it starts, also one
that opens no connection: this module imports no driver.
"""

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DATABASE_URL_VARIABLE = "GOBBLIN_DATABASE_URL"
HOME_VARIABLE = "GOBBLIN_HOME"
DAGSTER_URL_VARIABLE = "GOBBLIN_DAGSTER_URL"

UNASKED_VARIABLES: Final = ("PGSERVICE", "PGTZ", "PGDATESTYLE", "PGGEQO")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings. ``home`` holds the embedded Postgres, the warm Spark server's files and discovery states.

    ``database_url`` is None for the embedded Postgres; else a SQLAlchemy URL of an external server (its schema is
    upgraded only on request). ``dagster_url``: where Dagster's storage is; None: beside the log.
    """

    home: Path
    database_url: str | None = None
    dagster_url: str | None = None

    def __repr__(self) -> str:
        """Without the URLs, which may carry passwords."""
        return f"Settings(home={str(self.home)!r}, database={'given' if self.database_url else 'embedded'})"

    def discovery_path(self, job: str) -> Path:
        """Where ``gobblin-assets discover`` writes the tables that it found for a job."""
        return self.home / "discovery" / f"{job}.json"


def cache_folder() -> Path:
    """The folder of the user's cache for what can be made or fetched again. It may not be there yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "gobblin-assets"


def make_home(home: Path) -> None:
    """Make the folder unless it exists. git ignores a folder that is made here: it holds a database and its password.

    Raises OSError.
    """
    home.parent.mkdir(parents=True, exist_ok=True)
    try:
        home.mkdir()
    except FileExistsError:
        # The folder belongs to a person, or another process has made it and takes care of it.
        return
    (home / ".gitignore").write_text("*\n", encoding="utf-8")


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Read ``GOBBLIN_HOME`` (default ``.gobblin`` in the working directory) and the URLs of its databases."""
    variables = os.environ if environment is None else environment
    home = Path(variables.get(HOME_VARIABLE) or ".gobblin").expanduser().absolute()
    return Settings(home, variables.get(DATABASE_URL_VARIABLE) or None, variables.get(DAGSTER_URL_VARIABLE) or None)


def forget_unasked_variables(environment: MutableMapping[str, str]) -> None:
    """Remove variables that no parameter overrides from a process's environment, before any thread runs in it."""
    for name in UNASKED_VARIABLES:
        environment.pop(name, None)
