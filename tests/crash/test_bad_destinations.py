"""Runs whose destination fills up or becomes read-only on the way: nothing half-published, and the next one repairs."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gobblin_assets import failpoints
from gobblin_assets.errors import RejectedError
from gobblin_assets.failpoints import Failpoint
from tests.support.lake import Lake, World
from tests.support.mounts import remount_read_only, tmpfs


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
    # One dataset: a file that a sibling has open for writing would keep the remount from happening.
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
