"""How jobs of each kind are run from the environment, by the kind of their specification.

A package whose kind has a specification of its own offers a program by an entry point of the group
``gobblin_assets.job_programs``. A kind that writes the options of an ingestion needs none.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from gobblin_assets.extensions import Extensions
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.job_rules import JobRules
from gobblin_assets.run.run_values import DatasetReport, RunPorts
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_options import DatasetOptions, JobOptions

Say = Callable[[str], None]
Tell = Callable[[DatasetReport], None]


class JobProgram(Protocol):
    """What commands do with a job. ``job`` is a specification of the program's kind."""

    def read_datasets(self, job: Any) -> Mapping[DatasetUrn, DatasetOptions]:
        """Every dataset of the job, as written or found. RejectedError for what a person must correct."""
        ...

    def rules_of(self, job: Any) -> JobRules:
        """What the engine asks of the job."""
        ...

    def root_uri(self, job: Any) -> str:
        """The root that the log knows the job by."""
        ...

    def open_run(
        self,
        job: Any,
        datasets: Mapping[DatasetUrn, DatasetOptions],
        open_spark: Callable[[], Any],
        stores: Stores,
        say: Say,
        on_publication: Tell,
    ) -> AbstractContextManager[RunPorts]:
        """What a run of the job needs. ``open_spark`` gives the SparkEngine that the command's options describe."""
        ...


JOB_PROGRAMS: Final = Extensions[JobProgram](
    group="gobblin_assets.job_programs",
    noun="kind of job",
    option="kind",
    accepts=lambda offered: hasattr(offered, "open_run"),
    built_in={
        "ingest": "gobblin_assets.jobs.ingest.program:PROGRAM",
        "distcp": "gobblin_assets.jobs.copy.program:PROGRAM",
    },
)


def program_of(job: JobOptions) -> JobProgram:
    """RejectedError if no package of this environment runs jobs of the kind."""
    return JOB_PROGRAMS.get(job.kind)
