"""Changes of a real Postgres: a slot, its messages, and batches of a table's changes as the reader of a slot makes."""

import select
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import psycopg2
import pyarrow as pa
from psycopg2.extras import LogicalReplicationConnection

from gobblin_assets.sources.jdbc import postgres_sessions
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.jdbc_kind import JdbcSourceSpec
from gobblin_assets.sources.jdbc.postgres_sessions import write_options
from gobblin_assets.sources.jdbc.postgres_tables import find_types
from gobblin_assets.sources.jdbc.source import JdbcSource
from gobblin_assets.sources.postgres_log.logged_table import LoggedColumn, LoggedTable
from gobblin_assets.sources.postgres_log.pgoutput import (
    Begin,
    RelationMessage,
    parse_begin,
    parse_commit,
    parse_logical_message,
    parse_relation,
    parse_truncate,
)
from gobblin_assets.sources.source_port import read_plan_of
from tests.support.jdbc import request_for
from tests.support.postgres import Database
from tests.support.row_messages import changes

SETTINGS = write_options(postgres_sessions.SETTINGS)
"""Of the session that sends changes: what texts are written by."""
_END = "end"


class Log:
    """A publication of all tables, and a slot that stands where this was made. A read goes on behind the last one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._slot = database.database
        with database.connect() as sql:
            sql.execute("CREATE PUBLICATION everything FOR ALL TABLES")
            sql.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self._slot])

    def read_messages(self) -> Iterator[bytes]:
        """All messages of transactions that are committed now."""
        with self._database.connect() as sql:
            sql.execute("SELECT pg_logical_emit_message(true, %s, '')", [_END])
        is_end = False
        with _replicate(self._database) as cursor:
            options = {"proto_version": "1", "publication_names": "everything", "messages": "true"}
            cursor.start_replication(slot_name=self._slot, decode=False, options=options)
            while True:
                message = cursor.read_message()
                if message is None:
                    select.select([cursor], [], [], 1.0)
                    continue
                payload = message.payload
                if payload.startswith(b"M"):
                    is_end = parse_logical_message(payload).prefix == _END
                elif is_end:
                    cursor.send_feedback(flush_lsn=parse_commit(payload).end_lsn, force=True)
                    return
                else:
                    yield payload

    def read(self, table: str) -> list[pa.RecordBatch]:
        """The changes of one table, in batches of one transaction and one Relation message."""
        batches: list[pa.RecordBatch] = []
        tables: dict[int, LoggedTable] = {}
        begin = Begin(0, parse_begin(b"B" + bytes(20)).commit_at, 0)
        waiting: list[tuple[int, bytes]] = []
        seq = 1

        def flush() -> None:
            logged = next((each for each in tables.values() if each.table == table), None)
            if waiting and logged is not None:
                seqs, payloads = zip(*waiting, strict=True)
                batches.append(changes(logged, payloads, seqs=seqs, lsn=begin.final_lsn, at=begin.commit_at))
                waiting.clear()

        for payload in self.read_messages():
            match payload[:1]:
                case b"B":
                    begin, seq = parse_begin(payload), 1
                case b"C":
                    flush()
                case b"R":
                    flush()
                    relation = parse_relation(payload)
                    tables[relation.oid] = self._describe(relation)
                case b"I" | b"U" | b"D" | b"T":
                    oids = parse_truncate(payload).oids if payload[:1] == b"T" else [int.from_bytes(payload[1:5])]
                    if table in [tables[oid].table for oid in oids]:
                        waiting.append((seq, payload))
                    seq += 2 if payload[:1] == b"U" and payload[5:6] in (b"K", b"O") else 1
        return batches

    def _describe(self, relation: RelationMessage) -> LoggedTable:
        with self._database.connect() as sql:
            found = find_types(
                lambda query, arguments: sql.execute(query, arguments).fetchall(),  # type: ignore[call-overload]  # ours
                [(each.type_oid, each.modifier) for each in relation.columns],
            )
        columns = tuple(
            LoggedColumn(each.name, found[each.type_oid, each.modifier], each.is_key) for each in relation.columns
        )
        return LoggedTable(relation.oid, relation.schema, relation.table, relation.identity, columns)


def read_table(database: Database, table: str, **options: Any) -> pa.Table:
    """The rows that a table source reads now, without Spark."""
    connection = JdbcConnection(url=database.jdbc_url, user=database.user, password=database.password, name="c")
    source = JdbcSource(connection, JdbcSourceSpec(connection="c", reader="arrow"))
    with source.open_plan(_no_spark, lambda _line: None) as session:
        plan = session.plan(request_for({"table": table, **options}))
        reader = read_plan_of(plan).arrow
        assert reader is not None
        batches: list[pa.RecordBatch] = []
        for unit in plan.work_units:
            with reader.open(unit) as rows:
                batches.extend(rows.batches)
        return pa.Table.from_batches(batches)


@contextmanager
def _replicate(database: Database) -> Iterator[Any]:
    with closing(
        psycopg2.connect(
            host=database.host,
            port=database.port,
            user=database.user,
            password=database.password,
            dbname=database.database,
            options=SETTINGS,
            connection_factory=LogicalReplicationConnection,
        )
    ) as connection, connection.cursor() as cursor:  # fmt: skip
        yield cursor


def execute(connection: "psycopg.Connection[tuple[object, ...]]", statements: Sequence[str]) -> None:
    for statement in statements:
        connection.execute(statement.encode())


def _no_spark() -> Any:
    raise AssertionError("Spark was asked for")
