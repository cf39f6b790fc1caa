"""Strangers at the names of copies, and attempts that are gone: what blocks, what a person is told, what stays."""

import re
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from gobblin_assets.destinations.fixed_names.named_steps import PUT_BACK
from gobblin_assets.destinations.fixed_names.trash import Trash
from gobblin_assets.errors import ConflictError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName
from tests.crash.test_copies import MOVED_ASIDE, check_complete, kill
from tests.crash.test_kills import open_sequence
from tests.support import copy_lake
from tests.support.copy_lake import CopyLake, CopyWorld, content_of, files_of
from tests.support.copy_places import BUCKET, HDFS, make_copy_lake
from tests.support.shares import rare, rotating

pytestmark = pytest.mark.turns(of=4)

ADVICE: Final = {
    "new.bin": "Move that file elsewhere and resume. Or abandon: the next run replaces that file",
    "trip": "Move that away and resume. Or abandon: the next run compares both sides again",
    "changed.bin": "Abandon: the next run replaces that file",
    "_SUCCESS": "Abandon: the next run replaces that file",
    "removed.bin": "Abandon: the next run compares both sides again",
}

lake, world, changed = copy_lake.lake, copy_lake.world, copy_lake.changed


@pytest.mark.rotating
@pytest.mark.parametrize("way", ["resumed", rotating("abandoned")])
@pytest.mark.parametrize("name", ["new.bin", "trip", "changed.bin", "_SUCCESS", "removed.bin"])
def test_a_stranger_at_a_name_blocks_and_stays(lake: CopyLake, changed: CopyWorld, name: str, way: str) -> None:
    before = files_of(lake.tree / "albums")
    kill(lake, Failpoint.SEAL_COMMITTED)
    changed.expire_leases()
    sequence_id = open_sequence(changed)
    place, aside = lake.tree / "albums" / name, Path(lake.directory, "aside")
    is_old = place.exists()
    if is_old:
        place.rename(aside)
    stranger = place / "theirs" if name == "trip" else place
    stranger.parent.mkdir(exist_ok=True)
    stranger.write_text("mine")
    inode = stranger.stat().st_ino

    (failed,) = changed.run().failed

    assert (str(failed.urn), changed.stores.commits.get(sequence_id).state) == ("albums", "BLOCKED")
    said = str(failed.error)
    assert ADVICE[name] in said
    assert said.count(f"`gobblin-assets commit resume {sequence_id}`") == 1
    assert "after 1 failed try," in said
    assert (stranger.read_text(), stranger.stat().st_ino) == ("mine", inode)
    if way == "abandoned":
        abandon_beside(changed, sequence_id)
        assert (stranger.read_text(), stranger.stat().st_ino) == ("mine", inode)
    place.rename(Path(lake.directory, "moved away"))
    if is_old:
        aside.rename(place)
    if way == "resumed":
        changed.operations().resume(sequence_id)
    else:
        assert files_of(lake.tree / "albums") == before
    assert not changed.run().failed
    check_complete(changed)
    assert changed.slots() == MOVED_ASIDE


def abandon_beside(world: CopyWorld, sequence_id: SequenceId) -> None:
    world.operations().abandon(sequence_id, reason="a stranger stays")
    assert world.stores.commits.get(sequence_id).state == "ABORTED"


@pytest.mark.parametrize(
    ("elsewhere", "name"),
    [
        *(rotating(BUCKET, name) for name in ("new.bin", "changed.bin", "removed.bin")),
        *(rare(HDFS, name) for name in ("new.bin", "changed.bin", "removed.bin")),
    ],
)
def test_a_stranger_that_stands_elsewhere_blocks_and_stays_too(
    request: pytest.FixtureRequest,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    elsewhere: str,
    name: str,
) -> None:
    there = make_copy_lake(request, elsewhere, database_url, tmp_path, monkeypatch)
    with closing(there.open_world()) as world:
        assert not world.run().failed
        there.change_source()
        kill(there, Failpoint.SEAL_COMMITTED)
        world.expire_leases()
        sequence_id, originals = open_sequence(world), there.write_stranger(f"albums/{name}")

        assert [str(report.urn) for report in world.run().failed] == ["albums"]

        assert world.stores.commits.get(sequence_id).state == "BLOCKED"
        abandon_beside(world, sequence_id)
        assert there.identify(f"albums/{name}") == originals
        assert not world.run().failed


@pytest.mark.rotating
@pytest.mark.parametrize("name", ["new.bin", "changed.bin", "_SUCCESS", "removed.bin"])
def test_after_an_abandonment_the_next_run_does_what_the_advice_says(
    lake: CopyLake, changed: CopyWorld, name: str
) -> None:
    kill(lake, Failpoint.SEAL_COMMITTED)
    changed.expire_leases()
    sequence_id = open_sequence(changed)
    place = lake.tree / "albums" / name
    place.unlink(missing_ok=True)
    place.write_text("mine")
    assert changed.run().failed
    abandon_beside(changed, sequence_id)

    assert not changed.run().failed

    trash = Trash(changed.stores.commits, changed.stores.published, open_file_system, JobName(lake.job_name))
    kept = {each.path: each.identity.size_bytes for each in trash.list_files(DatasetUrn("albums"))}
    if "the next run replaces" in ADVICE[name]:
        assert place.read_bytes() == (lake.source / "albums" / name).read_bytes()
        assert kept[str(place)] == len("mine")


def test_an_attempt_that_is_gone_can_be_given_up(lake: CopyLake, changed: CopyWorld) -> None:
    before = files_of(lake.tree / "albums")
    kill(lake, Failpoint.SEAL_COMMITTED)
    changed.expire_leases()
    (attempt,) = changed.stores.commits.list_attempts(open_sequence(changed))
    Path(attempt.staging_path).rename(Path(lake.directory, "gone"))
    (failed,) = changed.run().failed
    assert "Move it back, or abandon the publication" in str(failed.error)

    changed.operations().abandon(open_sequence(changed), reason="a test")

    assert files_of(lake.tree / "albums") == before
    assert not changed.run().failed
    changed.check_trees()


@pytest.mark.parametrize("at", [Failpoint.SEAL_COMMITTED, f"{Failpoint.STEP_AFTER}@5"])
def test_a_name_whose_file_somebody_removed_says_what_a_person_can_do(
    lake: CopyLake, changed: CopyWorld, at: str
) -> None:
    kill(lake, at)
    changed.expire_leases()
    sequence_id, name = open_sequence(changed), lake.tree / "albums/removed.bin"
    name.unlink()
    (failed,) = changed.run().failed
    with pytest.raises(ConflictError, match=r"removed\.bin is missing") as refused:
        changed.operations().abandon(sequence_id, reason="a test")

    assert PUT_BACK in str(failed.error)
    assert PUT_BACK in str(refused.value)
    name.write_text("any file")
    changed.expire_leases()
    abandon_beside(changed, sequence_id)
    assert name.read_text() == "any file"
    assert not changed.run().failed


def test_who_takes_a_replacement_away_is_told_where_the_old_version_is(lake: CopyLake, changed: CopyWorld) -> None:
    kill(lake, f"{Failpoint.STEP_AFTER}@5")
    changed.expire_leases()
    sequence_id, name = open_sequence(changed), lake.tree / "albums/changed.bin"
    assert name.read_bytes() == content_of("albums/changed.bin", 2)
    name.unlink()
    assert changed.run().failed
    with pytest.raises(ConflictError, match=r"changed\.bin is missing") as refused:
        changed.operations().abandon(sequence_id, reason="a test")

    (kept,) = re.findall(r"The version before is kept in (\S+): move it to the name by hand\.", str(refused.value))
    Path(kept).rename(name)
    changed.expire_leases()
    abandon_beside(changed, sequence_id)

    assert name.read_bytes() == content_of("albums/changed.bin", 1)
    assert not changed.run().failed
    check_complete(changed)


@pytest.mark.parametrize("way", ["removed", "edited"])
def test_a_published_directory_that_somebody_changed_is_moved_away_whole(
    lake: CopyLake, changed: CopyWorld, way: str
) -> None:
    kill(lake, Failpoint.VERIFIED_BEFORE_FINISH)
    changed.expire_leases()
    sequence_id, directory = open_sequence(changed), lake.tree / "albums/trip"
    file = directory / "first.bin"
    file.rename(Path(lake.directory, "theirs"))
    if way == "edited":
        file.write_text("mine")
    advice = f"Move the whole directory {directory} elsewhere, and abandon the publication"
    (failed,) = changed.run().failed
    assert advice in str(failed.error)
    with pytest.raises(ConflictError, match=re.escape(advice)):
        changed.operations().abandon(sequence_id, reason="a test")

    directory.rename(Path(lake.directory, "moved away"))
    changed.expire_leases()
    abandon_beside(changed, sequence_id)

    assert not changed.run().failed
    check_complete(changed)


def test_who_stands_where_an_old_version_was_is_told_with_the_slot_of_that_version(
    lake: CopyLake, changed: CopyWorld
) -> None:
    kill(lake, f"{Failpoint.STEP_AFTER}@8")
    changed.expire_leases()
    sequence_id = open_sequence(changed)
    published = lake.tree / "albums/changed.bin"
    published.unlink()
    published.write_text("mine")

    (failed,) = changed.run().failed

    error = str(failed.error)
    assert "changed.bin is not the file that was planned there" in error
    slot = Path(re.findall(r"The version before is kept in (\S+/slots/\d+)\.", error)[0])
    assert slot.read_bytes() == content_of("albums/changed.bin", 1)
    with pytest.raises(ConflictError, match=f"is kept in .*/slots/{slot.name}"):
        changed.operations().abandon(sequence_id, reason="a test")
    published.unlink()
    abandon_beside(changed, sequence_id)
    assert published.read_bytes() == content_of("albums/changed.bin", 1)
