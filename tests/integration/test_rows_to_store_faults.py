"""Spark's tasks write rows to a bucket or to HDFS, and are killed in the middle, or run twice: each row stays one."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from gobblin_assets.fs.registry import open_object_store
from gobblin_assets.spark.connect_server import ConnectServer, start_connect, stop_connect
from gobblin_assets.spark.spark_settings import SparkSettings
from tests.support.ingestion import run_in_child, start_in_child
from tests.support.postgres import Database
from tests.support.s3_servers import S3Server
from tests.support.spark import DEADLINE_S, SMALL, wait_until
from tests.support.stored_lake import StoredLake, make_stored_lake

ROWS: Final = 30_000
TABLE: Final = {
    "table": "public.t",
    "extract": "append_only",
    "watermark": {"column": "n"},
    # Two Spark tasks. Each fetches 10,000 rows at once, which are several files.
    "split": {"work_unit_rows": ROWS // 2, "max_partitions": 2, "max_multi_work_units": 1},
    "writer": {"file_rows_max": 2_000},
}
OPTIONS: Final = {"lease": {"ttl_s": 2.0, "wait_s": 30.0}, "source": {"connection": "shop", "reader": "jdbc"}}
HELD: Final = ROWS // 2 - 1_000
"""The row before which a reader waits while the gate is closed: the first task has uploaded files by then."""

Release = Callable[[], object]
"""Lets the task that waits go on."""

_LOCK: Final = 7
_READERS: Final = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%hold%' AND pid <> pg_backend_pid()"


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Of a warm server, for the tests of this module."""
    folder = Path(tempfile.mkdtemp(prefix="gobblin-warm-"))
    yield folder
    stop_connect(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def lake(
    versitygw: S3Server,
    database_url: str,
    fresh_database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> StoredLake:
    uri = f"s3://{versitygw.make_bucket()}/lake"
    made = make_stored_lake(uri, versitygw.environment, database_url, fresh_database, tmp_path, monkeypatch)
    with fresh_database.connect() as sql:
        # As a stable function, it is left out where a query asks for other columns only, as those of planning do.
        sql.execute("CREATE TABLE gate AS SELECT true AS is_closed")
        sql.execute(
            f"""CREATE FUNCTION hold(n int) RETURNS int STABLE LANGUAGE plpgsql AS $$ BEGIN
                  IF n = {HELD} AND (SELECT is_closed FROM gate) THEN
                    PERFORM pg_advisory_xact_lock_shared({_LOCK});
                  END IF;
                  RETURN n; END $$"""
        )
        sql.execute(f"CREATE VIEW t AS SELECT n, hold(n) AS held FROM generate_series(1, {ROWS}) n")
    made.describe(TABLE, **OPTIONS)
    return made


def start_server(home: Path) -> ConnectServer:
    """The one that runs, or a new one after a kill."""
    conf = {**SMALL, "spark.sql.execution.arrow.maxRecordsPerBatch": "500"}
    settings = SparkSettings(home / "spark", master="local[2,3]", conf=conf, capabilities=("postgres",))
    return start_connect(home, settings, print)


@dataclass(frozen=True)
class HeldRun:
    """A run in a process of its own, whose tasks are on ``server``. One of them waits in the middle of its write."""

    lake: StoredLake
    home: Path
    server: ConnectServer
    settings: dict[str, Any]
    process: "subprocess.Popen[str]"
    folder: Path

    def end(self, code: int) -> None:
        output, errors = self.process.communicate(timeout=DEADLINE_S)
        assert self.process.returncode == code, output + errors

    def run_again(self, server: ConnectServer) -> None:
        done = run_in_child(self.folder, {**self.settings, "remote": server.url})
        assert done.returncode == 0, done.stdout + done.stderr


def wait_for_uploads(lake: StoredLake, sql: psycopg.Connection[Any], process: "subprocess.Popen[str]") -> None:
    """Until a task has uploaded files and waits for its next rows. Later readers don't wait."""
    objects, root = open_object_store(lake.uri, "destination")

    def is_held() -> bool:
        assert process.poll() is None, process.communicate()
        waiting = sql.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").fetchone()
        return waiting == (1,) and len(list(objects.list_uploads(root))) > 2

    wait_until(is_held, "a task in the middle of its write")
    sql.execute("UPDATE gate SET is_closed = false")


def find_python_workers(server: ConnectServer) -> list[int]:
    """Processes that Spark's Python daemons forked."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
    daemons = {pid for pid, parent in parents.items() if parent == server.pid}
    return [pid for pid, parent in parents.items() if parent in daemons]


def kill_a_python_worker(run: HeldRun, release: Release) -> None:
    """Spark repeats the task."""
    workers = find_python_workers(run.server)
    assert workers
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    release()
    run.end(0)


def kill_the_client(run: HeldRun, release: Release) -> None:
    """The server goes on with the tasks until the next run cancels them."""
    run.process.kill()
    run.end(-signal.SIGKILL)
    run.run_again(run.server)
    release()
    with run.lake.source.connect() as sql:
        wait_until(lambda: sql.execute(_READERS).fetchone() == (0,), "the end of the tasks that were cancelled")


def kill_the_server(run: HeldRun, release: Release) -> None:
    os.kill(run.server.pid, signal.SIGKILL)
    run.end(1)
    run.run_again(start_server(run.home))
    release()


@pytest.mark.rare
@pytest.mark.parametrize("kill", [kill_a_python_worker, kill_the_client, kill_the_server])
def test_a_write_in_whose_middle_a_process_is_killed(
    lake: StoredLake, home: Path, database_url: str, tmp_path: Path, kill: Callable[[HeldRun, Release], None]
) -> None:
    server, source = start_server(home), lake.source
    settings = {
        "work": str(tmp_path / "spark"),
        "remote": server.url,
        "database_url": database_url,
        "connection": {"url": source.jdbc_url, "user": source.user, "password": source.password, "name": "shop"},
        "root": lake.uri,
        "datasets": [TABLE],
        "options": OPTIONS,
    }
    with source.connect() as sql:
        sql.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        process = start_in_child(tmp_path, settings)
        wait_for_uploads(lake, sql, process)
        run = HeldRun(lake, home, server, settings, process, tmp_path)
        kill(run, lambda: sql.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,)))

    assert lake.rows() == Counter(json.dumps({"n": n, "held": n}) for n in range(1, ROWS + 1))
    lake.check_whole()
