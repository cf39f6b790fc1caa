"""A store whose ETags look like digests of the bytes, and are none, as where keys of its own encrypt them (SSE-KMS)."""

from collections.abc import Iterator

import pytest

from gobblin_assets.fs.objects import Ability
from gobblin_assets.model.extract import Mode
from gobblin_assets.run.run_values import RunReport
from tests.simulation.object_history import list_published, list_visible
from tests.simulation.object_world import ObjectWorld
from tests.simulation.stored_rows import StoredRowsChecker, StoredRowsWorld
from tests.simulation.world import World, stepped

LACKING = frozenset(Ability) - {Ability.FORESEEN_ETAGS}


@pytest.fixture(autouse=True)
def steps() -> Iterator[None]:
    with stepped():
        yield


def run(world: World, mode: Mode = Mode.APPEND) -> RunReport:
    report = world.open_process().run(mode)
    assert report is not None
    assert not report.failed, [each.error for each in report.datasets]
    return report


def test_files_of_rows_that_were_replaced_are_removed() -> None:
    world = StoredRowsWorld(honours=LACKING)
    world.add_rows()
    run(world)
    run(world, Mode.REFRESH)
    world.db.advance(10 * 24 * 3600)

    world.open_process().clean()

    StoredRowsChecker().check_files_at_rest(world)


def test_copies_go_on_and_no_identity_has_an_etag_that_is_none() -> None:
    world = ObjectWorld(honours=LACKING)
    world.write_source("changed", "removed", "_SUCCESS")
    run(world)
    world.change_source()
    run(world)

    assert set(list_published(world).values()) == {""}
    names = {path.rpartition("/")[2] for path in list_visible(world)}
    assert names == {path.rpartition("/")[2] for path in list_published(world)}
