"""The shop's tables with their writers, an oracle of their change logs, and workers in processes."""

import signal
from dataclasses import dataclass
from typing import Final

from sqlalchemy import text

from gobblin_assets.failpoints import Failpoint
from tests.support.audited_log import AuditedLog, require_replay, require_whole_log
from tests.support.changed_tables import ChangedTables, ShopWriting
from tests.support.log_lake import end_log_workers, expire_leases, said_by_workers, start_log_worker
from tests.support.spark import wait_until
from tests.support.workers import Worker

_SLOTS: Final = "SELECT jsonb_agg(to_jsonb(s))::text FROM pg_replication_slots s"


@dataclass
class LogShop:
    """The tables, their writers, an oracle, and workers in processes."""

    tables: ChangedTables
    database_url: str
    audited: AuditedLog
    writing: ShopWriting

    def start(self, failpoint: str) -> Worker:
        return start_log_worker(self.tables, self.database_url, failpoint=failpoint)

    def kill_at(self, point: Failpoint, count: int = 1) -> None:
        worker = self.start(f"{point}=kill@{count}")
        assert worker.wait() == -signal.SIGKILL
        assert worker.reached(), "the failpoint was never reached"
        expire_leases(self.tables.engine)

    def pause_at(self, point: Failpoint, count: int = 1) -> Worker:
        worker = self.start(f"{point}=stop@{count}")
        worker.wait_until_stopped()
        expire_leases(self.tables.engine)
        return worker

    def end(self, worker: Worker) -> None:
        """Behind a cut."""
        end_log_workers(self.tables)
        assert worker.wait() == 0
        expire_leases(self.tables.engine)

    def await_progress(self) -> None:
        """What is written from now on is published."""
        at = self.tables.ask("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn")
        wait_until(lambda: all(each > at for each in self.positions().values()), f"published behind {at}")

    def await_said(self, text: str) -> None:
        """By a worker in a process of its own."""
        said = said_by_workers(self.tables)
        wait_until(lambda: said.exists() and text in said.read_text(encoding="utf-8"), f"{text!r} is said")

    def check_exactly_once(self) -> None:
        """A worker of this process publishes all, and nobody writes any more."""
        with self.tables.working():
            for table in self.tables.tables:
                self.tables.await_copied(table)
            self.writing.stop()
            try:
                self.tables.await_published()
            except AssertionError as error:
                error.add_note(f"{self.tables.said[-8:]}, {self.positions()}, {self.tables.ask(_SLOTS)}")
                raise
        self.require_exact()

    def require_exact(self) -> None:
        for table in self.tables.tables:
            self.tables.require_same(table, "id")
            require_replay(self.tables.log_of(table).to_pylist(), "id")
        require_whole_log(self.tables, self.audited)
        with self.tables.engine.connect() as connection:
            query = "SELECT count(*) FROM gobblin.commit_sequence WHERE state NOT IN ('DONE', 'ABORTED')"
            assert connection.execute(text(query)).scalar() == 0, "a sequence is still open"
        lake = self.tables.folder / "lake"
        visible = {str(path) for path in lake.rglob("*.parquet") if "/." not in str(path)}
        assert visible == set(self.list_published())

    def list_published(self) -> list[str]:
        return [path for table in self.tables.tables for path in self.tables.paths_of(table)]

    def positions(self) -> dict[str, int]:
        return {table: self.tables.published_to(table) for table in self.tables.tables}
