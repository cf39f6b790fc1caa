"""Counts the tasks that a cluster runs at once, as far as settings say: nothing is opened to learn it."""

from collections.abc import Callable, Mapping
from typing import Final

from gobblin_assets.spark.spark_settings import is_local

_CORES_MAX: Final = "spark.cores.max"
_CORES_OF_TASK: Final = "spark.task.cpus"
_CORES_OF_EXECUTOR: Final = "spark.executor.cores"
_EXECUTORS: Final = "spark.executor.instances"
_EXECUTORS_MAX: Final = "spark.dynamicAllocation.maxExecutors"
_IS_DYNAMIC: Final = "spark.dynamicAllocation.enabled"


def count_conf_slots(master: str, conf: Mapping[str, str]) -> int | None:
    """None: Spark runs on this machine, or the settings don't say."""
    return None if is_local(master) else count_slots(master, conf.get)


def count_slots(master: str, find: Callable[[str], str | None]) -> int | None:
    """By the settings that ``find`` finds; None: they don't say."""
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
