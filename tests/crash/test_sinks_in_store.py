"""Workers of a sink whose destination is an object store or HDFS are killed: each record is published once."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gobblin_assets.failpoints import Failpoint
from gobblin_assets.fs.objects import HoldsObjects
from tests.crash.test_kills import KILLED
from tests.support.reached_stores import STORES, reach_destination
from tests.support.shares import rotating
from tests.support.sink_lake import SinkLake, SinkWorld, start_sink_worker

KILLS = (
    (Failpoint.ATTEMPT_REGISTERED, 2),
    (Failpoint.ATTEMPT_WRITTEN, 3),
    (Failpoint.ATTEMPT_DURABLE, 3),
    (Failpoint.SEAL_COMMITTED, 3),
    (Failpoint.STEP_BEFORE, 2),
    (Failpoint.STEP_AFTER, 2),
    (Failpoint.VERIFIED_BEFORE_FINISH, 3),
    (Failpoint.FINISH_COMMITTED, 3),
)


@pytest.fixture(params=STORES)
def reached(request: pytest.FixtureRequest) -> tuple[str, Mapping[str, str]]:
    return reach_destination(request)


@pytest.fixture
def world(
    reached: tuple[str, Mapping[str, str]], database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SinkWorld]:
    uri, environment = reached
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    opened = SinkWorld(SinkLake(database_url, str(tmp_path), destination=uri))
    yield opened
    opened.close()


@pytest.mark.parametrize(("point", "count"), [(Failpoint.STEP_AFTER, 1), *(rotating(*each) for each in KILLS)], ids=str)
def test_a_worker_killed_anywhere_is_gone_on_with_by_another(
    world: SinkWorld, reached: tuple[str, Mapping[str, str]], point: Failpoint, count: int
) -> None:
    killed = start_sink_worker(world.lake, failpoint=f"{point}=kill@{count}", environment=reached[1])
    assert killed.wait() == KILLED
    assert killed.reached(), "the failpoint was never reached"
    world.expire()

    world.work()

    world.check_exactly_once()
    assert not isinstance(world.fs, HoldsObjects) or not list(world.fs.objects.list_uploads(world.root))
