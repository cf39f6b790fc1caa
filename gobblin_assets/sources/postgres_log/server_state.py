"""What a Postgres server says of itself, of a replication slot, and of the tables of a publication."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import psycopg

from gobblin_assets.errors import RetryableError
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.names import TableName
from gobblin_assets.sources.jdbc.postgres import judge_postgres
from gobblin_assets.sources.jdbc.postgres_sessions import SourceSession, open_source_session
from gobblin_assets.sources.jdbc.postgres_tables import ROW_IDENTITY
from gobblin_assets.sources.postgres_log.pgoutput import parse_lsn
from gobblin_assets.sources.postgres_log.table_terms import TermsLook, look_at_terms

APPLICATION: Final = "gobblin-assets"
"""The beginning of the name under which our readers of slots are seen at the server."""

LogSession = SourceSession

_SERVER: Final = """
    SELECT s.system_identifier::text, current_setting('server_version_num')::int, current_setting('wal_level'),
           pg_is_in_recovery(),
           CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_current_wal_flush_lsn()::text END,
           CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_walfile_name(pg_current_wal_insert_lsn()) END,
           r.rolsuper OR r.rolreplication OR EXISTS (
               SELECT FROM pg_roles m WHERE m.rolname IN ('rds_replication', 'cloudsqlsuperuser', 'azure_pg_admin')
                AND pg_has_role(current_user, m.oid, 'MEMBER'))
      FROM pg_control_system() s, pg_roles r WHERE r.rolname = current_user"""

# Of columns that older servers lack, nothing is said.
_SLOT: Final = """
    SELECT to_jsonb(s) || jsonb_build_object('application', a.application_name,
                                             'is_here', coalesce(s.database = current_database(), false),
                                             'retained', CASE WHEN pg_is_in_recovery() THEN NULL
                                                              ELSE pg_current_wal_lsn() - s.restart_lsn END)
      FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
     WHERE s.slot_name = %s"""

_END: Final = "SELECT pg_current_wal_insert_lsn()::text"
_IS_KEPT: Final = "SELECT pg_current_wal_flush_lsn() >= %s::pg_lsn"
_FLUSH_S: Final = 10.0
_LOOK_S: Final = 0.05

_PUBLICATION: Final = """
    SELECT to_jsonb(p) FROM pg_publication p WHERE p.pubname = %s"""

_TABLES: Final = f"""
    SELECT to_jsonb(t) || jsonb_build_object(
               'oid', c.oid::bigint, 'relreplident', c.relreplident,
               'key', ({ROW_IDENTITY}))
      FROM pg_publication_tables t
      JOIN pg_namespace n ON n.nspname = t.schemaname
      JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
     WHERE t.pubname = %s
     ORDER BY t.schemaname, t.tablename"""


@dataclass(frozen=True, slots=True)
class LogServerState:
    """``version``: such as 180001. ``end``: of the log that is written out, None of a standby, as is ``timeline``.

    What is not written out yet is given to no reader, and may stay so until the next transaction.
    """

    system_id: str
    version: int
    wal_level: str
    is_standby: bool
    end: int | None
    timeline: int | None
    may_replicate: bool


@dataclass(frozen=True, slots=True)
class SlotState:
    """``confirmed``: what lies before it is needed no more. ``retained_bytes``: of the log, kept for the slot.

    ``is_here``: it is of the session's database. ``wal_status``: reserved, extended, unreserved or lost.
    ``application``: of the process that reads it.
    """

    database: str | None
    is_here: bool
    plugin: str | None
    confirmed: int | None
    wal_status: str | None
    reason: str | None
    active_pid: int | None
    application: str | None
    retained_bytes: int | None


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table of a publication. ``identity``: pg_class.relreplident; ``key``: the columns that tell its rows apart.

    ``columns`` None: all that are published by default. ``row_filter``: a condition in SQL. ``look``: as it is now.
    """

    name: TableName
    identity: str
    key: tuple[str, ...]
    columns: tuple[str, ...] | None
    row_filter: str | None
    look: TermsLook

    @property
    def oid(self) -> int:
        return self.look.terms.oid


@dataclass(frozen=True, slots=True)
class PublicationState:
    """``publishes``: insert, update, delete, truncate."""

    publishes: frozenset[str]
    tables: Mapping[TableName, PublishedTable]


@contextmanager
def open_log_session(connection: JdbcConnection) -> Iterator[LogSession]:
    """A session in autocommit. Errors are families: RetryableError if the server can't be reached."""
    with log_families(connection):
        session = open_source_session(connection)
    try:
        with log_families(connection):
            session.execute("SET statement_timeout = '60s'")
            yield session
    finally:
        session.close()


@contextmanager
def log_families(connection: JdbcConnection) -> Iterator[None]:
    """Turn psycopg's errors into families, without secrets and without the chain that may hold them."""
    try:
        yield
    except psycopg.Error as error:
        raise judge_postgres(error, connection) from None


def look_at_server(session: LogSession) -> LogServerState:
    system_id, version, wal_level, is_standby, end, wal_file, may_replicate = _one(session.execute(_SERVER).fetchall())
    return LogServerState(
        system_id=system_id,
        version=version,
        wal_level=wal_level,
        is_standby=is_standby,
        end=None if end is None else parse_lsn(end),
        timeline=None if wal_file is None else int(wal_file[:8], 16),
        may_replicate=bool(may_replicate),
    )


def find_kept_end(session: LogSession) -> int:
    """A place behind all that is in the log now, and that a crash of the server leaves in it.

    RetryableError if the server does not write its log out.
    """
    (end,) = _one(session.execute(_END).fetchall())
    deadline_s = time.monotonic() + _FLUSH_S
    while not _one(session.execute(_IS_KEPT, [end]).fetchall())[0]:
        if time.monotonic() > deadline_s:
            raise RetryableError(f"the server has not written its log out up to {end} in {_FLUSH_S:g} s")
        time.sleep(_LOOK_S)
    return parse_lsn(end)


def find_slot(session: LogSession, slot: str) -> SlotState | None:
    rows = session.execute(_SLOT, [slot]).fetchall()
    if not rows:
        return None
    found: Mapping[str, Any] = rows[0][0]
    confirmed = found.get("confirmed_flush_lsn")
    return SlotState(
        database=found.get("database"),
        is_here=bool(found["is_here"]),
        plugin=found.get("plugin"),
        confirmed=None if confirmed is None else parse_lsn(confirmed),
        wal_status=found.get("wal_status"),
        reason=found.get("invalidation_reason"),
        active_pid=found.get("active_pid"),
        application=found.get("application"),
        retained_bytes=None if found.get("retained") is None else int(found["retained"]),
    )


def find_publication(session: LogSession, publication: str) -> PublicationState | None:
    rows = session.execute(_PUBLICATION, [publication]).fetchall()
    if not rows:
        return None
    said: Mapping[str, Any] = rows[0][0]
    kinds = ("insert", "update", "delete", "truncate")
    listed = [each for (each,) in session.execute(_TABLES, [publication]).fetchall()]
    looks = look_at_terms(
        lambda sql, arguments: session.execute(sql.encode(), arguments).fetchall(),
        publication,
        [each["oid"] for each in listed],
    )
    # What was dropped between the two questions is no table of it any more.
    tables = [_read_table(each, looks[each["oid"]]) for each in listed if each["oid"] in looks]
    return PublicationState(
        frozenset(kind for kind in kinds if said.get(f"pub{kind}")), {table.name: table for table in tables}
    )


def _read_table(said: Mapping[str, Any], look: TermsLook) -> PublishedTable:
    columns: Sequence[str] | None = said.get("attnames")
    row_filter = said.get("rowfilter")
    return PublishedTable(
        TableName(said["schemaname"], said["tablename"]),
        said["relreplident"],
        tuple(said["key"] or ()),
        None if columns is None else tuple(columns),
        row_filter,
        replace(look, terms=replace(look.terms, row_filter=row_filter)),
    )


def _one(rows: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    (row,) = rows
    return row
