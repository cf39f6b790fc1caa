"""Jobs of the kind ``distcp`` as a user runs them: what their options do, and that nothing else is touched."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets import failpoints
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.state import DatasetOutcome
from gobblin_assets.run.run_values import RunReport
from tests.support import copy_lake
from tests.support.command_lake import invoke
from tests.support.copy_lake import (
    REMOVED,
    CopyLake,
    CopyWorld,
    Open,
    content_of,
    files_of,
    inodes_of,
    look_at,
)

pytestmark = pytest.mark.turns(of=8)

lake = copy_lake.lake
job = copy_lake.job


def run(world: CopyWorld, mode: Mode = Mode.APPEND) -> RunReport:
    report = world.run(mode=mode)
    assert not report.failed, report.failed
    return report


def file_counts(report: RunReport) -> dict[str, int]:
    """How many files each dataset published; a dataset without a difference publishes none."""
    return {each.urn: each.publication.file_count for each in report.datasets if each.publication is not None}


@pytest.mark.core
def test_a_second_copy_finds_nothing_to_do(lake: CopyLake, job: Open) -> None:
    assert file_counts(run(job())) == {"albums": 4, "logs/app": 1}
    originals = inodes_of(lake.tree)

    report = run(job())

    assert sum(file_counts(report).values()) == 0
    assert inodes_of(lake.tree) == originals
    assert ["nothing differs: " in note for each in report.datasets for note in each.notes] == [True, True]


@pytest.mark.core
def test_a_whole_tree_is_one_dataset(lake: CopyLake, job: Open) -> None:
    whole: dict[str, Any] = {"datasets": []}
    run(job(whole))
    assert look_at(lake.tree) == look_at(lake.source)
    lake.change_source()

    run(job(whole, deletes="all"))

    assert look_at(lake.tree) == look_at(lake.source)
    assert sum(file_counts(run(job(whole, deletes="all"))).values()) == 0, "the work directory counts as a file"


def test_files_that_several_writers_fill_are_published_like_others(lake: CopyLake, job: Open) -> None:
    run(job({"verify": "reread"}, split={"bytes_min": 7}))
    assert look_at(lake.tree) == look_at(lake.source)
    lake.change_source()

    run(job({"verify": "reread"}, split={"bytes_min": 7}, deletes="ours"))

    assert look_at(lake.tree) == look_at(lake.source)


def test_a_copy_of_a_copy_leaves_out_the_work_directory(lake: CopyLake, job: Open, tmp_path: Path) -> None:
    whole: dict[str, Any] = {"datasets": []}
    run(job(whole))

    second = {**whole, "job": "second", "source": lake.root, "destination": str(tmp_path / "second")}
    run(job(second))
    run(job(second))

    assert look_at(tmp_path / "second") == look_at(lake.source)


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"include": ["*.log", "/kept.bin"]}, {"albums/kept.bin", "logs/app/today.log"}),
        ({"exclude": ["*.bin"]}, {"albums/_SUCCESS", "logs/app/today.log"}),
        ({"filters": ["+ kept.bin", "- *.bin"]}, {"albums/kept.bin", "albums/_SUCCESS", "logs/app/today.log"}),
    ],
)
def test_filters_choose_files_on_both_sides(
    lake: CopyLake, job: Open, chosen: dict[str, Any], expected: set[str]
) -> None:
    outside = lake.tree / "albums" / "outside.tmp.bin"
    outside.parent.mkdir(parents=True)
    outside.write_text("a stranger's, which the filters leave out")

    run(job(**chosen, deletes="all"))

    assert set(files_of(lake.tree)) - {"albums/outside.tmp.bin"} == expected
    assert outside.exists() or "include" not in chosen


def test_a_checksum_tells_what_length_and_time_hide(lake: CopyLake, job: Open) -> None:
    run(job())
    quiet = lake.source / REMOVED
    entry = quiet.stat()
    quiet.write_bytes(bytes(reversed(quiet.read_bytes())))
    os.utime(quiet, ns=(entry.st_atime_ns, entry.st_mtime_ns))
    touched = lake.source / "albums/kept.bin"
    os.utime(touched, (1, 1))
    originals = inodes_of(lake.tree)

    report = run(job(same="checksum"))

    assert file_counts(report)["albums"] == 1
    now = inodes_of(lake.tree)
    assert {name for name in now if now[name] != originals[name]} == {REMOVED}
    assert (lake.tree / REMOVED).read_bytes() == quiet.read_bytes()


@pytest.mark.parametrize(("same", "mode"), [("never", Mode.APPEND), ("mtime", Mode.REFRESH)])
def test_every_file_is_copied_again_where_that_is_asked(lake: CopyLake, job: Open, same: str, mode: Mode) -> None:
    run(job())
    originals = inodes_of(lake.tree)

    report = run(job(same=same), mode)

    assert file_counts(report) == {"albums": 4, "logs/app": 1}
    now = inodes_of(lake.tree)
    assert not [name for name in files_of(lake.tree) if now[name] == originals[name]]
    assert look_at(lake.tree) == look_at(lake.source)


@pytest.mark.rotating(of=3)
@pytest.mark.core
@pytest.mark.parametrize(
    ("deletes", "gone"), [("off", set()), ("ours", {REMOVED}), ("all", {REMOVED, "albums/theirs"})]
)
def test_deletes_take_what_they_may(lake: CopyLake, job: Open, deletes: str, gone: set[str]) -> None:
    run(job())
    (lake.tree / "albums/theirs").write_text("a stranger's")
    before = set(files_of(lake.tree))
    (lake.source / REMOVED).unlink()

    world = job(deletes=deletes)
    run(world)

    assert before - set(files_of(lake.tree)) == gone
    assert world.slots()[content_of(REMOVED, 1)] == (REMOVED in gone)


@pytest.mark.core
def test_ours_is_the_version_that_was_published_and_no_other(lake: CopyLake, job: Open) -> None:
    run(job())
    theirs = lake.tree / REMOVED
    theirs.unlink()
    theirs.write_bytes(content_of(REMOVED, 1))
    (lake.source / REMOVED).unlink()

    run(job(deletes="ours"))

    assert theirs.exists(), "somebody else wrote this file at our name"


def test_copies_that_are_read_again_are_published(lake: CopyLake, job: Open) -> None:
    run(job({"verify": "reread"}))
    lake.change_source()

    run(job({"verify": "reread"}, deletes="ours"))

    assert look_at(lake.tree) == look_at(lake.source)


def test_a_finder_finds_datasets_at_each_run(lake: CopyLake, job: Open) -> None:
    found = {"datasets": [], "finder": {"kind": "glob", "pattern": "*"}}
    assert set(file_counts(run(job(found)))) == {"albums", "logs"}
    (lake.source / "later").mkdir()
    (lake.source / "later/file").write_text("new")

    assert {urn for urn, count in file_counts(run(job(found))).items() if count} == {"later"}
    assert look_at(lake.tree) == look_at(lake.source)


def test_dates_are_file_sets_with_a_position_of_their_own(lake: CopyLake, job: Open) -> None:
    for day in ("2026/01/30", "2026/01/31"):
        lake.write(f"clicks/{day}/part", 1)
    daily = {"datasets": [], "finder": {"kind": "stream", "pattern": "clicks/%Y/%m/%d"}}

    world = job(daily)
    report = run(world)

    assert len([each for each in report.datasets if each.publication is not None]) == 2
    assert set(files_of(lake.tree)) == {"2026/01/30/part", "2026/01/31/part"}
    lake.write("clicks/2026/01/31/part", 2)
    assert sum(file_counts(run(world)).values()) == 1
    assert world.slots() == {content_of("clicks/2026/01/31/part", 1): 1}


def test_a_manifest_names_what_is_copied_and_removed(lake: CopyLake, job: Open, tmp_path: Path) -> None:
    run(job({"datasets": []}))
    lake.change_source()
    manifest = tmp_path / "files.jsonl"
    manifest.write_text('{"path": "albums/new.bin"}\n{"path": "albums/removed.bin", "delete": true}\n')

    run(job({"job": "crash", "datasets": [], "finder": {"kind": "manifest", "path": str(manifest)}}))

    names = set(files_of(lake.tree))
    assert "albums/new.bin" in names
    assert REMOVED not in names
    assert "albums/trip/first.bin" not in names


def test_a_manifest_gives_attributes_that_the_copy_gets(lake: CopyLake, job: Open, tmp_path: Path) -> None:
    manifest = tmp_path / "files.jsonl"
    manifest.write_text(
        '{"path": "albums/kept.bin", "attributes": {"mode": "0604", "mtime_ns": 1767225600000000000}}\n'
        '{"path": "albums/changed.bin"}\n'
    )
    world = job({"datasets": [], "finder": {"kind": "manifest", "path": str(manifest)}}, attributes="sync")

    assert sum(file_counts(run(world)).values()) == 2

    given, origin = (lake.tree / "albums/kept.bin").stat(), (lake.source / "albums/kept.bin")
    assert (stat.S_IMODE(given.st_mode), given.st_mtime_ns) == (0o604, 1_767_225_600_000_000_000)
    assert (lake.tree / "albums/kept.bin").read_bytes() == origin.read_bytes()
    assert files_of(lake.tree)["albums/changed.bin"] == files_of(lake.source)["albums/changed.bin"]
    assert sum(file_counts(run(world)).values()) == 0


@pytest.mark.parametrize("change", ["grows", "shrinks", "rewritten", "vanishes"])
def test_a_source_that_changes_meanwhile_fails_its_file_set_alone(lake: CopyLake, job: Open, change: str) -> None:
    moving = lake.source / "albums/changed.bin"

    def disturb(point: Failpoint) -> None:
        if point is not Failpoint.ATTEMPT_REGISTERED or not moving.exists():
            return
        content = moving.read_bytes()
        match change:
            case "grows":
                moving.write_bytes(content + b"more")
            case "shrinks":
                moving.write_bytes(content[:-1])
            case "rewritten":
                moving.write_bytes(bytes(reversed(content)))
            case _:
                moving.unlink()

    world = job()
    with failpoints.install(disturb):
        report = world.run()

    assert [each.urn for each in report.failed] == ["albums"]
    assert "changed.bin" in str(report.failed[0].error)
    assert set(files_of(lake.tree)) == {"logs/app/today.log"}
    run(world)
    world.check_copied()


def test_commands_plan_and_run_a_copy(lake: CopyLake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", lake.database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    job = tmp_path / "job.yaml"
    job.write_text(f"job: mirror\nkind: distcp\nsource: {lake.source}\ndestination: {lake.root}\n", encoding="utf-8")

    planned = invoke("plan", str(job))

    assert planned.exit_code == 0, planned.output
    assert not files_of(lake.tree)
    done = invoke("run", str(job), "--no-dagster")
    assert done.exit_code == 0, done.output
    assert look_at(lake.tree) == look_at(lake.source)
    originals = inodes_of(lake.tree)
    assert invoke("run", str(job), "--no-dagster").exit_code == 0
    assert inodes_of(lake.tree) == originals
    again = invoke("run", str(job), "--no-dagster", "--mode", "refresh")
    assert again.exit_code == 0, again.output
    now = inodes_of(lake.tree)
    assert not [name for name in files_of(lake.tree) if now[name] == originals[name]]


def test_file_sets_of_a_lower_number_go_first_under_the_jobs_budget(lake: CopyLake, job: Open) -> None:
    """albums has four files, logs/app one; they are asked for in the order of their names."""
    sets = [{"urn": "albums", "priority": 1}, {"urn": "logs/app"}]
    world = job({"datasets": sets, "files_per_run_max": 2})

    first = run(world)

    assert file_counts(first) == {"albums": 1, "logs/app": 1}
    outcomes = {each.urn: each.outcome for each in first.datasets}
    assert outcomes == {"albums": DatasetOutcome.PARTIAL, "logs/app": DatasetOutcome.COMMITTED}
    said = "albums: 3 files of 90 bytes left for later runs (files_per_run_max); priority 1"
    assert said in world.lines
    assert file_counts(run(world)) == {"albums": 2, "logs/app": 0}
    assert file_counts(run(world)) == {"albums": 1, "logs/app": 0}
    assert look_at(lake.tree) == look_at(lake.source)


@pytest.mark.parametrize("options", [{}, {"datasets": [], "finder": {"pattern": "a*"}}])
def test_a_file_beside_the_datasets_may_have_any_name(lake: CopyLake, job: Open, options: dict[str, Any]) -> None:
    (lake.source / os.fsdecode(b"caf\xe9.txt")).write_text("not UTF-8")

    assert "albums" in file_counts(run(job(options)))


def test_a_refused_file_set_takes_nothing_of_the_jobs_budget(lake: CopyLake, job: Open) -> None:
    (lake.tree / "albums/removed.bin").mkdir(parents=True)
    (lake.tree / "albums/removed.bin/theirs").write_text("an empty directory would give way")
    world = job({"datasets": [{"urn": "albums"}, {"urn": "logs/app"}], "files_per_run_max": 2})

    report = world.run()

    (failed,) = report.failed
    assert "1 names can't be published: removed.bin" in str(failed.error)
    assert file_counts(report)["logs/app"] == 1


def test_a_copy_is_read_again_from_the_disk_after_it_was_synced(
    lake: CopyLake, job: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that keeps other bytes than it was given."""
    acts: list[tuple[str, int]] = []
    fsync, advise = os.fsync, os.posix_fadvise

    def lose(descriptor: int) -> None:
        fsync(descriptor)
        found = os.fstat(descriptor)
        acts.append(("sync", found.st_ino))
        if found.st_size == len(content_of("albums/kept.bin", 1)) and stat.S_ISREG(found.st_mode):
            with Path(f"/proc/self/fd/{descriptor}").open("r+b") as stream:
                stream.write(b"V")
            os.utime(descriptor, ns=(found.st_atime_ns, found.st_mtime_ns))

    def note(descriptor: int, offset: int, count: int, advice: int) -> None:
        advise(descriptor, offset, count, advice)
        if advice == os.POSIX_FADV_DONTNEED:
            acts.append(("drop", os.fstat(descriptor).st_ino))

    monkeypatch.setattr(os, "fsync", lose)
    monkeypatch.setattr(os, "posix_fadvise", note)
    report = job({"verify": "reread"}).run(urns=["albums"])

    (failed,) = report.failed
    assert "was written, and reads differently" in str(failed.error)
    dropped = [inode for act, inode in acts if act == "drop"]
    assert dropped
    assert all(("sync", inode) in acts[: acts.index(("drop", inode))] for inode in dropped)
    assert not look_at(lake.tree)
