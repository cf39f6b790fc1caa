"""The schema's versions: the version of a database, the version of this code, and the upgrade between them.

    ABSENT ──upgrade──▶ CURRENT        OLDER ──upgrade──▶ CURRENT        NEWER: only a newer package can use it

An upgrade is one transaction under a transaction-level advisory lock, so that many processes may ask for it at
once and a kill leaves the version that was there before. A role with CREATE on the database is enough.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import psycopg
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from gobblin_assets.db.table_metadata import SCHEMA, VERSION_TABLE
from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import CorruptionError, RejectedError, RetryableError

UPGRADE_LOCK_WAIT_S_MAX: Final = 600
UPGRADE_COMMAND: Final = "gobblin-assets db upgrade"

# Any constant does, as long as nobody else in the database uses it: the first bytes of "gobblin".
_UPGRADE_LOCK_KEY: Final = int.from_bytes(b"gobblin")

# Each file of a migration begins with its version; versions follow each other in the order of their names.
_MIGRATIONS: Final = Path(__file__).with_name("migrations") / "versions"


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


def upgrade(engine: Engine, say: Callable[[str], None] = lambda _line: None) -> SchemaStatus:
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
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK_KEY})
        status = _read_version(connection)
        if status.relation is SchemaRelation.CURRENT:
            return status
        if status.relation is SchemaRelation.NEWER:
            raise refusal(status)
        # IF NOT EXISTS would ask for CREATE on the database even where the schema is there.
        if connection.execute(text("SELECT to_regnamespace(:name)"), {"name": SCHEMA}).scalar() is None:
            connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
        from gobblin_assets.db.alembic_runs import run_migrations  # noqa: PLC0415  Alembic takes 0.25 s; most need none

        say(f"Upgrading the schema {SCHEMA!r} from {status.current or 'nothing'} to {status.head}.")
        run_migrations(connection)
        return _read_version(connection)

    try:
        return transact(engine, "schema upgrade", body)
    except DBAPIError as error:
        match error.orig:
            case psycopg.errors.InsufficientPrivilege():
                raise RejectedError(
                    f"the role may not make or change the schema {SCHEMA!r}: {error.orig.diag.message_primary}.",
                    field="GOBBLIN_DATABASE_URL",
                    hint=f"GRANT CREATE ON DATABASE … TO the role, or let the owner run: {UPGRADE_COMMAND}.",
                ) from error
            case psycopg.errors.LockNotAvailable():
                raise RetryableError(
                    f"another process has been using the schema {SCHEMA!r} for {UPGRADE_LOCK_WAIT_S_MAX} s.",
                    hint="Let running work end, then upgrade again.",
                ) from error
            case _:
                raise


def check(engine: Engine) -> SchemaStatus:
    """Compare the database with the code; changes nothing.

    Raises:
        RetryableError: the server does not answer.

    """

    def body(connection: Connection) -> SchemaStatus:
        status = _read_version(connection)
        if status.relation is not SchemaRelation.CURRENT:
            return status
        from gobblin_assets.db.alembic_runs import list_differences  # noqa: PLC0415  no start compares tables

        differences = list_differences(connection)
        return SchemaStatus(status.relation, status.current, status.head, tuple(differences))

    return transact(engine, "schema check", body)


def read_version(engine: Engine) -> SchemaStatus:
    """Like ``check``, but without comparing the tables: quick enough for every start."""
    with engine.connect() as connection:
        return _read_version(connection)


def refusal(status: SchemaStatus) -> RejectedError:
    """The error for a schema that is not CURRENT."""
    if status.relation is SchemaRelation.NEWER:
        return RejectedError(
            f"the schema {SCHEMA!r} is at version {status.current}, which is newer than this package's {status.head}.",
            field="schema",
            hint="Upgrade the package gobblin-assets.",
        )
    return RejectedError(
        f"the schema {SCHEMA!r} is at version {status.current or 'none'}, this package needs {status.head}.",
        field="schema",
        hint=f"Run: {UPGRADE_COMMAND}.",
    )


def list_versions() -> list[str]:
    """Those of this code, in their order."""
    return sorted(path.name.partition("_")[0] for path in _MIGRATIONS.glob("[0-9]*.py"))


def _read_version(connection: Connection) -> SchemaStatus:
    known = list_versions()
    found: list[str] = []
    if (
        connection.execute(text("SELECT to_regclass(:name)"), {"name": f"{SCHEMA}.{VERSION_TABLE}"}).scalar()
        is not None
    ):
        found = list(connection.execute(text(f"SELECT version_num FROM {SCHEMA}.{VERSION_TABLE}")).scalars())
    if not known or len(found) > 1:
        raise CorruptionError(f"the versions of the schema {SCHEMA!r} do not form a line: {found} before {known}.")
    current, head = found[0] if found else None, known[-1]
    match current:
        case None:
            relation = SchemaRelation.ABSENT
        case _ if current == head:
            relation = SchemaRelation.CURRENT
        case _:
            relation = SchemaRelation.OLDER if current in known else SchemaRelation.NEWER
    return SchemaStatus(relation, current, head)
