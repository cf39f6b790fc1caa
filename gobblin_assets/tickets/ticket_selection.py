"""The partitions that a ticket asks for."""

import datetime as dt
import time
from collections.abc import Callable
from typing import Final

from gobblin_assets.model.extract import Mode
from gobblin_assets.model.job_ticket import TicketSelection
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_options import JobOptions
from gobblin_assets.spec.selection import (
    Datasets,
    Selection,
    leave_published,
    measure_wait_s,
    select_missing,
    select_partitions,
)

_WAIT_S_MAX: Final = 120.0
"""A run of a schedule waits so long for the last rows of a window; what needs longer is for the next run."""


def select_of_ticket(
    selection: TicketSelection,
    job: JobOptions,
    datasets: Datasets,
    stores: Stores,
    now: dt.datetime,
    sleep: Callable[[float], None] = time.sleep,
) -> Selection:
    """The partitions that a ticket asks for. RejectedError as by ``spec.selection``.

    Named windows that are published are left out, unless the mode says what is to be done with them. A run that was
    fired as a window ended waits until the window's rows are there.
    """
    published = stores.tickets.list_published(JobName(job.job))
    if selection.partitions or selection.ranges:
        named = select_partitions(
            job,
            datasets,
            urns=selection.datasets,
            keys=selection.partitions,
            ranges=selection.ranges,
            begun_by=now,
        )
        return leave_published(datasets, named, published) if selection.mode is Mode.AUTO else named
    if selection.begun_by is not None:
        wait_s = measure_wait_s(datasets, selection.begun_by, now)
        if 0.0 < wait_s <= _WAIT_S_MAX:
            sleep(wait_s)
            now += dt.timedelta(seconds=wait_s)
    return select_missing(
        job,
        datasets,
        published,
        urns=selection.datasets,
        now=now,
        limit=selection.missing_max,
        ended_by=selection.begun_by,
    )
