"""Copies as commands run them."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from gobblin_assets.destinations.named_tree import work_root_of
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec, CopySpec
from gobblin_assets.jobs.copy.running import list_copy_datasets, open_copy_run
from gobblin_assets.jobs.programs import Say, Tell
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.job_rules import JobRules
from gobblin_assets.run.run_values import RunPorts
from gobblin_assets.run.stores import Stores


class CopyProgram:
    """``JobProgram`` of the kind ``distcp``."""

    def read_datasets(self, job: CopySpec) -> Mapping[DatasetUrn, CopyDatasetSpec]:
        return {urn: each.spec for urn, each in list_copy_datasets(job).items()}

    def rules_of(self, job: CopySpec) -> JobRules:
        return job

    def root_uri(self, job: CopySpec) -> str:
        return work_root_of(job.destination)

    def open_run(
        self,
        job: CopySpec,
        datasets: Mapping[DatasetUrn, CopyDatasetSpec],
        open_spark: Callable[[], object],
        stores: Stores,
        say: Say,
        on_publication: Tell,
    ) -> AbstractContextManager[RunPorts]:
        """Copies need no Spark."""
        del datasets, open_spark
        return open_copy_run(job, stores, say, on_publication)


PROGRAM: Final = CopyProgram()
