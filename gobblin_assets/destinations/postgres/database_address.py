"""The database of a connection by its name, from the environment: the variables are those of a JDBC source."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

from gobblin_assets.db.jdbc_url import plan_libpq, read_postgres_url
from gobblin_assets.db.transactions import is_passing_state
from gobblin_assets.errors import GobblinError, OutcomeUnknownError, RejectedError, RetryableError

_LOCK_S: Final = 30
_IDLE_S: Final = 20
"""A paused process holds the lock of a mark for so long at most; others wait for longer."""

_SETTINGS: Final = (
    "SELECT set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO, MDY', false),"
    " set_config('search_path', '', false), set_config('standard_conforming_strings', 'on', false),"
    f" set_config('lock_timeout', '{_LOCK_S}s', false),"
    f" set_config('idle_in_transaction_session_timeout', '{_IDLE_S}s', false)"
)

_BOUNDED: Final = "SELECT set_config(name, '1800s', false) FROM pg_settings WHERE name = 'transaction_timeout'"
"""Where the server has it: a process that is paused while it copies holds the lock of a table for so long at most."""

_OUT_OF_REACH: Final = ("08", "57P", "53300")
"""States of a lost connection, of a server that starts or ends, and of one that takes no more connections."""

Session = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """The address of a database. ``name``: what the job file calls the connection."""

    name: str
    url: str
    user: str | None
    password: str | None = field(repr=False)

    def variable(self, part: str) -> str:
        """The name of the variable that gives this part."""
        return variable_of(self.name, part)

    def open_session(self) -> Session:
        """A session whose transactions are begun by ``transaction()``."""
        try:
            session: Session = psycopg.connect(**plan_libpq(self.url, self.user, self.password, {}), autocommit=True)
            session.execute(_SETTINGS)
            session.execute(_BOUNDED)
        except psycopg.Error as error:
            raise self.judge(error) from None
        encoding = session.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            session.close()
            raise RejectedError(
                f"the database's encoding is {encoding}; expected UTF8",
                field=self.variable("URL"),
                hint="Name a database whose encoding is UTF8.",
            )
        return session

    def judge(self, error: psycopg.Error) -> GobblinError:
        """RejectedError for what a person can correct, OutcomeUnknownError for a lost connection, else RetryableError.

        Without the error itself: its details may hold values of rows.
        """
        state = error.sqlstate or ""
        said = error.diag.message_primary or self._scrub(str(error).strip().partition("\n")[0])
        lowered = said.lower()
        if state.startswith("28") or "authentication failed" in lowered or "no password supplied" in lowered:
            return RejectedError(
                f"the database refused the login: {said}",
                field=self.variable("PASSWORD"),
                hint=f"Give {self.variable('USER')} and the password that belongs to it.",
            )
        if state == "3D000":
            return RejectedError(said, field=self.variable("URL"), hint="Correct the database's name.")
        if state == "42501":
            return RejectedError(
                said,
                field=self.variable("USER"),
                hint="Grant the user CREATE on the schemas of the tables and of the marks, and INSERT on the tables. "
                "It has to own the table of marks if an earlier release made it.",
            )
        if state.startswith(("22", "23", "42")):
            where = (error.diag.context or "").partition(":")[0].partition("\n")[0]
            return RejectedError(
                f"the database refused the rows: {said}{f' ({where})' if where else ''}",
                field="into",
                hint="Correct the table or its constraints, then resume the publication; or have a converter change "
                "such rows, and abandon it.",
                sqlstate=state,
            )
        if not state or state.startswith(_OUT_OF_REACH):
            # Not counted as a failed try: however long the database is away, nobody has to unblock anything.
            return OutcomeUnknownError(
                f"the database of the connection {self.name!r} is out of reach, and only it knows what it has: {said}",
                hint=f"Check {self.variable('URL')}, and that the server runs. It is asked again.",
                sqlstate=state,
            )
        return RetryableError(
            f"the database of the connection {self.name!r} failed: {said}",
            passes=is_passing_state(state),
            sqlstate=state,
        )

    def _scrub(self, text: str) -> str:
        return text.replace(self.password, "***") if self.password else text


def read_address(name: str, environment: Mapping[str, str] | None = None) -> DatabaseAddress:
    """RejectedError names the variable that is missing or wrong, and never shows a value."""
    found = os.environ if environment is None else environment
    variable = variable_of(name, "URL")
    url = found.get(variable, "")
    if not url:
        raise RejectedError(
            f"expected the URL of the connection {name!r} in the environment, found none",
            field=variable,
            hint="Set it to postgresql://host:5432/database, and beside it …_USER and …_PASSWORD.",
        )
    user, password = variable_of(name, "USER"), variable_of(name, "PASSWORD")
    read = read_postgres_url(url, field=variable, beside=f"{user} and {password}")
    if read is None:
        raise RejectedError(
            "expected a database that can say whether a publication is there, found no URL of Postgres",
            field=variable,
            hint="Write it like postgresql://host:5432/database. Other databases are not loaded.",
        )
    return DatabaseAddress(name, read, found.get(user) or None, found.get(password) or None)


def variable_of(name: str, part: str) -> str:
    """The name of the variable of a part of a connection."""
    return f"GOBBLIN_JDBC_{name.upper()}_{part}"
