"""A code location for `dagster dev`: the small world of ``dagster_world``, whose next run can be made to die.

While there is a file ``die`` in the world's folder, the first process that publishes a file removes ``die`` and then
kills or stops itself, as ``die`` says: between a rename and the watermark.
"""

import os
import signal
from contextlib import ExitStack, suppress
from pathlib import Path

import dagster as dg

from gobblin_assets import failpoints
from gobblin_assets.dagster.factory import build_gobblin_definitions
from gobblin_assets.failpoints import Failpoint
from tests.support.dagster_world import build_world, describe_job, read_environment

_folder, _database_url = read_environment()


def _die_once(reached: Failpoint) -> None:
    order = Path(_folder, "die")
    if reached is not Failpoint.STEP_AFTER or not order.exists():
        return
    action = order.read_text(encoding="ascii")
    with suppress(FileNotFoundError):
        order.rename(_folder / "died")
    os.kill(os.getpid(), signal.Signals[action])


# Held for as long as the process lives.
_armed = ExitStack()
_armed.enter_context(failpoints.install(_die_once))


_MONTHLY = {
    "extract": "append_only",
    "watermark": {"column": "day", "type": "date"},
    "partitions": {"kind": "monthly", "start": "2013-01-01", "end": "2014-01-01"},
}
_LEASE = {"ttl_s": 4, "wait_s": 0}


@dg.definitions
def defs() -> dg.Definitions:
    """Two jobs: a backfill of one takes a single run, as is the default, one of the other a run for each partition."""
    single = [{"table": "sales", **_MONTHLY}]
    visits = [{"table": "visits", **_MONTHLY}]
    several = describe_job(_folder, job="store", datasets=visits, lease=_LEASE, backfill="multi_run")
    return dg.Definitions.merge(
        build_world(_folder, _database_url, datasets=single, lease=_LEASE),
        build_gobblin_definitions(several),
    )
