"""Profiles: what Spark gets on the machines that this project is developed on. GOBBLIN_PROFILE names one."""

from collections.abc import Mapping
from typing import Final

from gobblin_assets.dagster.resources import GobblinSparkResource
from gobblin_assets.errors import RejectedError

VARIABLE: Final = "GOBBLIN_PROFILE"

_SMALL: Final = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}

_PROFILES: Final[Mapping[str, Mapping[str, str] | None]] = {"default": None, "small": _SMALL}


def find_spark(environment: Mapping[str, str]) -> GobblinSparkResource | None:
    """The profile's Spark; None: the one that the other variables say.

    ``default`` is a session as the environment says, ``small`` one of two threads and 1 GiB inside each run's process.
    RejectedError for another name.
    """
    name = environment.get(VARIABLE) or "default"
    if name not in _PROFILES:
        raise RejectedError(
            f"expected one of {', '.join(_PROFILES)}, found {name!r}", field=VARIABLE, hint="Correct it, or unset it."
        )
    conf = _PROFILES[name]
    return None if conf is None else GobblinSparkResource(master="local[2]", spark_config=dict(conf))
