"""Bounds of what one run is asked for, checked before anything of it is stored."""

from collections.abc import Iterable
from itertools import chain, islice
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.job_ticket import TicketSelection
from gobblin_assets.service.flow_store import LaunchedJob
from gobblin_assets.spec.job_parsing import parse_any_job, resolve_datasets
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.partition_keys import list_time_partitions

BACKFILL_PARTITIONS_MAX: Final = 1_000
"""Of each dataset. A run of more would hold its executor for days."""


def check_backfill(jobs: Iterable[LaunchedJob], selection: TicketSelection) -> None:
    """RejectedError: the ranges have too many partitions, or a dataset that is divided by time has none of these."""
    if not selection.ranges:
        return
    for job in jobs:
        # What is behind another job reads all that is new of it.
        spec = None if job.after else _find_spec(job)
        for urn, dataset in ({} if spec is None else resolve_datasets(spec, None)).items():
            if not dataset.partitions.kind.is_time or (selection.datasets and urn not in selection.datasets):
                continue
            keys = chain.from_iterable(list_time_partitions(dataset, *each) for each in selection.ranges)
            if sum(1 for _ in islice(keys, BACKFILL_PARTITIONS_MAX + 1)) > BACKFILL_PARTITIONS_MAX:
                raise RejectedError(
                    f"the ranges have more than {BACKFILL_PARTITIONS_MAX:,} partitions of {urn}",
                    field="ranges",
                    hint=f"Ask for at most {BACKFILL_PARTITIONS_MAX:,}, one run after the other. Without any, a run "
                    "takes the oldest ones that are missing.",
                )


def _find_spec(job: LaunchedJob) -> JobSpec | None:
    """None: its kind has other options, or is known to executors alone, which check what they run."""
    try:
        spec = parse_any_job(job.ticket.job)
    except RejectedError:
        return None
    return spec if isinstance(spec, JobSpec) else None
