"""The demo's job file, as the command line and `dagster dev` read it. `make demo` itself is its own test."""

from pathlib import Path

import pytest

from gobblin_assets.dagster.factory import build_gobblin_layout
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.selection import select_partitions
from gobblin_assets.errors import RejectedError
from gobblin_assets.spec.job_files import read_job_file

CLONE = Path(__file__).parents[2]


@pytest.fixture
def layout() -> JobLayout:
    return build_gobblin_layout(read_job_file(CLONE / "demo" / "nyc.yaml"))


def test_the_destination_lies_beside_the_job_file_wherever_it_is_read_from(layout: JobLayout) -> None:
    assert layout.job.destination == str(CLONE / ".demo" / "lake")


def test_a_range_takes_its_months_of_every_dataset_that_has_months(layout: JobLayout) -> None:
    selection = select_partitions(layout, urns=[], keys=[], ranges=[("2013-01-01", "2013-10-01")])

    months = [f"2013-{month:02}-01" for month in range(1, 11)]
    assert sorted(selection) == ["public.flights", "public.weather"]
    assert all([p.key for p in partitions] == months for partitions in selection.values())


def test_without_partitions_the_datasets_that_have_none_are_taken(layout: JobLayout) -> None:
    selection = select_partitions(layout, urns=[], keys=[], ranges=[])

    assert sorted(selection) == ["public.airlines", "public.airports", "public.planes"]


def test_months_begin_at_midnight_in_new_york(layout: JobLayout) -> None:
    selection = select_partitions(layout, urns=["public.flights"], keys=["2013-12-01"], ranges=[])

    window = selection[next(iter(selection))][0].window
    assert window is not None
    assert (window.start.isoformat(), window.end.isoformat()) == (
        "2013-12-01T05:00:00+00:00",
        "2014-01-01T05:00:00+00:00",
    )


def test_a_snapshot_has_no_range(layout: JobLayout) -> None:
    with pytest.raises(RejectedError, match=r"public\.planes"):
        select_partitions(layout, urns=["public.planes"], keys=[], ranges=[("2013-01-01", "2013-02-01")])
