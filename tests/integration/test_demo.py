"""The demo's job file, as the command line and `dagster dev` read it. `make demo` itself is its own test."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.ingest.running import read_job_datasets
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.job_files import read_job_file
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.spec.selection import select_partitions

CLONE = Path(__file__).parents[2]


@pytest.fixture
def job() -> JobSpec:
    return read_job_file(CLONE / "demo" / "nyc.yaml")


def select(job: JobSpec, **asked: Any) -> dict[DatasetUrn, tuple[AssetPartition, ...]]:
    return select_partitions(job, read_job_datasets(job), **asked, begun_by=dt.datetime.now(dt.UTC))


def test_the_destination_lies_beside_the_job_file_wherever_it_is_read_from(job: JobSpec) -> None:
    assert job.destination == str(CLONE / ".demo" / "lake")


def test_a_range_takes_its_months_of_every_dataset_that_has_months(job: JobSpec) -> None:
    selection = select(job, ranges=[("2013-01-01", "2013-10-01")])

    months = [f"2013-{month:02}-01" for month in range(1, 11)]
    assert sorted(selection) == ["public.flights", "public.weather"]
    assert all([p.key for p in partitions] == months for partitions in selection.values())


def test_without_partitions_the_datasets_that_have_none_are_taken(job: JobSpec) -> None:
    selection = select(job)

    assert sorted(selection) == ["public.airlines", "public.airports", "public.planes"]


def test_months_begin_at_midnight_in_new_york(job: JobSpec) -> None:
    selection = select(job, urns=["public.flights"], keys=["2013-12-01"])

    window = selection[next(iter(selection))][0].window
    assert window is not None
    assert (window.start.isoformat(), window.end.isoformat()) == (
        "2013-12-01T05:00:00+00:00",
        "2014-01-01T05:00:00+00:00",
    )


def test_a_snapshot_has_no_range(job: JobSpec) -> None:
    with pytest.raises(RejectedError, match=r"public\.planes"):
        select(job, urns=["public.planes"], ranges=[("2013-01-01", "2013-02-01")])
