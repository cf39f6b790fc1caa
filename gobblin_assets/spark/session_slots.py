"""Counts the tasks that a cluster runs at once, as an open session says.

What settings say goes before what a session sees: it stays the same while executors come and go.
"""

from typing import Any, cast

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, is_remote

from gobblin_assets.spark.slots import count_slots
from gobblin_assets.spark.spark_settings import is_local


def count_session_slots(session: SparkSession) -> int | None:
    """Of a session that is open; None: its driver runs the tasks itself, or nobody knows."""
    try:
        return _count_open(session)
    except (Py4JError, PySparkException, OSError):
        # The session is gone; who reads by it hears so.
        return None


def _count_open(session: SparkSession) -> int | None:
    master = _ask(session, "spark.master") or "local"
    if is_local(master):
        return None
    found = count_slots(master, lambda key: _ask(session, key))
    if found is not None or is_remote():
        # A server's context can't be asked.
        return found
    context = session.sparkContext
    # None once it was stopped.
    return None if cast("Any", context)._jsc is None else context.defaultParallelism  # noqa: SLF001  PySpark has no call for it


def _ask(session: SparkSession, key: str) -> str | None:
    return session.conf.get(key, None)
