"""A Postgres whose changes are read, for the figures: a server of its own beside the log's, with all of the tables."""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.sink_world import SinkJob, write_job
from benchmarks.world import SOURCE, World, new_job, open_source
from gobblin_assets.db import embedded
from gobblin_assets.db.account import find_account
from gobblin_assets.db.cluster import prepare_cluster
from gobblin_assets.db.embedded import EmbeddedServer

TABLES: Final = ("orders", "lines", "payments")
PUBLICATION: Final = "lake"

_COLUMNS: Final = """
    id bigint PRIMARY KEY, customer int, amount numeric(12, 2), noted_at timestamptz, state text, note text"""
_VALUES: Final = """
    n, n % 100000, (n % 1000000) * 0.37, timestamptz '2026-01-01' + n * interval '1 second', 'state ' || n % 7,
    'a note of the row ' || n"""
_SETTINGS: Final = "wal_level = logical\nmax_replication_slots = 64\nmax_wal_senders = 64\n"
_ROWS_MAX: Final = 200
"""Of a transaction of the backlog."""

# Transactions of 1 to 200 rows on one to three tables: of ten statements six insert, three update, one deletes.
_WRITE: Final = f"""
    CREATE PROCEDURE write_changes(wanted bigint, OUT written bigint, first bigint) LANGUAGE plpgsql AS $body$
    DECLARE
      tables text[] := ARRAY['{"', '".join(TABLES)}'];
      next bigint := first;
      old bigint := first;
      tx bigint := 0;
      size bigint;
      share bigint;
      found bigint;
      name text;
    BEGIN
      written := 0;
      WHILE written < wanted LOOP
        tx := tx + 1;
        size := least(1 + (tx * 7919) % {_ROWS_MAX}, wanted - written);
        share := CASE WHEN size < 6 THEN size ELSE (size + tx % 3) / (1 + tx % 3) END;
        WHILE size > 0 LOOP
          share := least(share, size);
          name := tables[1 + (tx + size) % 3];
          IF (tx + size) % 10 < 6 OR next - old < 2000 THEN
            EXECUTE format('INSERT INTO %I SELECT {_VALUES.replace("'", "''").replace("%", "%%")}'
                           ' FROM generate_series($1, $2) n', name) USING next, next + share - 1;
            next := next + share;
          ELSIF (tx + size) % 10 < 9 THEN
            EXECUTE format('UPDATE %I SET amount = amount + 1, state = ''changed'' WHERE id = ANY (ARRAY('
                           'SELECT id FROM %I WHERE id >= $1 ORDER BY id LIMIT $2))', name, name) USING old, share;
          ELSE
            EXECUTE format('DELETE FROM %I WHERE id = ANY (ARRAY('
                           'SELECT id FROM %I WHERE id >= $1 ORDER BY id LIMIT $2))', name, name) USING old, share;
            old := old + share;
          END IF;
          GET DIAGNOSTICS found = ROW_COUNT;
          written := written + found;
          size := size - share;
        END LOOP;
        COMMIT;
      END LOOP;
    END $body$"""
_RETAINED: Final = """
    SELECT pg_current_wal_lsn() - restart_lsn FROM pg_replication_slots WHERE slot_name = %s"""


@dataclass(frozen=True, slots=True)
class LogSource:
    """``slots`` of jobs and of others end with the server."""

    world: World
    server: EmbeddedServer

    @property
    def variables(self) -> dict[str, str]:
        """Of connections named ``bench``: to the log of the database, and to its tables."""
        fields = {"URL": self.server.jdbc_url(SOURCE), "USER": self.server.user, "PASSWORD": self.server.password()}
        return {
            f"GOBBLIN_{kind}_BENCH_{name}": text for kind in ("POSTGRES_LOG", "JDBC") for name, text in fields.items()
        }

    def do(self, *statements: str) -> None:
        with open_source(self.server) as connection:
            for each in statements:
                connection.execute(each.encode())

    def ask(self, sql: str, *arguments: object) -> Any:
        with open_source(self.server) as connection:
            (row,) = connection.execute(sql.encode(), arguments or None).fetchall()
        return row[0]

    def find_end(self) -> int:
        """The end of the server's log now."""
        return int(self.ask("SELECT pg_current_wal_flush_lsn() - '0/0'"))

    def measure_retained(self, slot: str) -> int:
        """Bytes of the log that the server keeps for a slot."""
        return int(self.ask(_RETAINED, slot))

    def make_tables(self) -> None:
        """Empty ones, and the publication of all of them."""
        made = [f"CREATE TABLE {table} ({_COLUMNS})" for table in TABLES]
        self.do(*made, f"CREATE PUBLICATION {PUBLICATION} FOR TABLE {', '.join(TABLES)}", _WRITE)

    def fill(self, table: str, first: int, count: int) -> None:
        numbers = f"generate_series({first}::bigint, {first + count - 1}::bigint) n"
        self.do(f"INSERT INTO {table} SELECT {_VALUES} FROM {numbers}", f"VACUUM ANALYZE {table}")

    def write_changes(self, wanted: int, first: int) -> int:
        """A backlog of so many changed rows, or a few less of the last statement; how many it became."""
        with open_source(self.server) as connection:
            # Only a log that is written out is given by slots: the last statement waits for it.
            connection.execute("SET synchronous_commit = off")
            (row,) = connection.execute("CALL write_changes(%s, NULL, %s)", [wanted, first]).fetchall()
            connection.execute("SET synchronous_commit = on")
            connection.execute("SELECT pg_logical_emit_message(true, 'bench', 'the end')")
        return int(row[0])

    def make_job(self, tables: Sequence[str], source: Mapping[str, Any], **options: Any) -> SinkJob:
        described = {
            "job": new_job(),
            "source": {"type": "postgres_log", "connection": "bench", "publication": PUBLICATION, **source},
            "destination": str(self.world.destination),
            "datasets": [{"urn": f"public.{table}"} for table in tables],
            **options,
        }
        return write_job(self.world, described, self.variables)


@contextmanager
def open_log_source(world: World) -> Iterator[LogSource]:
    """A server with the settings of the log's, and logical decoding."""
    home = world.home / "source"
    home.mkdir()
    home.chmod(0o755)
    files = embedded.files_of(home)
    with embedded.hold_start_lock(files, _say_nothing) as start_lock:
        if prepare_cluster(files, find_account(files.data), start_lock):
            with (files.data / "postgresql.conf").open("a", encoding="utf-8") as settings:
                settings.write(_SETTINGS)
        server = embedded.start_held(files, _say_nothing, start_lock)
    try:
        embedded.create_database(server, SOURCE)
        yield LogSource(world, server)
    finally:
        embedded.stop(home)


def slot_of(job: SinkJob) -> str:
    """As the product names it."""
    return f"gobblin_{job.name}"


def count_rows(job: SinkJob) -> int:
    """Rows that the job has published so far."""
    return int(
        job.scalar(
            "SELECT coalesce(sum(s.row_count), 0) FROM gobblin.commit_sequence s JOIN gobblin.dataset d"
            " USING (dataset_id) WHERE d.job = :job AND s.state = 'DONE'"
        )
    )


def count_begun(job: SinkJob) -> int:
    """Tables whose logs are followed."""
    return int(
        job.scalar(
            "SELECT count(*) FROM gobblin.watermark_key k JOIN gobblin.dataset d USING (dataset_id)"
            " WHERE d.job = :job AND (k.watermark ->> 'value')::bigint > 0"
        )
    )


def last_done_at(job: SinkJob) -> dt.datetime:
    """When its last publication was DONE."""
    found: dt.datetime = job.scalar(
        "SELECT max(s.done_at) FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)"
        " WHERE d.job = :job AND s.state = 'DONE' AND s.row_count > 0"
    )
    return found


def _say_nothing(_line: str) -> None:
    pass
