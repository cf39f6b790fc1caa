"""A session of Spark that reads from a store, in one process of its own for all tests of a module.

Its JVM has the environment that it was started with, so that the session of other tests could not reach a store of
theirs.
"""

import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from gobblin_assets.spark.session import open_session
from gobblin_assets.spark.spark_settings import SparkSettings
from tests.support.spark import SMALL


@dataclass(frozen=True)
class StoreReader:
    """``ask`` calls a function of a module, which can be pickled, with the session and these arguments."""

    pool: ProcessPoolExecutor
    settings: SparkSettings

    def ask(self, function: Callable[..., Any], *arguments: object) -> Any:
        return self.pool.submit(_call, function, self.settings, arguments).result()


@contextmanager
def run_store_reader(
    environment: Mapping[str, str], conf: Mapping[str, str], capabilities: tuple[str, ...] = ("s3",)
) -> Iterator[StoreReader]:
    work_folder = Path(tempfile.mkdtemp(prefix="gobblin-spark-"))
    settings = SparkSettings(work_folder, master="local[2]", conf={**SMALL, **conf}, capabilities=capabilities)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, initializer=_prepare, initargs=(dict(environment),)) as pool:
        yield StoreReader(pool, settings)
    shutil.rmtree(work_folder, ignore_errors=True)


def _prepare(environment: Mapping[str, str]) -> None:
    os.environ.update(environment)


def _call(function: Callable[..., Any], settings: SparkSettings, arguments: tuple[object, ...]) -> Any:
    session: SparkSession = open_session(settings)
    return function(session, *arguments)
