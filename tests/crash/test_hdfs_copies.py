"""Copies to HDFS by a user who is no superuser, killed amid directories that let nobody write.

All other kills of copies to HDFS are those of ``test_copies``.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from gobblin_assets.failpoints import Failpoint
from tests.crash.test_copies import check_complete, kill
from tests.crash.test_kills import open_sequence
from tests.support.copy_lake import look_at
from tests.support.copy_places import HDFS, make_copy_lake
from tests.support.hdfs_lake import HdfsLake
from tests.support.hdfs_place import HdfsClient
from tests.support.lake import start_worker


@pytest.fixture
def lake(
    request: pytest.FixtureRequest, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> HdfsLake:
    made = make_copy_lake(request, HDFS, database_url, tmp_path, monkeypatch)
    assert isinstance(made, HdfsLake)
    return made


@pytest.mark.rare
@pytest.mark.parametrize(
    "at",
    [
        f"{Failpoint.STEP_AFTER}@1",
        f"{Failpoint.STEP_BEFORE}@5",
        f"{Failpoint.STEP_BEFORE}@11",
        f"{Failpoint.STEP_AFTER}@13",
        Failpoint.VERIFIED_BEFORE_FINISH,
    ],
)
@pytest.mark.parametrize("way", ["resumed", "abandoned"])
def test_an_ordinary_user_s_closed_directories_are_closed_again(lake: HdfsLake, at: str, way: str) -> None:
    HdfsClient(lake.http_address).ask("PUT", lake.place, "SETOWNER", owner="ann")
    ordinary = replace(lake, environment=(*lake.environment, ("GOBBLIN_HDFS_USER", "ann")))
    (lake.source / "albums").chmod(0o555)
    assert start_worker(ordinary).wait() == 0
    before = lake.look()
    assert before == look_at(lake.source)
    lake.change_source()
    (lake.source / "albums/new.bin").chmod(0o444)
    for path in ("trip/sea", "trip", "empty/nested", "empty"):
        (lake.source / "albums" / path).chmod(0o555)
    kill(ordinary, at)
    world = lake.open_world()
    world.expire_leases()
    if way == "abandoned":
        sequence_id = str(open_sequence(world))
        assert start_worker(ordinary, action="abandon", argument=sequence_id).wait() == 0
        now = lake.look()
        assert {name: now[name] for name in before} == before
        assert {found for name, found in now.items() if name not in before} <= {(0o555,)}

    assert start_worker(ordinary).wait() == 0

    check_complete(world)
    world.close()
