"""The state of a Postgres server, of a replication slot and of a publication's tables, as the server says it.

A server, a publication or a table whose log can't be followed is refused: RejectedError says what to run.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import psycopg

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.names import TableName
from gobblin_assets.sources.jdbc.postgres import postgres_families
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

_PUBLICATIONS: Final = """
    SELECT p.pubname, t.schemaname, t.tablename
      FROM pg_publication p LEFT JOIN pg_publication_tables t USING (pubname)
     ORDER BY p.pubname, t.schemaname, t.tablename"""

_TABLES: Final = f"""
    SELECT to_jsonb(t) || jsonb_build_object(
               'oid', c.oid::bigint, 'relreplident', c.relreplident,
               'key', ({ROW_IDENTITY}))
      FROM pg_publication_tables t
      JOIN pg_namespace n ON n.nspname = t.schemaname
      JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
     WHERE t.pubname = %s
     ORDER BY t.schemaname, t.tablename"""

# As pg_publication_tables has them. That view locks each table, to list its columns: one that somebody else has locked
# would keep all of them waiting. Catalogues alone say nothing of a row filter without a lock on its own table.
_TABLES_UNLOCKED: Final = """
    WITH RECURSIVE p AS (SELECT oid, to_jsonb(pg_publication) AS said FROM pg_publication WHERE pubname = %s),
    named AS (
        SELECT r.prrelid AS relid, to_jsonb(r) ->> 'prattrs' AS attnums, to_jsonb(r) ->> 'prqual' IS NOT NULL AS filters
          FROM pg_publication_rel r JOIN p ON p.oid = r.prpubid
        UNION ALL
        SELECT c.oid, NULL, false
          FROM p, pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.oid >= 16384
           AND n.nspname NOT IN ('pg_catalog', 'information_schema')
           AND ((said ->> 'puballtables')::boolean OR n.oid IN {schemas})
    ), members AS (
        SELECT relid, max(attnums) AS attnums, bool_or(filters) AS filters FROM named GROUP BY relid
    ), below AS (
        SELECT relid AS member, relid FROM members
        UNION
        SELECT b.member, i.inhrelid FROM below b JOIN pg_inherits i ON i.inhparent = b.relid
          JOIN pg_class c ON c.oid = i.inhrelid AND c.relispartition
    ), found AS (
        -- By their roots: what is below another member is published as that. Else: what has rows of its own.
        SELECT m.relid, m.attnums, m.filters FROM members m, p
         WHERE (said ->> 'pubviaroot')::boolean
           AND NOT EXISTS (SELECT FROM below b WHERE b.relid = m.relid AND b.member <> m.relid)
        UNION ALL
        SELECT DISTINCT b.relid, m.attnums, m.filters
          FROM below b JOIN pg_class c ON c.oid = b.relid AND c.relkind = 'r'
          LEFT JOIN members m ON m.relid = b.relid, p
         WHERE NOT (said ->> 'pubviaroot')::boolean
    )
    SELECT jsonb_build_object(
               'schemaname', n.nspname, 'tablename', c.relname, 'oid', c.oid::bigint, 'relreplident', c.relreplident,
               'key', {key},
               'rowfilter', (SELECT pg_get_expr(r.prqual, r.prrelid) FROM pg_publication_rel r
                              WHERE f.filters AND r.prpubid = p.oid AND r.prrelid = f.relid),
               'attnames', (SELECT array_agg(a.attname ORDER BY a.attnum) FROM pg_attribute a
                             WHERE a.attrelid = f.relid AND a.attnum > 0 AND NOT a.attisdropped
                               AND CASE WHEN f.attnums IS NULL
                                        THEN a.attgenerated IN ('', coalesce(nullif(said ->> 'pubgencols', 'n'), ''))
                                        ELSE a.attnum::text = ANY (string_to_array(f.attnums, ' ')) END))
      FROM p, found f JOIN pg_class c ON c.oid = f.relid JOIN pg_namespace n ON n.oid = c.relnamespace
     ORDER BY n.nspname, c.relname"""
_SCHEMAS: Final = "(SELECT pnnspid FROM pg_publication_namespace WHERE pnpubid = p.oid)"
_NO_SCHEMAS: Final = "(NULL::oid)"
_SCHEMAS_FROM: Final = 150_000

_BRIEF_LOCKS: Final = "set_config('lock_timeout', '2s', false)"
"""Whoever waits for a lock is not followed, and follows nobody."""


@dataclass(frozen=True, slots=True)
class LogServerState:
    """A server and its log, as it says now.

    ``version``: such as 180001. ``end``: of the log that is written out, None of a standby, as is ``timeline``.

    Log that is not written out yet is given to no reader. It may stay unwritten until the next transaction.
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
    """A replication slot, as the server says now.

    ``confirmed``: what lies before it is needed no more. ``retained_bytes``: of the log, kept for the slot.
    ``safe_bytes``: that may be written before it is given up; None: without a bound.

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
    safe_bytes: int | None = None


def name_reader(job: str) -> str:
    """What the server calls the reader of a job's slot. It keeps 63 bytes, and jobs have ASCII names."""
    return f"{APPLICATION} {job}"[:63]


def require_own_reader(found: SlotState, slot: str, job: str) -> None:
    """RejectedError if another job, or another program, reads the slot now."""
    if found.active_pid is None or found.application == name_reader(job):
        return
    application = found.application or "another program"
    other = application.removeprefix(f"{APPLICATION} ")
    who = f"the job {other!r}" if other != application else application
    raise RejectedError(
        f"the slot {slot} is read by {who} (process {found.active_pid} of the server), and a slot has one reader",
        field="source.slot",
        hint=f"Stop that one, or name another slot in {job}; it is made if there is none.",
    )


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
    """A publication with its tables, as the server says now.

    ``publishes``: insert, update, delete, truncate.
    """

    publishes: frozenset[str]
    tables: Mapping[TableName, PublishedTable]


@contextmanager
def open_log_session(connection: JdbcConnection) -> Iterator[LogSession]:
    """A session in autocommit. Errors are families: RetryableError if the server can't be reached."""
    with postgres_families(connection):
        session = open_source_session(connection)
    try:
        with postgres_families(connection):
            session.execute(f"SELECT set_config('statement_timeout', '60s', false), {_BRIEF_LOCKS}")
            yield session
    finally:
        session.close()


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
        safe_bytes=None if found.get("safe_wal_size") is None else int(found["safe_wal_size"]),
    )


def find_publication(session: LogSession, publication: str) -> PublicationState | None:
    rows = session.execute(_PUBLICATION, [publication]).fetchall()
    if not rows:
        return None
    said: Mapping[str, Any] = rows[0][0]
    kinds = ("insert", "update", "delete", "truncate")
    listed = _ask_tables(session, publication)
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


def list_publications(session: LogSession) -> Mapping[str, Sequence[TableName]]:
    """All publications of the database, each with its tables, both sorted."""
    found: dict[str, list[TableName]] = {}
    for publication, schema, table in session.execute(_PUBLICATIONS).fetchall():
        tables = found.setdefault(publication, [])
        if table is not None:
            tables.append(TableName(schema, table))
    return found


def _ask_tables(session: LogSession, publication: str) -> list[Mapping[str, Any]]:
    """What is said of each table. One that somebody else has locked keeps no other one waiting."""
    try:
        # Its failure leaves the transaction that it is in as it was.
        with session.transaction():
            return [each for (each,) in session.execute(_TABLES, [publication]).fetchall()]
    except psycopg.errors.LockNotAvailable:
        ((version,),) = session.execute("SELECT current_setting('server_version_num')::int").fetchall()
        schemas = _SCHEMAS if version >= _SCHEMAS_FROM else _NO_SCHEMAS
        statement = _TABLES_UNLOCKED.format(key=f"({ROW_IDENTITY})", schemas=schemas)
        return [each for (each,) in session.execute(statement.encode(), [publication]).fetchall()]


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


VERSION_MIN: Final = 140_000


def require_server(
    server: LogServerState, publication: str, found: PublicationState | None, *, where: str
) -> PublicationState:
    """RejectedError for a server that can't give a change log, or lacks the publication. ``where``: the connection."""
    if server.version < VERSION_MIN:
        raise RejectedError(
            f"the server's version is {server.version // 10_000}; expected 14 or newer", field=f"{where}.url"
        )
    if server.is_standby:
        raise RejectedError(
            "the server is a standby, which gives no copy of a table that fits the log",
            field=f"{where}.url",
            hint="Name the primary.",
        )
    if server.wal_level != "logical":
        raise RejectedError(
            f"expected wal_level logical, found {server.wal_level}",
            field=f"{where}.url",
            hint="Run ALTER SYSTEM SET wal_level = logical, and restart the server; managed servers have a parameter "
            "for it, such as rds.logical_replication.",
        )
    if not server.may_replicate:
        raise RejectedError(
            "the user may not read replication slots",
            field=f"{where}.user",
            hint="Run ALTER ROLE … REPLICATION; managed servers have a role for it, such as rds_replication.",
        )
    return require_publication(publication, found)


def require_publication(publication: str, found: PublicationState | None) -> PublicationState:
    """RejectedError if the database has no such publication."""
    if found is None:
        raise RejectedError(
            f"the database has no publication {publication!r}",
            field="source.publication",
            hint=f"Run CREATE PUBLICATION {publication} FOR TABLE …, as the owner of the tables.",
        )
    return found


def require_table(
    urn: str, name: TableName, publication: str, found: PublicationState, *, is_followed: bool
) -> PublishedTable:
    """RejectedError for a table that the publication lacks, or whose updates can't be told apart.

    ``is_followed``: it was in the publication, and its copy is whole.
    """
    table = found.tables.get(name)
    field = f"datasets[{urn}].table"
    if table is None and is_followed:
        raise RejectedError(
            f"the publication {publication} has no table {name} any more: what is written to it comes into no log",
            field=field,
            hint=f"Take it out of the job. Or run ALTER PUBLICATION {publication} ADD TABLE {name}, and then copy it "
            f"again: gobblin-assets sink recopy JOB --dataset {urn}.",
        )
    if table is None:
        raise RejectedError(
            f"the publication {publication} has no table {name}",
            field=field,
            hint=f"Run ALTER PUBLICATION {publication} ADD TABLE {name}; or name one of "
            f"{', '.join(map(str, sorted(found.tables))) or 'its tables, of which there are none'}.",
        )
    changes = sorted(f"{each}s" for each in found.publishes & {"update", "delete"})
    if changes and not table.key and table.identity != "f":
        raise RejectedError(
            f"{name} has no replica identity, and {publication} publishes its {' and '.join(changes)}: "
            "Postgres refuses them",
            field=field,
            hint=f"Give it a primary key and run ALTER TABLE {name} REPLICA IDENTITY DEFAULT, or run "
            f"ALTER TABLE {name} REPLICA IDENTITY FULL.",
        )
    return table


def require_unhidden(table: PublishedTable, *, where: str) -> None:
    """RejectedError if a copy would lack rows that the log has. ``where``: the connection."""
    if table.look.is_secured:
        raise RejectedError(
            f"row level security hides rows of {table.name} from the user, and its log has the changes of all",
            field=f"{where}.user",
            hint="Run ALTER ROLE … BYPASSRLS.",
        )
