"""Ingestion as commands run it."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from gobblin_assets.jobs.ingest.running import open_run, read_job_datasets
from gobblin_assets.jobs.ingest.spark_engine import SparkEngine
from gobblin_assets.jobs.programs import Say, Tell
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.job_rules import JobRules
from gobblin_assets.run.run_values import RunPorts
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec


class IngestProgram:
    """``JobProgram`` of the kind ``ingest``."""

    def read_datasets(self, job: JobSpec) -> Mapping[DatasetUrn, DatasetSpec]:
        return read_job_datasets(job)

    def rules_of(self, job: JobSpec) -> JobRules:
        return job

    def root_uri(self, job: JobSpec) -> str:
        return job.destination

    def open_run(
        self,
        job: JobSpec,
        datasets: Mapping[DatasetUrn, DatasetSpec],
        open_spark: Callable[[], SparkEngine],
        stores: Stores,
        say: Say,
        on_publication: Tell,
    ) -> AbstractContextManager[RunPorts]:
        return open_run(job, datasets, open_spark(), stores, say, on_publication)


PROGRAM: Final = IngestProgram()
