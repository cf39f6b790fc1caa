"""First runs of two copies whose trees overlap, one of them killed before it claims: the other goes on."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.destinations.claims import find_claim, list_intents
from gobblin_assets.errors import RejectedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.fs.registry import open_file_system
from tests.crash.test_kills import KILLED
from tests.support.copy_lake import CopyLake, CopyWorld
from tests.support.copy_places import BUCKET, DISK, make_copy_lake
from tests.support.lake import start_worker
from tests.support.object_lake import ObjectLake


@pytest.fixture(params=[DISK, BUCKET])
def lake(
    request: pytest.FixtureRequest, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> CopyLake:
    return make_copy_lake(request, request.param, database_url, tmp_path, monkeypatch)


def destination_of(lake: CopyLake) -> str:
    return f"s3:/{lake.place}" if isinstance(lake, ObjectLake) else lake.root


def job_of(lake: CopyLake, name: str, below: str) -> CopyLake:
    options: dict[str, Any] = {"job": name, "destination": f"{destination_of(lake)}{below}"}
    return replace(lake, options=options)


@pytest.fixture
def outer(lake: CopyLake) -> CopyLake:
    return job_of(lake, "outer", "")


@pytest.fixture
def inner(lake: CopyLake) -> Iterator[CopyWorld]:
    opened = job_of(lake, "inner", "/mine").open_world()
    yield opened
    opened.close()


def test_a_run_that_was_killed_before_it_claimed_stops_nobody(outer: CopyLake, inner: CopyWorld) -> None:
    files, root = open_file_system(destination_of(outer))
    worker = start_worker(outer, failpoint=f"{Failpoint.DESTINATION_BOUND}=stop,{Failpoint.CLAIM_INTENDED}=kill")
    worker.wait_until_stopped()
    assert not inner.run().failed
    worker.wake_up()
    assert worker.wait() == KILLED
    assert list_intents(files, root)

    inner.lake.change_source()
    assert not inner.run().failed

    world = outer.open_world()
    with pytest.raises(RejectedError, match="to which the job 'inner' copies"):
        world.run()
    world.close()
    assert not list_intents(files, root)
    assert find_claim(files, root) is None
    inner.lake.change_again()
    assert not inner.run().failed


def test_a_run_that_was_killed_before_it_claimed_is_completed_by_the_next(outer: CopyLake, inner: CopyWorld) -> None:
    files, root = open_file_system(destination_of(outer))
    worker = start_worker(outer, failpoint=f"{Failpoint.CLAIM_INTENDED}=kill")
    assert worker.wait() == KILLED
    with pytest.raises(RejectedError, match="is about to copy to a tree"):
        inner.run()

    world = outer.open_world()
    assert not world.run().failed
    world.close()

    assert find_claim(files, root) == "outer"
    assert not list_intents(files, root)
    with pytest.raises(RejectedError, match="to which the job 'outer' copies"):
        inner.run()
