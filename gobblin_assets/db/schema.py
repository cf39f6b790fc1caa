"""Versions of schemas: the version of a database, the version of this code, and the upgrade between them.

A package has a history of versions for each schema that it keeps: the commit log has one, the service another, so that
neither locks out processes of an older release that only use the other.

    ABSENT ──upgrade──▶ CURRENT        OLDER ──upgrade──▶ CURRENT        NEWER: only a newer package can use it

An upgrade is one transaction under a transaction-level advisory lock, so that many processes may ask for it at
once and a kill leaves the version that was there before. A role with CREATE on the database is enough.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final

import psycopg
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from gobblin_assets.db.schema_history import LOG_HISTORY, SchemaHistory
from gobblin_assets.db.table_metadata import VERSION_TABLE
from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import CorruptionError, RejectedError, RetryableError

UPGRADE_LOCK_WAIT_S_MAX: Final = 600
UPGRADE_COMMAND: Final = "gobblin-assets db upgrade"


class SchemaRelation(StrEnum):
    """The database's schema compared with this code."""

    ABSENT = "absent"  # -> current, by an upgrade
    OLDER = "older"  # -> current, by an upgrade
    CURRENT = "current"
    NEWER = "newer"  # a revision that this code has never heard of


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """The version of a schema. ``differences``: of its tables from those of the code; compared only when CURRENT."""

    relation: SchemaRelation
    current: str | None
    head: str
    differences: tuple[str, ...] = ()


def upgrade(
    engine: Engine, say: Callable[[str], None] = lambda _line: None, history: SchemaHistory = LOG_HISTORY
) -> SchemaStatus:
    """Bring the schema to this code's version; nothing happens if it is there already.

    Raises:
        RejectedError: the schema is newer than the code, or the role may not create it.
        RetryableError: another upgrade has held the lock for ``UPGRADE_LOCK_WAIT_S_MAX``.

    """

    def body(connection: Connection) -> SchemaStatus:
        connection.execute(text(f"SET LOCAL lock_timeout = '{UPGRADE_LOCK_WAIT_S_MAX}s'"))
        # A migration of large tables takes as long as it takes. (Postgres before 17 has no such limit to lift.)
        connection.execute(
            text("SELECT set_config(name, '0', true) FROM pg_settings WHERE name = 'transaction_timeout'")
        )
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": history.lock_key})
        status = _read_version(connection, history)
        if status.relation is SchemaRelation.CURRENT:
            return status
        if status.relation is SchemaRelation.NEWER:
            raise refusal(status, history)
        # IF NOT EXISTS would ask for CREATE on the database even where the schema is there.
        if connection.execute(text("SELECT to_regnamespace(:name)"), {"name": history.schema}).scalar() is None:
            connection.execute(text(f"CREATE SCHEMA {history.schema}"))
        from gobblin_assets.db.alembic_runs import run_migrations  # noqa: PLC0415  Alembic takes 0.25 s; most need none

        say(f"Upgrading the schema {history.schema!r} from {status.current or 'nothing'} to {status.head}.")
        run_migrations(connection, history)
        return _read_version(connection, history)

    try:
        return transact(engine, "schema upgrade", body)
    except DBAPIError as error:
        match error.orig:
            case psycopg.errors.InsufficientPrivilege():
                raise RejectedError(
                    f"the role may not make or change the schema {history.schema!r}:"
                    f" {error.orig.diag.message_primary}.",
                    field="GOBBLIN_DATABASE_URL",
                    hint=f"GRANT CREATE ON DATABASE … TO the role, or let the owner run: {UPGRADE_COMMAND}.",
                ) from error
            case psycopg.errors.LockNotAvailable():
                raise RetryableError(
                    f"another process has been using the schema {history.schema!r} for {UPGRADE_LOCK_WAIT_S_MAX} s.",
                    hint="Let running work end, then upgrade again.",
                ) from error
            case _:
                raise


def check(engine: Engine, history: SchemaHistory = LOG_HISTORY) -> SchemaStatus:
    """Compare the database with the code; changes nothing.

    Raises:
        RetryableError: the server does not answer.

    """

    def body(connection: Connection) -> SchemaStatus:
        status = _read_version(connection, history)
        if status.relation is not SchemaRelation.CURRENT:
            return status
        from gobblin_assets.db.alembic_runs import list_differences  # noqa: PLC0415  no start compares tables

        differences = list_differences(connection, history)
        return SchemaStatus(status.relation, status.current, status.head, tuple(differences))

    return transact(engine, "schema check", body)


def read_version(engine: Engine, history: SchemaHistory = LOG_HISTORY) -> SchemaStatus:
    """Like ``check``, but without comparing the tables: quick enough for every start."""
    with engine.connect() as connection:
        return _read_version(connection, history)


def is_next(status: SchemaStatus) -> bool:
    """Whether the schema is at the version that follows this code's, as versions are numbered."""
    current = status.current or ""
    return status.relation is SchemaRelation.NEWER and current.isdecimal() and int(current) == int(status.head) + 1


def refusal(status: SchemaStatus, history: SchemaHistory = LOG_HISTORY) -> RejectedError:
    """The error for a schema that is not CURRENT."""
    if status.relation is SchemaRelation.NEWER:
        return RejectedError(
            f"the schema {history.schema!r} is at version {status.current}, which is newer than this package's"
            f" {status.head}.",
            field="schema",
            hint="Upgrade the package gobblin-assets.",
        )
    return RejectedError(
        f"the schema {history.schema!r} is at version {status.current or 'none'}, this package needs {status.head}.",
        field="schema",
        hint=f"Run: {UPGRADE_COMMAND}{'' if history is LOG_HISTORY else ' --service'}.",
    )


def list_versions(history: SchemaHistory = LOG_HISTORY) -> list[str]:
    """Those of this code, in their order."""
    return sorted(path.name.partition("_")[0] for path in (history.migrations / "versions").glob("[0-9]*.py"))


@cache
def find_head(history: SchemaHistory = LOG_HISTORY) -> str:
    """The version of this code."""
    return list_versions(history)[-1]


def _read_version(connection: Connection, history: SchemaHistory) -> SchemaStatus:
    known = list_versions(history)
    found: list[str] = []
    if (
        connection.execute(text("SELECT to_regclass(:name)"), {"name": f"{history.schema}.{VERSION_TABLE}"}).scalar()
        is not None
    ):
        found = list(connection.execute(text(f"SELECT version_num FROM {history.schema}.{VERSION_TABLE}")).scalars())
    if not known or len(found) > 1:
        raise CorruptionError(
            f"the versions of the schema {history.schema!r} do not form a line: {found} before {known}."
        )
    current, head = found[0] if found else None, known[-1]
    match current:
        case None:
            relation = SchemaRelation.ABSENT
        case _ if current == head:
            relation = SchemaRelation.CURRENT
        case _:
            relation = SchemaRelation.OLDER if current in known else SchemaRelation.NEWER
    return SchemaStatus(relation, current, head)
