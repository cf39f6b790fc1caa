"""A publication at given names whose staging was removed half-way: one command decides for all of its names."""

import shutil
from pathlib import Path
from typing import Final

import pytest

from gobblin_assets.commit.repair import Keep
from gobblin_assets.errors import ConflictError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.fs.posix_named import PosixNamedFiles
from gobblin_assets.jobs.copy.running import KnownFiles, find_published_by
from gobblin_assets.model.state import DatasetOutcome
from gobblin_assets.model.urn import DatasetUrn, JobName
from tests.crash.test_copies import check_complete, kill
from tests.crash.test_kills import open_sequence
from tests.support import copy_lake
from tests.support.command_lake import ask, invoke
from tests.support.copy_lake import CopyLake, CopyWorld, content_of, files_of, look_at
from tests.support.shares import rotating

pytestmark = pytest.mark.turns(of=4)

lake, world, changed = copy_lake.lake, copy_lake.world, copy_lake.changed

HALF_WAY: Final = f"{Failpoint.STEP_AFTER}@5"
ALL: Final = Failpoint.VERIFIED_BEFORE_FINISH


def remove_staging(lake: CopyLake) -> None:
    for staging in (lake.tree / ".gobblin").rglob(".staging"):
        shutil.rmtree(staging)


def publish_again(world: CopyWorld) -> None:
    """What the log did not know is published, once, and the log knows all of it then."""
    report = world.run()
    assert not report.failed, report.failed
    world.check_trees()
    known = find_published_by(KnownFiles(world.stores.published, JobName(world.lake.job_name)))
    for urn in world.lake.urns:
        is_ours = known(DatasetUrn(urn))
        for path in (world.lake.tree / urn).rglob("*"):
            entry = PosixNamedFiles().find_entry(str(path))
            assert entry is not None
            assert path.is_dir() or is_ours(str(path), entry.identity), path
    world.lines.clear()
    assert [each.outcome for each in world.run().datasets] == [DatasetOutcome.COMMITTED] * 2
    assert sum("nothing differs" in line for line in world.lines) == 2, world.lines


@pytest.mark.rotating
@pytest.mark.parametrize("at", [HALF_WAY, rotating(ALL)])
@pytest.mark.parametrize("keep", [Keep.THERE, rotating(Keep.OLD), rotating(Keep.NEW)])
@pytest.mark.parametrize("killed", [None, rotating(Failpoint.ABANDON_CAPTURED), rotating(Failpoint.ABANDON_RETURNED)])
def test_after_the_staging_was_removed_one_command_ends_it(
    lake: CopyLake, changed: CopyWorld, at: str, keep: Keep, killed: Failpoint | None
) -> None:
    kill(lake, at)
    changed.expire_leases()
    sequence_id = open_sequence(changed)
    remove_staging(lake)
    assert changed.run().failed
    with pytest.raises(ConflictError) as refused:
        changed.operations().abandon(sequence_id, reason="a test")
    assert f"gobblin-assets commit repair {sequence_id}" in str(refused.value)
    changed.expire_leases()
    present = look_at(lake.tree)
    shown = {each.path: each for each in changed.operations().list_unsettled(sequence_id)}
    assert shown, "nothing is shown"
    assert all(each.new == "lost" or "at its name" in each.new for each in shown.values()), shown
    if killed is not None:
        kill(lake, killed, action="repair", argument=f"{keep.value} {sequence_id}")
        changed.expire_leases()

    changed.operations().repair(sequence_id, keep, reason="a test")

    assert changed.stores.commits.get(sequence_id).state == "ABORTED"
    if keep is not Keep.OLD:
        assert look_at(lake.tree) == present, "nothing at the names may change"
    publish_again(changed)


@pytest.mark.rotating
@pytest.mark.parametrize("keep", [Keep.OLD, rotating(Keep.NEW), rotating(Keep.THERE)])
def test_what_was_found_at_a_name_is_never_removed(lake: CopyLake, changed: CopyWorld, keep: Keep) -> None:
    """A stranger at a replaced name, whose old version is kept in its slot."""
    kill(lake, ALL)
    changed.expire_leases()
    sequence_id, name = open_sequence(changed), lake.tree / "albums/changed.bin"
    old = (lake.tree / ".gobblin").rglob("slots/*")
    before = {path.read_bytes() for path in old}
    name.unlink()
    name.write_text("mine")
    assert changed.run().failed
    changed.expire_leases()

    changed.operations().repair(sequence_id, keep, reason="a test")

    everything = {path.read_bytes() for path in lake.tree.rglob("*") if path.is_file()}
    assert b"mine" in everything
    assert before <= everything
    # The new version was at the name alone, and somebody removed it.
    assert name.read_bytes() == (content_of("albums/changed.bin", 1) if keep is Keep.OLD else b"mine")
    assert not changed.run().failed
    changed.check_trees()
    assert b"mine" in {path.read_bytes() for path in lake.tree.rglob("*") if path.is_file()}


def test_what_can_be_taken_back_is_taken_back(lake: CopyLake, changed: CopyWorld) -> None:
    before = files_of(lake.tree)
    kill(lake, HALF_WAY)
    changed.expire_leases()
    sequence_id = open_sequence(changed)
    assert not changed.operations().list_unsettled(sequence_id)

    changed.operations().repair(sequence_id, Keep.THERE, reason="a test")

    assert files_of(lake.tree) == before
    assert not changed.run().failed
    check_complete(changed)


def test_a_name_that_nothing_stands_at_is_copied_again(lake: CopyLake, changed: CopyWorld) -> None:
    kill(lake, ALL)
    changed.expire_leases()
    sequence_id = open_sequence(changed)
    remove_staging(lake)
    Path(lake.tree / "albums/changed.bin").unlink()
    assert changed.run().failed
    changed.expire_leases()

    changed.operations().repair(sequence_id, Keep.THERE, reason="a test")

    publish_again(changed)


def test_the_command_shows_the_versions_and_ends_it(
    lake: CopyLake, changed: CopyWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", lake.database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    kill(lake, HALF_WAY)
    changed.expire_leases()
    sequence_id = str(open_sequence(changed))
    remove_staging(lake)

    shown = ask("commit", "repair", sequence_id)

    assert shown["state"] == "PREPARED"
    versions = {Path(each["path"]).name: (each["old"], each["new"], each["there"]) for each in shown["names"]}
    old, new, there = versions["changed.bin"]
    assert (old, there) == ("lost", "the new version")
    assert new.endswith("at its name"), new
    assert "there now" in invoke("commit", "repair", sequence_id).output
    assert changed.stores.commits.get(open_sequence(changed)).state == "PREPARED"

    done = ask("commit", "repair", sequence_id, "--keep", "there")

    assert done["state"] == "ABORTED"
    assert {Path(each).name for each in done["copied_again"]} >= set(versions)
    publish_again(changed)
