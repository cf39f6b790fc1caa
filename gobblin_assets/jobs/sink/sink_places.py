"""Where the rows of a sink go, if they go into no files. Checked before anything is written; connects to nothing."""

from collections.abc import Mapping

from gobblin_assets.destinations.loaded_destination import RowsPlace
from gobblin_assets.jobs.sink.sink_tables import choose_tables
from gobblin_assets.jobs.sink.sink_topics import choose_topics
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.sink_spec import TopicsSpec


def choose_rows_place(job: JobSpec, specs: Mapping[DatasetUrn, DatasetSpec]) -> RowsPlace | None:
    """None: the job publishes files. RejectedError names the field and the fix."""
    into = job.sink.into
    return choose_topics(job, into, specs) if isinstance(into, TopicsSpec) else choose_tables(job, specs)
