"""Chooses where the rows of a job go, with what only the job's source knows."""

from collections.abc import Mapping

from gobblin_assets.destinations.registry import open_destination
from gobblin_assets.destinations.rows_place import RowsPlace, choose_rows_place
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.destination import Destination, DestinationRequest
from gobblin_assets.sources.environment import address_variable
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.source_kind import kind_of


def rows_place_of(job: JobSpec, specs: Mapping[DatasetUrn, DatasetSpec]) -> RowsPlace | None:
    """The place of the job's rows; None: the job publishes files. RejectedError names the field and the fix."""
    source_address = None if kind_of(job.source).connection is None else address_variable(job.source)
    return choose_rows_place(job, specs, source_address)


def open_job_destination(
    job: JobSpec, specs: Mapping[DatasetUrn, DatasetSpec], request: DestinationRequest
) -> Destination:
    """Files below the job's root, or what the job loads rows into. Nothing is connected to or made yet."""
    place = rows_place_of(job, specs)
    if place is None:
        return open_destination(request)
    from gobblin_assets.destinations.loaded_destination import (  # noqa: PLC0415  most jobs publish files
        open_loaded_destination,
    )

    return open_loaded_destination(request, place)
