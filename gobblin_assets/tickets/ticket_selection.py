"""The partitions that a ticket asks for."""

import datetime as dt

from gobblin_assets.model.job_ticket import TicketSelection
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_options import JobOptions
from gobblin_assets.spec.selection import Datasets, Selection, select_missing, select_partitions


def select_of_ticket(
    selection: TicketSelection, job: JobOptions, datasets: Datasets, stores: Stores, now: dt.datetime
) -> Selection:
    """The partitions that a ticket asks for. RejectedError as by ``spec.selection``."""
    if selection.partitions or selection.ranges:
        return select_partitions(
            job,
            datasets,
            urns=selection.datasets,
            keys=selection.partitions,
            ranges=selection.ranges,
            begun_by=now,
        )
    published = stores.tickets.list_published(JobName(job.job))
    return select_missing(job, datasets, published, urns=selection.datasets, now=now, limit=selection.missing_max)
