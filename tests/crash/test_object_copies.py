"""Real copies to a bucket of versitygw, killed and paused: names hold what the log says, and no version is lost."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.failpoints import Failpoint
from tests.crash.test_copies import MOVED_ASIDE, check_complete, kill
from tests.crash.test_copies_restored import OF_SETTING_ASIDE, kill_and_back_up, set_aside_twice
from tests.crash.test_copies_strangers import abandon_beside
from tests.crash.test_kills import open_sequence
from tests.support import copy_lake
from tests.support.lake import start_worker
from tests.support.object_lake import ObjectCopyWorld, ObjectLake
from tests.support.restoring import backups
from tests.support.s3_servers import S3Server
from tests.support.shares import rotating

world, changed = copy_lake.world, copy_lake.changed

OF_A_FIRST_COPY: Final = (
    Failpoint.ATTEMPT_REGISTERED,
    Failpoint.ATTEMPT_WRITTEN,
    Failpoint.STAGED_BEFORE_SEAL,
)
OF_A_CHANGE: Final = (f"{Failpoint.STEP_AFTER}@2", f"{Failpoint.STEP_BEFORE}@5", f"{Failpoint.STEP_AFTER}@6")
MORE_OF_A_CHANGE: Final = (
    Failpoint.SEAL_COMMITTED,
    Failpoint.MARKER_WRITTEN,
    Failpoint.EXECUTED_BEFORE_SYNC,
    Failpoint.VERIFIED_BEFORE_FINISH,
    Failpoint.FINISH_COMMITTED,
)
OF_ABANDONMENT: Final = (Failpoint.ABANDON_RECORDED, Failpoint.ABANDON_CAPTURED, Failpoint.ABANDON_RETURNED)


@pytest.fixture
def lake(versitygw: S3Server, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectLake:
    place = f"/{versitygw.make_bucket()}/mirror"
    for name, value in versitygw.environment.items():
        monkeypatch.setenv(name, value)
    options = {"destination": f"s3:/{place}"}
    made = ObjectLake(
        database_url, str(tmp_path), options=options, place=place, environment=dict(versitygw.environment)
    )
    made.make_source()
    return made


@pytest.mark.parametrize("at", [*map(rotating, OF_A_FIRST_COPY)], ids=str)
def test_a_first_copy_killed_anywhere_is_completed_by_the_next(
    lake: ObjectLake, world: ObjectCopyWorld, at: str
) -> None:
    kill(lake, at)
    world.expire_leases()

    assert not world.run().failed

    check_complete(world)
    assert not world.slots()


@pytest.mark.parametrize(
    "at",
    [*map(rotating, OF_A_CHANGE), *(pytest.param(at, marks=pytest.mark.thorough) for at in MORE_OF_A_CHANGE)],
    ids=str,
)
def test_a_change_killed_anywhere_is_completed_by_the_next(lake: ObjectLake, changed: ObjectCopyWorld, at: str) -> None:
    kill(lake, at)
    changed.expire_leases()

    assert not changed.run().failed

    check_complete(changed)
    assert changed.slots() == MOVED_ASIDE


@pytest.mark.parametrize("point", [*map(rotating, OF_ABANDONMENT)], ids=str)
def test_an_abandonment_killed_anywhere_gives_the_old_versions_back(
    lake: ObjectLake, changed: ObjectCopyWorld, point: Failpoint
) -> None:
    before = changed.objects()
    kill(lake, f"{Failpoint.STEP_AFTER}@6")
    changed.expire_leases()
    sequence_id = open_sequence(changed)
    kill(lake, point, action="abandon", argument=str(sequence_id))
    changed.expire_leases()
    changed.operations().recover_due(None, on_publication=lambda _publication: None)

    assert changed.stores.commits.get(sequence_id).state == "ABORTED"
    assert changed.objects() == before
    assert not changed.run().failed
    check_complete(changed)


@pytest.mark.parametrize(
    "at", [rotating(f"{Failpoint.STEP_BEFORE}@{n}") for n in (1, 4, 6)] + [rotating(Failpoint.MARKER_WRITTEN)], ids=str
)
def test_a_paused_copy_changes_nothing_when_it_wakes_up(lake: ObjectLake, changed: ObjectCopyWorld, at: str) -> None:
    point, _, count = at.partition("@")
    zombie = start_worker(lake, failpoint=f"{point}=stop@{count or 1}")
    zombie.wait_until_stopped()
    changed.expire_leases()
    assert not changed.run().failed
    lake.change_again()
    assert not changed.run().failed

    zombie.wake_up()
    zombie.wait()

    changed.expire_leases()
    assert not changed.run().failed
    check_complete(changed)


@pytest.mark.rotating
@pytest.mark.parametrize("name", ["new.bin", "changed.bin", "removed.bin"])
def test_a_stranger_at_a_name_blocks_and_stays(lake: ObjectLake, changed: ObjectCopyWorld, name: str) -> None:
    kill(lake, Failpoint.SEAL_COMMITTED)
    changed.expire_leases()
    sequence_id, store, path = open_sequence(changed), lake.open_store(), f"{lake.place}/albums/{name}"
    old = store.find_object(path)
    if old is not None:
        store.remove_object(path, old.etag)
    store.put_if_absent(path, b"mine")
    stood = store.find_object(path)

    assert [str(report.urn) for report in changed.run().failed] == ["albums"]

    assert changed.stores.commits.get(sequence_id).state == "BLOCKED"
    abandon_beside(changed, sequence_id)
    assert store.find_object(path) == stood
    assert not changed.run().failed


@pytest.mark.rare
@pytest.mark.parametrize("point", OF_SETTING_ASIDE, ids=str)
def test_setting_aside_killed_anywhere_is_completed_and_who_wakes_up_then_changes_nothing(
    server: EmbeddedServer, lake: ObjectLake, changed: ObjectCopyWorld, point: str
) -> None:
    changed.close()
    albums = replace(lake, urns=("albums",)).open_world()
    with backups(server) as backup:
        restored = kill_and_back_up(albums, backup, f"{Failpoint.STEP_AFTER}@3")
        assert isinstance(restored, ObjectCopyWorld)
        assert not albums.run().failed
        lake.change_again()
        zombie = start_worker(albums.lake, failpoint=f"{Failpoint.STEP_BEFORE}=stop@2")
        zombie.wait_until_stopped()
        set_aside_twice(restored, point)
        before, kept = restored.objects(), restored.slots()

        zombie.wake_up()
        zombie.wait()

        assert restored.objects() == before
        assert restored.slots() >= kept
        assert not restored.run().failed
        assert not changed.run(urns=["logs/app"]).failed
        assert changed.objects() == changed.files()
    albums.close()
