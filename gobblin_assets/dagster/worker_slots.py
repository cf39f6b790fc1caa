"""The slots of workers, by the limits of the instance's queue of runs."""

import dagster as dg
from dagster._core.run_coordinator.queued_run_coordinator import RunQueueConfig

from gobblin_assets.dagster.run_config import SINK_TAG


def find_workers_max(instance: dg.DagsterInstance) -> int | None:
    """So many workers of sinks may run at once; None: as many as there are."""
    return read_workers_max(instance.get_concurrency_config().run_queue_config)


def read_workers_max(queue: RunQueueConfig | None) -> int | None:
    """The same, of a queue. Without a queue nothing waits."""
    if queue is None:
        return None
    # A limit with a value is one for each job.
    limits = [
        each["limit"] for each in queue.tag_concurrency_limits if each["key"] == SINK_TAG and not each.get("value")
    ]
    # A number below 0 stands for none.
    return min((each for each in (queue.max_concurrent_runs, *limits) if each >= 0), default=None)
