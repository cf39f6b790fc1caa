"""The shop's tables of a real Postgres, followed by workers in processes of their own that are killed or stopped."""

import itertools
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pytest
from sqlalchemy import Engine, text

from gobblin_assets.db.engine import open_external
from gobblin_assets.failpoints import ArmedFailpoints, install
from gobblin_assets.jobs.sink import roll_policy, sink_worker
from gobblin_assets.jobs.sink.running import open_worker, read_sink_datasets
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.sources.postgres_log import slot_reader
from gobblin_assets.spec.job_parsing import parse_job
from tests.support.changed_tables import ChangedTables, NoSpark, set_log_variables
from tests.support.forks import FORKS
from tests.support.postgres import Database
from tests.support.workers import Worker

TABLES: Final = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer text, amount numeric(12, 2), at timestamptz)",
    "CREATE TABLE notes (id int PRIMARY KEY, body text, n int)",
    "ALTER TABLE notes ALTER COLUMN body SET STORAGE EXTERNAL",
    "CREATE PUBLICATION lake FOR TABLE orders, notes",
    "INSERT INTO orders SELECT n, 'c' || n, n / 7.0, now() FROM generate_series(1, 300) n",
    "INSERT INTO notes SELECT n, repeat('x', 3000), n FROM generate_series(1, 20) n",
)
OPTIONS: Final[Mapping[str, Any]] = {
    "retire_grace_s": 0,
    "log": {"fold_keep": 0, "fold_min": 2, "fold_age_s": 0},
    # Leases of the dead run out where a test says so.
    "lease": {"ttl_s": 60, "wait_s": 30},
}
_OFTEN_S: Final = 0.3
"""What a worker does every ten seconds, or every minute, is done so often."""

_count = itertools.count()


@contextmanager
def open_log_lake(
    folder: Path, database: Database, engine: Engine, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> Iterator[ChangedTables]:
    """The tables, with rows; workers of this process clean up and confirm often."""
    tables = ChangedTables(folder, database, engine, ["orders", "notes"], options={**OPTIONS, **options})
    tables.do(*TABLES)
    set_log_variables(tables, monkeypatch)
    with _hasty():
        yield tables


@dataclass(frozen=True)
class _Site:
    """What a process of a worker is told. Once ``stop`` is there, it ends. ``said`` gets its lines."""

    database_url: str
    job: Mapping[str, Any]
    variables: Mapping[str, str]
    stop: Path
    said: Path

    def say(self, line: str) -> None:
        with self.said.open("a", encoding="utf-8") as out:
            out.write(f"{line}\n")


def start_log_worker(tables: ChangedTables, database_url: str, *, failpoint: str = "") -> Worker:
    """A worker in a process of its own, with these failpoints armed."""
    log = tables.folder / f"log-failpoints-{next(_count)}.log"
    site = _Site(database_url, tables.described, tables.variables, tables.folder / "stop", said_by_workers(tables))
    process = FORKS.Process(target=_work, args=(site, failpoint, str(log)))
    process.start()
    return Worker(process, log)


def said_by_workers(tables: ChangedTables) -> Path:
    """What the processes have said, line by line."""
    return tables.folder / "said"


def end_log_workers(tables: ChangedTables) -> None:
    """All processes end behind a cut, also those that wake up later."""
    (tables.folder / "stop").touch()


def expire_leases(engine: Engine) -> None:
    """Let all leases run out, and nobody be counted as a live worker, as waiting would."""
    with engine.begin() as connection:
        for table in ("lease", "sink_worker"):
            connection.execute(text(f"UPDATE gobblin.{table} SET expires_at = clock_timestamp() - interval '1 second'"))


@contextmanager
def _hasty() -> Iterator[None]:
    with (
        mock.patch.object(sink_worker, "CLEAN_EVERY_S", _OFTEN_S),
        mock.patch.object(slot_reader, "CONFIRM_EVERY_S", _OFTEN_S),
        mock.patch.object(roll_policy, "EMPTY_CUT_AGE_S", _OFTEN_S),
    ):
        yield


def _work(site: _Site, failpoint: str, log: str) -> None:
    os.environ.update(site.variables)
    engine = open_external(site.database_url)
    job = parse_job(site.job)
    specs = read_sink_datasets(job)

    def wait(seconds: float) -> bool:
        time.sleep(seconds)
        return site.stop.exists()

    with (
        _hasty(),
        install(ArmedFailpoints(failpoint, log)),
        open_worker(job, specs, open_stores(engine), wait, site.say, NoSpark()) as worker,
    ):
        worker.run()
