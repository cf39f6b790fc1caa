"""Two jobs that copy the same files to each other's source: both are at rest once the trees are equal."""

from pathlib import Path

import pytest

from tests.support import copy_lake
from tests.support.copy_lake import CopyLake, CopyWorld, Look, Open, files_of

pytestmark = pytest.mark.turns(of=4)

job = copy_lake.job


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> CopyLake:
    made = CopyLake(database_url, str(tmp_path))
    made.make_source()
    return made


def run_both(there: CopyWorld, back: CopyWorld, lake: CopyLake) -> tuple[Look, Look]:
    for world in (there, back):
        report = world.run()
        assert not report.failed, report
    return files_of(lake.source), files_of(lake.tree)


@pytest.mark.parametrize("deletes", ["off", "ours"])
def test_copies_there_and_back_come_to_rest_and_lose_nothing(lake: CopyLake, job: Open, deletes: str) -> None:
    there = job({}, deletes=deletes)
    back = job({"job": "back", "source": str(lake.tree), "destination": str(lake.source)}, deletes=deletes)
    before = files_of(lake.source)
    source, tree = run_both(there, back, lake)
    assert (source, tree) == (before, before), "nothing that is the same is copied back"

    lake.write("albums/new.jpg", 2)
    source, tree = run_both(there, back, lake)
    assert source == tree
    assert "albums/new.jpg" in tree

    # What somebody changes at either end is at both ends after one round, and stays.
    place = lake.tree / "albums/new.jpg"
    place.write_bytes(b"changed at the other end")
    for _ in range(3):
        source, tree = run_both(there, back, lake)
    assert source == tree
