"""Files that others put at the names of a copy: they stay, the dataset is BLOCKED, and what the error advises works."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from gobblin_assets.commit.trash import Trash
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.urn import DatasetUrn, JobName
from tests.crash.test_copies import MOVED_ASIDE, abandon_beside, check_complete, kill
from tests.crash.test_kills import open_sequence
from tests.support.copy_lake import CopyLake, CopyWorld, files_of
from tests.support.shares import rotating

ADVICE: Final = {
    "new.bin": "Move that file elsewhere and resume. Or abandon: the next run replaces that file",
    "trip": "Move that away and resume. Or abandon: the next run compares both sides again",
    "changed.bin": "Abandon: the next run replaces that file",
    "_SUCCESS": "Abandon: the next run replaces that file",
    "removed.bin": "Abandon: the next run compares both sides again",
}


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> CopyLake:
    made = CopyLake(database_url, str(tmp_path))
    made.make_source()
    return made


@pytest.fixture
def changed(lake: CopyLake) -> Iterator[CopyWorld]:
    """The first version was copied, and then the source changed."""
    opened = lake.open_world()
    assert not opened.run().failed
    lake.change_source()
    yield opened
    opened.close()


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
