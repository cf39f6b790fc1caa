"""Tables of a real Postgres that change, the job that follows them, a worker in this process, and what it published."""

import itertools
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.jobs.sink.running import open_worker, read_sink_datasets
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.job_kind import Worker
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.environment import read_connection
from gobblin_assets.sources.postgres_log.log_starts import PLACE_MIN
from gobblin_assets.spec.job_parsing import parse_job
from gobblin_assets.spec.job_spec import JobSpec
from tests.support.postgres import Database
from tests.support.spark import wait_until

JOB = "shop"

Row = Mapping[str, Any]


class NoSpark:
    """``SinkSpark`` of a worker whose rows are made in its process."""

    def get_session(self, job: JobSpec | None = None) -> SparkSession:
        raise AssertionError(f"a change log needs no Spark; asked for {job}")

    def open_extractor(self, job: JobSpec, stores: Stores) -> Worker:
        raise AssertionError(f"a change log needs no Spark; asked for {job.job} with {stores}")

    def interrupt(self, attempt: AttemptRecord) -> None:
        """Nothing of it runs elsewhere."""


@dataclass
class ChangedTables:
    """``database``: the source's; ``engine``: the commit log's. ``wrap``: what workers have instead of its stores."""

    folder: Path
    database: Database
    engine: Engine
    tables: Sequence[str]
    options: Mapping[str, Any] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    wrap: Callable[[Stores], Stores] = field(default=lambda stores: stores)

    @property
    def variables(self) -> dict[str, str]:
        return {
            "GOBBLIN_POSTGRES_LOG_SHOP_URL": self.database.jdbc_url,
            "GOBBLIN_POSTGRES_LOG_SHOP_USER": self.database.user,
            "GOBBLIN_POSTGRES_LOG_SHOP_PASSWORD": self.database.password,
        }

    @property
    def described(self) -> dict[str, Any]:
        """As a job file has it."""
        return {
            "job": JOB,
            "source": {"type": "postgres_log", "connection": "shop", "publication": "lake", **self.source},
            "destination": str(self.folder / "lake"),
            "datasets": [{"urn": f"public.{table}"} for table in self.tables],
            "lease": {"ttl_s": 20, "wait_s": 30},
            "sink": {"every_s": 0.2, "roll": {"age_s": 0}},
            **self.options,
        }

    @property
    def job(self) -> JobSpec:
        return parse_job(self.described)

    def write_job(self) -> str:
        """The job's file, which commands are given."""
        path = self.folder / f"{JOB}.yaml"
        path.write_text(json.dumps(self.described), encoding="utf-8")
        return str(path)

    @contextmanager
    def working(self) -> Iterator[None]:
        """A worker is at work, and ends behind a cut."""
        stop, failures = threading.Event(), list[BaseException]()

        def work() -> None:
            try:
                job = self.job
                specs = read_sink_datasets(job)
                stores = self.wrap(open_stores(self.engine))
                with open_worker(job, specs, stores, stop.wait, self.said.append, NoSpark()) as worker:
                    worker.run()
            except BaseException as error:  # noqa: BLE001  the test's thread raises it
                failures.append(error)
                self.said.append(f"the worker has failed: {error!r}")

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(30)
        assert not thread.is_alive(), self.said
        if failures:
            raise failures[0]

    def ask(self, sql: str) -> Any:
        with self.database.connect() as connection:
            (row,) = connection.execute(sql.encode()).fetchall()
        return row[0]

    def do(self, *statements: str) -> None:
        """All in one transaction."""
        with self.database.connect(autocommit=False) as connection:
            for each in statements:
                connection.execute(each.encode())

    def published_to(self, table: str) -> int:
        """Up to where the newest copy's log is published."""
        urn = DatasetUrn(f"public.{table}")
        state = open_stores(self.engine).datasets.load(JobName(self.described["job"]), [urn]).get(urn)
        keys = {} if state is None else state.keys
        newest = max(keys, key=lambda key: int(key[0].rpartition(":")[2]), default=None)
        found = None if newest is None else keys[newest].watermark
        return 0 if found is None else int(str(found.value))

    def await_published(self, *tables: str) -> None:
        """All that is committed now is published, of these tables, which have changed; of all by default."""
        end = self.ask("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn")
        wait_until(
            lambda: all(self.published_to(table) >= end for table in tables or self.tables),
            f"published up to {end}; {self.said}",
        )

    def await_begun(self) -> None:
        """The worker has found where the tables begin."""
        self.await_said("is copied first")

    def await_copied(self, table: str) -> None:
        """As a whole: a copy in ranges has positions before, which are no places of the log."""
        wait_until(lambda: self.published_to(table) >= PLACE_MIN, f"{table} is copied; {self.said}")

    def await_said(self, text: str) -> None:
        wait_until(lambda: any(text in line for line in self.said), f"{text!r} is said; {self.said}")

    def paths_of(self, table: str, *, schema: str | None = "public") -> list[str]:
        """The files that the log names."""
        urn = DatasetUrn(table if schema is None else f"{schema}.{table}")
        found = open_stores(self.engine).published.find(JobName(self.described["job"]), urn, role=Role.DATA)
        return [path for segment in (found.segments if found else ()) for path, _size in segment.file_sizes()]

    def facts_of(self, table: str) -> Mapping[str, object]:
        """What the dataset keeps of its source."""
        urn = DatasetUrn(f"public.{table}")
        return open_stores(self.engine).datasets.load(JobName(self.described["job"]), [urn])[urn].source_facts

    def log_of(self, table: str, *, schema: str | None = "public") -> pa.Table:
        """The published rows of the change log, in its order, with the dataset's columns."""
        parts = [pq.read_table(path) for path in self.paths_of(table, schema=schema)]
        whole = pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({})
        order = [(name, "ascending") for name in ("_copy", "_lsn", "_seq") if name in whole.column_names]
        return whole.sort_by(order) if order else whole

    def rebuild(self, table: str, key: str | None) -> "Counter[tuple[Any, ...]]":
        """The table by its change log alone, with Python's plain means. ``key`` None: FULL identity without a key."""
        rows = self.log_of(table).to_pylist()
        names = [name for name in rows[0] if not name.startswith("_")] if rows else []
        last = max((row["_copy"] for row in rows), default=0)
        counted: Counter[tuple[Any, ...]] = Counter()
        keyed: dict[Any, dict[str, Any]] = {}
        before: dict[str, Any] | None = None
        for row in (row for row in rows if row["_copy"] == last):
            values = {name: row[name] for name in names}
            op = row["_op"]
            if op == "t":
                counted.clear()
                keyed.clear()
            elif key is None:
                counted[tuple(values.values())] += -1 if op in "bd" else 1
            elif op in "bd":
                before = keyed.pop(values[key], None)
            else:
                known = keyed.get(values[key]) or (before if op == "u" else None) or {}
                values |= {name: known[name] for name in row["_unchanged"] or ()}
                keyed[values[key]] = values
            if op not in "bd":
                before = None
        return +counted if key is None else Counter(tuple(values.values()) for values in keyed.values())

    def rows_of(self, table: str, names: Sequence[str]) -> "Counter[tuple[Any, ...]]":
        """What the table holds now."""
        with self.database.connect() as connection:
            shown = ", ".join(f'"{name}"' for name in names)
            return Counter(connection.execute(f'SELECT {shown} FROM "{table}"'.encode()).fetchall())

    def require_same(self, table: str, key: str | None) -> None:
        rows = self.log_of(table)
        names = [name for name in rows.column_names if not name.startswith("_")]
        assert self.rebuild(table, key) == self.rows_of(table, names)
        places = [tuple(row.values()) for row in rows.select(["_copy", "_lsn", "_seq"]).to_pylist() if row["_seq"]]
        assert len(places) == len(set(places)), "a change comes twice"


@dataclass
class ShopWriting:
    """Writers of ``orders`` and ``notes``, each with a connection of its own: short and long transactions, savepoints,
    rollbacks, moved keys, values that are not sent again. All have ended when the block ends.

    ``is_patient``: a server that goes away is waited for.
    """

    database: Database
    seed: int
    writers: int = 3
    is_patient: bool = False
    transactions: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _failures: list[BaseException] = field(default_factory=list)

    def __enter__(self) -> Self:
        for number in range(self.writers):
            thread = threading.Thread(target=self._write, args=(number,), daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Return when nobody writes any more. May be called again."""
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
        if self._failures:
            raise self._failures[0]

    def _write(self, number: int) -> None:
        chance = random.Random(f"{self.seed}:{number}")
        next_id = itertools.count((number + 1) * 1_000_000)
        try:
            while not self._stop.is_set():
                try:
                    self._write_on(chance, next_id)
                except psycopg.OperationalError:
                    if not self.is_patient:
                        raise
                    self._stop.wait(0.1)
        except BaseException as error:  # noqa: BLE001  the test's thread raises it
            self._failures.append(error)

    def _write_on(self, chance: random.Random, next_id: "Iterator[int]") -> None:
        with self.database.connect(autocommit=False) as connection:
            while not self._stop.is_set():
                self._transact(connection, chance, next_id)

    def _transact(self, connection: Any, chance: random.Random, next_id: "Iterator[int]") -> None:
        mine = (chance.randrange(3) + 1) * 1_000_000
        for _statement in range(chance.randrange(1, 6)):
            connection.execute("SAVEPOINT before")
            try:
                self._change(connection, chance, next(next_id), mine)
            except psycopg.errors.LockNotAvailable:
                connection.execute("ROLLBACK TO SAVEPOINT before")
            if chance.random() < 0.1:
                connection.execute("ROLLBACK TO SAVEPOINT before")
        self._stop.wait(chance.choice([0, 0, 0.001, 0.05]))
        if chance.random() < 0.1:
            connection.rollback()
        else:
            connection.commit()
        self.transactions += 1

    def _change(self, connection: Any, chance: random.Random, number: int, mine: int) -> None:
        connection.execute("SET LOCAL lock_timeout = '20ms'")
        sql, arguments = chance.choice(
            [
                ("INSERT INTO orders VALUES (%s, %s, %s, now())", (number, f"c{number}", chance.randrange(1000))),
                ("INSERT INTO notes VALUES (%s, %s, 0)", (number, str(number) * 500)),
                ("UPDATE orders SET amount = %s WHERE id >= %s AND id < %s + 5", (number % 97, mine, mine)),
                ("UPDATE notes SET n = n + 1 WHERE id >= %s AND id < %s + 3", (mine, mine)),
                ("UPDATE notes SET id = %s WHERE id = (SELECT min(id) FROM notes WHERE id < 1000)", (number,)),
                ("DELETE FROM orders WHERE id = (SELECT min(id) FROM orders)", ()),
                ("DELETE FROM notes WHERE id = (SELECT max(id) FROM notes WHERE id < %s)", (mine,)),
            ]
        )
        connection.execute(sql, arguments)


def set_log_variables(tables: ChangedTables, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection's variables, for this process, until the test ends. It may set them anew itself."""
    for name, value in tables.variables.items():
        monkeypatch.setenv(name, value)
    assert read_connection(tables.job.source, tables.variables)
