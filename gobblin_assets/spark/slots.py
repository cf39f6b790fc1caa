"""How many tasks a cluster runs at once, as far as settings or an open session say: nothing is opened to learn it.

What settings say goes before what a session sees: it stays the same while executors come and go.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, is_remote

from gobblin_assets.spark.settings import is_local

_CORES_MAX: Final = "spark.cores.max"
_CORES_OF_TASK: Final = "spark.task.cpus"
_CORES_OF_EXECUTOR: Final = "spark.executor.cores"
_EXECUTORS: Final = "spark.executor.instances"
_EXECUTORS_MAX: Final = "spark.dynamicAllocation.maxExecutors"
_IS_DYNAMIC: Final = "spark.dynamicAllocation.enabled"


def count_conf_slots(master: str, conf: Mapping[str, str]) -> int | None:
    """None: Spark runs on this machine, or the settings don't say."""
    return None if is_local(master) else _count(master, conf.get)


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
    found = _count(master, lambda key: _ask(session, key))
    if found is not None or is_remote():
        # A server's context can't be asked.
        return found
    context = session.sparkContext
    # None once it was stopped.
    return None if cast("Any", context)._jsc is None else context.defaultParallelism  # noqa: SLF001  PySpark has no call for it


def _ask(session: SparkSession, key: str) -> str | None:
    return session.conf.get(key, None)


def _count(master: str, find: Callable[[str], str | None]) -> int | None:
    of_executor = _read_number(find(_CORES_OF_EXECUTOR))
    if of_executor is None and not master.startswith("spark://"):
        # Executors of a standalone master take all cores of their worker; others take one, if nobody says more.
        of_executor = 1
    is_dynamic = (find(_IS_DYNAMIC) or "").strip().lower() == "true"
    executors = _read_number(find(_EXECUTORS_MAX if is_dynamic else _EXECUTORS))
    limits = [_read_number(find(_CORES_MAX))]
    if of_executor is not None and executors is not None:
        limits.append(of_executor * executors)
    known = [limit for limit in limits if limit is not None]
    return max(1, min(known) // (_read_number(find(_CORES_OF_TASK)) or 1)) if known else None


def _read_number(text: str | None) -> int | None:
    """None also for what is no number of cores: Spark itself refuses it when it starts."""
    return int(text) if text is not None and text.strip().isdecimal() and int(text) > 0 else None
