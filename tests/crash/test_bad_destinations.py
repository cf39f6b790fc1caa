"""Runs whose destination fills up or becomes read-only meanwhile: nothing is half published; the next run repairs."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gobblin_assets import failpoints
from gobblin_assets.commit.attempts import staging_root
from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.path_names import job_directory, path_of
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from tests.support.lake import Lake, World
from tests.support.mounts import remount_read_only, tmpfs

pytestmark = pytest.mark.turns(of=4)


@pytest.fixture
def small(database_url: str, tmp_path: Path) -> Iterator[Lake]:
    made = Lake(database_url, str(tmp_path))
    with tmpfs(Path(made.root), options="size=256k,mode=755"):
        for urn in made.urns:
            made.add_rows(urn, 13)
        yield made


def test_a_disk_that_is_full_fails_the_run_and_the_next_one_publishes_all(small: Lake) -> None:
    world = World(small)
    ballast = Path(small.root, "ballast")
    ballast.write_bytes(b"\0" * 232 * 1024)

    report = world.run()

    assert report.failed, "the disk was to be too small for both datasets"
    assert {r.error_family for r in report.failed} == {"RetryableError"}
    ballast.unlink()
    assert not world.run().failed
    world.check_exactly_once()
    world.close()


def test_a_destination_that_turns_read_only_after_the_seal_is_completed_later(small: Lake) -> None:
    # One dataset only: a file that a sibling has open for writing would prevent the remount.
    world = World(replace(small, urns=small.urns[:1]))

    def lock(point: Failpoint) -> None:
        if point is Failpoint.SEALED_BEFORE_EXECUTE:
            remount_read_only(Path(small.root))

    with failpoints.install(lock):
        report = world.run()
    assert "RejectedError" in {r.error_family for r in report.failed}
    with pytest.raises(RejectedError, match="EROFS"):
        world.run()

    subprocess.run(["mount", "-o", "remount,rw", small.root], check=True)
    assert not world.run().failed
    world.check_exactly_once()
    world.close()


@pytest.mark.parametrize("role", list(Role), ids=str)
def test_a_link_at_a_dataset_s_place_fails_that_dataset_and_nothing_is_written_behind_it(
    database_url: str, tmp_path: Path, role: Role
) -> None:
    lake = Lake(database_url, str(tmp_path))
    for urn in lake.urns:
        lake.add_rows(urn, 5)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = Path(path_of(lake.root, JobName(lake.job().job), DatasetUrn(lake.urns[0]), role))
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    world = World(lake)

    report = world.run()

    assert [(r.urn, r.error_family) for r in report.failed] == [(lake.urns[0], "ConflictError")]
    assert str(link) in (report.failed[0].error or "")
    assert list(elsewhere.iterdir()) == []
    link.unlink()
    assert not world.run().failed
    world.check_exactly_once()
    world.close()


@pytest.mark.parametrize("place", ["the job's directory", "its staging"])
def test_a_link_at_the_job_s_or_the_staging_s_place_refuses_the_run(
    database_url: str, tmp_path: Path, place: str
) -> None:
    lake = Lake(database_url, str(tmp_path))
    lake.add_rows(lake.urns[0], 5)
    directory = Path(job_directory(lake.root, JobName(lake.job().job)))
    link = directory if place == "the job's directory" else Path(staging_root(str(directory)))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    world = World(lake)

    with pytest.raises(ConflictError, match="expected a directory"):
        world.run()

    assert list(elsewhere.iterdir()) == []
    link.unlink()
    assert not world.run().failed
    world.check_exactly_once()
    world.close()


def test_the_destination_itself_may_be_reached_by_a_link(database_url: str, tmp_path: Path) -> None:
    lake = Lake(database_url, str(tmp_path))
    lake.add_rows(lake.urns[0], 5)
    disk = tmp_path / "disk"
    disk.mkdir()
    Path(lake.root).symlink_to(disk)
    world = World(lake)
    assert not world.run().failed
    world.check_exactly_once()
    world.close()
