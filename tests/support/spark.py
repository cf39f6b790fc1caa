"""Spark for tests: one classic session in this process, and one Connect server that child processes talk to.

PySpark allows a process one kind of session, so tests on Connect go through ``in_child``: a function of a module and
arguments that can be pickled.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from gobblin_assets.jobs.ingest.spark_engine import SparkEngine
from gobblin_assets.spark import connect_server
from gobblin_assets.spark.connect_server import ConnectServer
from gobblin_assets.spark.session import open_session
from gobblin_assets.spark.spark_settings import SparkSettings
from tests.support.forks import FORKS

DEADLINE_S = 120.0
"""Only a failing test waits so long without progress."""

SMALL = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
}

STRANGERS = {
    "MASTER": "spark://nowhere.invalid:7077",
    "DEPLOY_MODE": "cluster",
    "SPARK_REMOTE": "sc://nowhere.invalid/;token=hush",
    "SPARK_API_MODE": "connect",
    "SPARK_CONNECT_MODE": "1",
    "PYSPARK_SUBMIT_ARGS": "--master spark://nowhere.invalid:7077 --remote sc://nowhere.invalid pyspark-shell",
}
"""Variables by which PySpark and spark-submit take an address that nobody gave to the product."""


def local_settings(work_folder: Path) -> SparkSettings:
    return SparkSettings(
        work_folder,
        master="local[2]",
        conf=SMALL,
        capabilities=("avro", "kafka", "postgres", "mariadb", "mysql", "sqlite", "duckdb", "h2"),
        # A database that the product does not know.
        coordinates={"h2": "com.h2database:h2:2.5.252"},
    )


@pytest.fixture(scope="session")
def spark_settings() -> Iterator[SparkSettings]:
    """The settings of ``spark``: ``open_session`` with them gives that session."""
    work_folder = Path(tempfile.mkdtemp(prefix="gobblin-spark-"))
    yield local_settings(work_folder)
    shutil.rmtree(work_folder, ignore_errors=True)


@pytest.fixture(scope="session")
def spark(spark_settings: SparkSettings) -> Iterator[SparkSession]:
    session = open_session(spark_settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connect() -> Iterator[ConnectServer]:
    """A warm server, in a home whose name has a space."""
    home = Path(tempfile.mkdtemp(prefix="gobblin home "))
    yield connect_server.start_connect(home, local_settings(home / "spark"), print)
    assert connect_server.stop_connect(home)
    shutil.rmtree(home, ignore_errors=True)


def open_remote(server: ConnectServer) -> SparkSession:
    """A session on the server, for use in a child process."""
    return open_session(SparkSettings(server.log_path.parent, remote=server.url, conf=SMALL))


def in_child(function: Callable[..., Any], *arguments: object) -> Any:
    """In a process with this one's variables. It is forked from one that has imported Dagster and PySpark's client:
    that takes longer than what most children do.
    """
    with ProcessPoolExecutor(1, mp_context=FORKS, initializer=_take, initargs=(dict(os.environ),)) as pool:
        return pool.submit(function, *arguments).result()


def _take(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()


def slow_frame(spark: SparkSession, rows: int = 3_000) -> DataFrame:
    """A frame that takes about 0.1 s a row in each of two tasks: far longer than any test waits."""
    return spark.range(0, rows, 1, 2).selectExpr("id", "java_method('java.lang.Thread', 'sleep', 100L) AS slept")


def tasks_run(directory: str) -> bool:
    """Whether a write into the directory has reached its tasks. Each makes a folder before its first row."""
    return any(Path(directory).glob("_temporary/0/_temporary/attempt*"))


def wait_until(
    reached: Callable[[], bool], what: str | Callable[[], str], *, progress: Callable[[], object] = lambda: None
) -> None:
    """``progress``: what changes as long as the awaited work goes on. Each change gives it ``DEADLINE_S`` more."""
    end, last = time.monotonic() + DEADLINE_S, progress()
    while not reached():
        if (now := progress()) != last:
            end, last = time.monotonic() + DEADLINE_S, now
        assert time.monotonic() < end, f"never reached: {what if isinstance(what, str) else what()}"
        time.sleep(0.05)


def find_servers() -> list[bool]:
    """Whether engines use the warm server, in a process that has no session yet."""
    engines = [SparkEngine(more_jars={"spark.jars": "/a.jar"}), SparkEngine(conf={"spark.ui.enabled": "true"})]
    return [engine.find_server() is not None for engine in engines]
