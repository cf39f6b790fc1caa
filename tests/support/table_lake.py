"""A lake whose sources are tables of a real Postgres. Runs read these tables by Arrow, in their own process."""

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from psycopg import sql

from gobblin_assets import cli, failpoints
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.ingest.arrow_worker import ArrowWorker
from gobblin_assets.jobs.ingest.ingest_kind import IngestKind
from gobblin_assets.model.extract import ExtractType
from gobblin_assets.run.job_kind import JobKind
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.jdbc_kind import JdbcSourceSpec
from gobblin_assets.sources.jdbc.source import JdbcSource
from gobblin_assets.spec.job_parsing import parse_job, resolve_datasets
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec, SplitSpec, WatermarkSpec
from tests.support.forks import FORKS
from tests.support.hdfs_server import USER
from tests.support.kinds import COMBINATIONS, DIRECTORIES, HDFS, IN_A_STORE, OBJECTS, ON_HDFS
from tests.support.lake import Lake, make_lake, make_root
from tests.support.postgres import Database
from tests.support.reached_stores import reach_bucket, reach_hdfs
from tests.support.shares import rare, rotating
from tests.support.workers import Worker

TABLES: Final = "tables"
"""The kind of a table lake, beside those of ``support.kinds``."""

_URNS: Final = ("public.orders", "public.Odd Näme")
# Either all tables are one task, whose attempts share their read, or each WorkUnit is a task.
_TOGETHER: Final = SplitSpec(work_unit_rows=5, max_partitions=2, max_multi_work_units=1, task_rows_min=1)
_APART: Final = SplitSpec(work_unit_rows=5, max_partitions=2, max_multi_work_units=4, task_rows_min=1)

with_tables: Final = pytest.mark.parametrize(
    "lake", [*COMBINATIONS, rotating((TABLES, DIRECTORIES)), rare((TABLES, OBJECTS))], indirect=True, ids="-".join
)
"""Gives a test of the crash suite table lakes as well, in the test runs whose share has these cases."""

with_objects: Final = pytest.mark.parametrize(
    "lake", [*COMBINATIONS, *map(rare, IN_A_STORE)], indirect=True, ids="-".join
)
"""The same with lakes in a bucket."""

with_stores: Final = pytest.mark.parametrize(
    "lake", [*COMBINATIONS, *map(rare, [*IN_A_STORE, *ON_HDFS])], indirect=True, ids="-".join
)
"""The same with lakes in a bucket and on HDFS."""


@dataclass(frozen=True)
class TableLake(Lake):
    """``where``: the condition of every dataset, in SQL."""

    source: Database = field(kw_only=True)
    urns: tuple[str, ...] = _URNS
    kind: str = TABLES
    where: str | None = None

    def make_tables(self) -> None:
        with self.source.connect() as connection:
            for urn in self.urns:
                connection.execute(
                    sql.SQL("CREATE TABLE {} (number bigint PRIMARY KEY, value text)").format(_table(urn))
                )

    def add_rows(self, urn: str, count: int) -> None:
        statement = sql.SQL(
            "INSERT INTO {table} SELECT n, {urn} || '-' || n"
            " FROM (SELECT coalesce(max(number) + 1, 0) AS low FROM {table}) m,"
            " generate_series(m.low, m.low + {count} - 1) n"
        )
        with self.source.connect() as connection:
            connection.execute(statement.format(table=_table(urn), urn=urn, count=count))

    def source_rows(self, urn: str) -> list[tuple[int, str]]:
        with self.source.connect() as connection:
            found = connection.execute(sql.SQL("SELECT number, value FROM {}").format(_table(urn))).fetchall()
        return [(int(str(number)), str(value)) for number, value in found]

    def connection(self) -> JdbcConnection:
        source = self.source
        return JdbcConnection(url=source.jdbc_url, user=source.user, password=source.password, name="shop")

    def job(self) -> JobSpec:
        shared: dict[str, Any] = {
            "extract": ExtractType.APPEND_ONLY,
            "watermark": WatermarkSpec(column="number"),
            "where": self.where,
            "split": _TOGETHER if self.shares else _APART,
        }
        source = JdbcSourceSpec(connection="shop", reader="arrow")
        datasets = tuple(DatasetSpec(urn=urn, **shared) for urn in self.urns)
        return parse_job(super().job().model_copy(update={"source": source, "datasets": datasets}))

    def open_kind(self) -> JobKind:
        job = self.job()
        fs, _root = open_file_system(self.root)
        return IngestKind(
            resolve_datasets(job, None),
            JdbcSource(self.connection(), job.source),
            _open_no_spark,
            _open_no_spark,
            open_arrow=lambda: ArrowWorker(fs),
        )


def make_table_lake(database_url: str, folder: Path, source: Database, destination: str, **options: Any) -> TableLake:
    """Thirteen rows in each of two tables of ``source``."""
    made = TableLake(database_url, str(folder), source=source, destination=destination, **options)
    make_root(made)
    made.make_tables()
    for urn in made.urns:
        made.add_rows(urn, 13)
    return made


def make_any_lake(request: pytest.FixtureRequest, database_url: str, folder: Path) -> Lake:
    """A lake of the kind and the destination in the fixture's parameter."""
    kind, destination = request.param
    reach = {OBJECTS: reach_bucket, HDFS: _reach_hdfs}.get(destination)
    store: dict[str, Any] = {} if reach is None else _reach_store(request, *reach(request))
    if kind != TABLES:
        return make_lake(database_url, folder, request.param, **store)
    return make_table_lake(database_url, folder, request.getfixturevalue("fresh_database"), destination, **store)


def _reach_hdfs(request: pytest.FixtureRequest) -> tuple[str, Mapping[str, str]]:
    """hdfs-native's own variable is put back after the test, too."""
    place, environment = reach_hdfs(request)
    return place, {**environment, "HADOOP_USER_NAME": USER}


def _reach_store(request: pytest.FixtureRequest, uri: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """This process reaches it during the test."""
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    for name, value in environment.items():
        patch.setenv(name, value)
    return {"store": uri, "environment": dict(environment)}


def start_command(lake: TableLake, failpoint: str = "") -> Worker:
    """``gobblin-assets run`` of the lake's job, as a shell starts it."""
    log = Path(lake.directory, "failpoints.log")
    job_file, home = Path(lake.directory, "job.yaml"), Path(lake.directory, "home")
    job_file.write_text(lake.job().model_dump_json(exclude_unset=True), encoding="utf-8")
    connection = lake.connection()
    environment = {
        "GOBBLIN_HOME": str(home),
        "GOBBLIN_DATABASE_URL": lake.database_url,
        "GOBBLIN_JDBC_SHOP_URL": connection.url,
        "GOBBLIN_JDBC_SHOP_USER": connection.user or "",
        "GOBBLIN_JDBC_SHOP_PASSWORD": connection.password or "",
        **lake.environment,
    }
    arguments = ["run", str(job_file), "--no-dagster"]
    process = FORKS.Process(target=_command, args=(arguments, environment, failpoint, str(log)))
    process.start()
    return Worker(process, log)


def _command(arguments: Sequence[str], environment: Mapping[str, str], failpoint: str, log: str) -> None:
    os.environ.update(environment)
    if failpoint:
        failpoints.arm(failpoint, log)
    # Forked processes ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main(arguments, prog_name="gobblin-assets")


def _table(urn: str) -> sql.Identifier:
    return sql.Identifier(*urn.split(".", 1))


def _open_no_spark() -> Any:
    raise AssertionError("Spark was asked for")
