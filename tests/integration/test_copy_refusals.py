"""What a copy refuses: each error names the field, and no name at the destination has changed."""

import json
import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.destinations.claims import WORK_NAME
from gobblin_assets.errors import ErrorFamily, RejectedError
from gobblin_assets.fs.posix_named import PosixNamedFiles
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.fs.tree import TreeEntry
from gobblin_assets.jobs.copy import running
from tests.support import copy_lake
from tests.support.copy_lake import REMOVED, CopyLake, CopyWorld, Open, files_of, look_at
from tests.support.mounts import bound, remount_read_only, tmpfs
from tests.support.ordinary_user import OrdinaryUser, RefusedError, ordinary_user, run
from tests.support.postgres import make_reachable_directory

pytestmark = pytest.mark.turns(of=8)

lake = copy_lake.lake
job = copy_lake.job

WHOLE: dict[str, Any] = {"datasets": []}


def refuse(world: CopyWorld, field: str) -> str:
    """What the run or its reports say. Each error is a RejectedError of this field, and nothing has changed."""
    before = look_at(world.lake.tree) if world.lake.tree.is_dir() else {}
    try:
        report = world.run()
    except RejectedError as error:
        said = {str(error)}
    else:
        assert {each.error_family for each in report.failed} == {ErrorFamily.REJECTED}, report
        said = {str(each.error) for each in report.failed}
    assert {text.partition(":")[0] for text in said} == {field}, said
    assert (look_at(world.lake.tree) if world.lake.tree.is_dir() else {}) == before
    return " ".join(said)


def test_a_root_that_is_missing_or_a_file(lake: CopyLake, job: Open) -> None:
    run_before = job()
    assert not run_before.run().failed
    shutil.rmtree(lake.source)
    assert "is missing" in refuse(job(deletes="all"), "source")

    lake.source.write_text("a file")
    refuse(job(deletes="all"), "source")


@pytest.mark.parametrize("wrong", ["missing", "file", "pattern"])
def test_a_job_whose_source_is_wrong_leaves_its_destination_to_others(lake: CopyLake, job: Open, wrong: str) -> None:
    (lake.source / "file").write_text("a file")
    world = job({"job": "wrong", **WHOLE, "source": f"{lake.source}/{wrong}"})

    refuse(world, "source")

    assert not lake.tree.exists()
    assert not job().run().failed


@pytest.mark.parametrize(
    "finder", [{"kind": "glob", "pattern": "away/*"}, {"kind": "stream", "pattern": "away/*/%Y/%m/%d"}]
)
def test_a_finder_whose_first_directory_is_missing(
    lake: CopyLake, job: Open, finder: dict[str, Any], tmp_path: Path
) -> None:
    world = job({**WHOLE, "finder": finder})
    assert f"{lake.source}/away is missing" in refuse(world, "finder.pattern")

    (lake.source / "away").mkdir()

    assert not world.run().datasets
    assert f"the finder found no dataset below {tmp_path}/source" in world.lines


def test_a_dataset_that_is_missing_is_refused_alone(lake: CopyLake, job: Open) -> None:
    shutil.rmtree(lake.source / "albums")

    report = job().run()

    assert [(each.urn, each.error_family) for each in report.failed] == [("albums", ErrorFamily.REJECTED)]
    assert set(files_of(lake.tree)) == {"logs/app/today.log"}


@pytest.mark.core
def test_a_destination_inside_the_source_by_a_link(lake: CopyLake, job: Open) -> None:
    Path(lake.directory, "alias").symlink_to(lake.source)

    refuse(job({**WHOLE, "destination": f"{lake.directory}/alias/out"}), "destination")

    assert not (lake.source / "out").exists()


def test_a_destination_that_is_a_file(lake: CopyLake, job: Open) -> None:
    lake.tree.write_text("a file")

    with pytest.raises(RejectedError, match="destination"):
        job().run()

    assert lake.tree.read_text() == "a file"


@pytest.mark.core
@pytest.mark.parametrize("make", ["link", "pipe", "socket"])
def test_links_and_special_files_are_refused_by_name(lake: CopyLake, job: Open, make: str) -> None:
    make_odd(lake.source / "albums/odd", make)
    world = job({"datasets": [{"urn": "albums"}]})

    assert "albums" not in files_of(lake.tree)
    assert "odd" in refuse(world, "links")


@pytest.mark.parametrize("make", ["link", "pipe"])
def test_they_are_left_out_and_counted_where_that_is_asked(lake: CopyLake, job: Open, make: str) -> None:
    make_odd(lake.source / "albums/odd", make)

    report = job(links="skip").run()

    assert not report.failed
    assert set(files_of(lake.tree)) == {name for name in files_of(lake.source) if name != "albums/odd"}
    assert [note for each in report.datasets for note in each.notes if "1 link or special file" in note]


def test_links_are_followed_inside_the_root_only(lake: CopyLake, job: Open, tmp_path: Path) -> None:
    (lake.source / "albums/odd").symlink_to("kept.bin")
    (lake.source / "albums/directory").symlink_to(lake.source / "albums/below", target_is_directory=True)
    lake.write("albums/below/file", 1)
    world = job(links="follow")
    assert not world.run().failed
    assert files_of(lake.tree)["albums/odd"] == files_of(lake.source)["albums/kept.bin"]
    assert files_of(lake.tree)["albums/directory/file"] == files_of(lake.source)["albums/below/file"]

    outside = tmp_path / "outside"
    outside.write_text("secret")
    (lake.source / "albums/away").symlink_to(outside)

    report = world.run()

    assert [(each.urn, each.error_family) for each in report.failed] == [("albums", ErrorFamily.REJECTED)]
    assert str(report.failed[0].error).startswith("source:")
    assert "albums/away" not in files_of(lake.tree)


@pytest.mark.core
def test_too_many_deletions_and_an_empty_source(lake: CopyLake, job: Open) -> None:
    assert not job(WHOLE).run().failed
    (lake.source / REMOVED).unlink()
    refuse(job(WHOLE, deletes="all", delete_max=0), "delete_max")
    refuse(job(WHOLE, deletes="ours", delete_max=0), "delete_max")
    shutil.rmtree(lake.source)
    lake.source.mkdir()

    refuse(job(WHOLE, deletes="all"), "deletes")
    refuse(job(WHOLE, deletes="ours"), "deletes")


@pytest.mark.parametrize("occupant", ["directory", "link", "pipe"])
def test_a_file_s_name_is_taken_by_something_else(lake: CopyLake, job: Open, occupant: str) -> None:
    place = lake.tree / "albums/kept.bin"
    place.parent.mkdir(parents=True)
    make_odd(place, occupant)

    assert "kept.bin" in refuse(job({"datasets": [{"urn": "albums"}]}), "destination")

    assert not place.is_file() or place.is_symlink()


@pytest.mark.parametrize("occupant", ["file", "link"])
@pytest.mark.parametrize("name", ["albums", "albums/trip"])
def test_a_directory_s_name_is_taken_by_something_else(
    lake: CopyLake, job: Open, name: str, occupant: str, tmp_path: Path
) -> None:
    lake.change_source()
    place = lake.tree / name
    place.parent.mkdir(parents=True)
    if occupant == "file":
        place.write_text("theirs")
    else:
        (tmp_path / "elsewhere").mkdir()
        place.symlink_to(tmp_path / "elsewhere")

    refuse(job({"datasets": [{"urn": "albums"}]}), "destination")

    assert not list((tmp_path / "elsewhere").glob("*"))


class CaselessFiles(PosixNamedFiles):
    """A file system that finds names in any case: no kernel of the tests has one."""

    def find_entry(self, path: str) -> TreeEntry | None:
        parent, _, name = path.rpartition("/")
        names = {each.name.casefold(): each.name for each in Path(parent).glob("*")}
        return super().find_entry(f"{parent}/{names.get(name.casefold(), name)}")


@pytest.mark.parametrize("finds_any_case", [True, False])
def test_names_that_a_destination_takes_for_one(
    lake: CopyLake, job: Open, monkeypatch: pytest.MonkeyPatch, finds_any_case: bool
) -> None:
    lake.write("albums/KEPT.bin", 1)
    if finds_any_case:
        monkeypatch.setattr(running, "open_file_system", lambda uri: (CaselessFiles(), open_file_system(uri)[1]))

    report = job().run()

    assert [(each.urn, each.error_family) for each in report.failed] == [
        ("albums", ErrorFamily.REJECTED)
    ] * finds_any_case
    assert all("differ by case only" in str(each.error) for each in report.failed)
    assert ("albums/kept.bin" in files_of(lake.tree)) is not finds_any_case


@pytest.mark.parametrize("ignores", ["by itself", "by the option", "no"])
def test_datasets_that_a_destination_takes_for_one(
    lake: CopyLake, job: Open, monkeypatch: pytest.MonkeyPatch, ignores: str
) -> None:
    lake.write("ALBUMS/other.bin", 1)
    if ignores == "by itself":
        monkeypatch.setattr(running, "open_file_system", lambda uri: (CaselessFiles(), open_file_system(uri)[1]))
    datasets = {"datasets": [{"urn": "albums"}, {"urn": "ALBUMS"}, {"urn": "logs/app"}]}
    world = job(datasets, **({"ignore_case": True} if ignores == "by the option" else {}))

    report = world.run()

    failed = {each.urn: str(each.error) for each in report.failed}
    assert sorted(failed) == ([] if ignores == "no" else ["ALBUMS", "albums"])
    assert all("'ALBUMS' differ" in text or "'albums' differ" in text for text in failed.values()), failed
    assert ("ALBUMS/other.bin" in files_of(lake.tree)) is (ignores == "no")
    assert "logs/app/today.log" in files_of(lake.tree), "the others go on"


def test_file_sets_of_a_manifest_that_a_destination_takes_for_one(lake: CopyLake, job: Open, tmp_path: Path) -> None:
    lake.write("ALBUMS/kept.bin", 1)
    manifest = tmp_path / "files.jsonl"
    lines = [{"path": "albums/kept.bin", "set": "a"}, {"path": "ALBUMS/kept.bin", "set": "b"}]
    manifest.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    finder = {"datasets": [], "finder": {"kind": "manifest", "path": str(manifest)}}

    said = refuse(job(finder, ignore_case=True), "datasets")

    assert "differ by case only" in said
    assert files_of(lake.tree) == {}


@pytest.mark.parametrize("name", [".GOBBLIN/claim.json", "albums/.Gobblin/claim.json"])
def test_a_name_that_a_destination_takes_for_a_work_directory(
    lake: CopyLake, job: Open, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lake.write(name, 1)
    monkeypatch.setattr(running, "open_file_system", lambda uri: (CaselessFiles(), open_file_system(uri)[1]))

    assert "work directory" in refuse(job(WHOLE), "source")


def test_a_destination_that_is_read_only(lake: CopyLake, job: Open) -> None:
    with tmpfs(lake.tree):
        remount_read_only(lake.tree)

        with pytest.raises(RejectedError, match=r"destination: .*EROFS"):
            job().run()

        assert not list(lake.tree.iterdir())


@pytest.mark.parametrize("mounted", ["albums", "albums/trip", "logs"])
@pytest.mark.parametrize("how", ["tmpfs", "bound"])
def test_a_mount_where_files_are_to_be_published(
    lake: CopyLake, job: Open, tmp_path: Path, mounted: str, how: str
) -> None:
    """It is the same file system where a directory is bound, and the kernel renames nothing there all the same."""
    lake.change_source()
    place = lake.tree / mounted
    place.mkdir(parents=True)
    (tmp_path / "aside").mkdir()
    with tmpfs(place) if how == "tmpfs" else bound(tmp_path / "aside", place):
        world = job()
        (failed,) = world.run().failed

        named = "logs/app" if mounted == "logs" else "albums"
        assert (failed.urn, failed.error_family) == (named, ErrorFamily.REJECTED)
        assert str(failed.error).startswith("destination:")
        assert str(place) in str(failed.error)
        assert not list(place.iterdir())
        assert world.scalar("SELECT count(*) FROM gobblin.commit_sequence WHERE state <> 'DONE'") == 0

    assert not job().run().failed
    assert files_of(lake.tree) == files_of(lake.source)


def test_a_mount_that_nothing_is_published_to(lake: CopyLake, job: Open) -> None:
    with tmpfs(lake.tree / "albums/others"):
        assert not job().run().failed
        assert files_of(lake.tree) == files_of(lake.source)


# --- without root's rights


@pytest.fixture(scope="module")
def user() -> Iterator[OrdinaryUser]:
    with ordinary_user() as made:
        yield made


@pytest.fixture
def theirs(server: EmbeddedServer, database_url: str, user: OrdinaryUser) -> Iterator[CopyLake]:
    """A lake that an ordinary user copies."""
    directory = make_reachable_directory("gobblin-copy-")
    made = CopyLake(user.url_of(server, database_url, directory), str(directory))
    made.make_source()
    made.tree.mkdir()
    for path in (directory, made.tree, *made.source.rglob("*")):
        user.own(path)
    yield made
    shutil.rmtree(directory)


@pytest.mark.parametrize("lost", ["root", "directory", "file"])
def test_a_source_that_can_t_be_read(theirs: CopyLake, user: OrdinaryUser, lost: str) -> None:
    place = theirs.source / {"root": "", "directory": "albums", "file": "albums/kept.bin"}[lost]
    place.chmod(0)
    if lost == "root":
        user.own(place)

    if lost == "root":
        # Nothing was copied to this destination before: it is left to others.
        with pytest.raises(RefusedError, match=r"source: .* can't be read"):
            user.do(run, theirs)
        assert not list(theirs.tree.iterdir())
        return
    report = user.do(run, theirs)

    failed = {urn: each for urn, each in report.datasets.items() if each.error is not None}
    assert set(failed) == {"albums"}
    assert {each.error_family for each in failed.values()} == {ErrorFamily.REJECTED}
    assert all(str(each.error).startswith("source:") for each in failed.values())
    assert set(files_of(theirs.tree)) == {"logs/app/today.log"}


@pytest.mark.parametrize("letter", ["u", "g"])
def test_an_owner_that_one_may_not_set(theirs: CopyLake, user: OrdinaryUser, letter: str) -> None:
    """It is the plan that refuses: nothing was staged."""
    if os.geteuid() != 0:
        pytest.skip("only root makes files of other owners")
    os.chown(theirs.source / "albums/kept.bin", 0, 0)
    (theirs.source / "albums/kept.bin").chmod(0o644)

    report = user.do(run, replace(theirs, options={"defaults": {"preserve": f"pt{letter}"}}))

    albums = report.datasets["albums"]
    assert albums.error_family == ErrorFamily.REJECTED
    assert str(albums.error).startswith("preserve: ")
    assert f"kept.bin ({'user' if letter == 'u' else 'group'} 0)" in str(albums.error)
    assert not list((theirs.tree / WORK_NAME).rglob("*kept*"))
    assert set(files_of(theirs.tree)) == {"logs/app/today.log"}


@pytest.mark.parametrize(("name", "mode"), [("kept.bin", 0o040), ("secret", 0o070)])
def test_a_mode_by_which_the_copy_could_not_be_read(theirs: CopyLake, user: OrdinaryUser, name: str, mode: int) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes files of other owners")
    user.own(theirs.write("albums/secret/f", 1))
    place = user.own(theirs.source / "albums" / name)
    os.chown(place, 0, -1)
    place.chmod(mode)

    said = str(user.do(run, theirs).datasets["albums"].error)
    assert said.startswith("preserve: ")
    assert f"'{name}' (mode {mode:04o})" in said
    assert user.do(run, replace(theirs, options={"defaults": {"preserve": "t"}})).datasets["albums"].error is None


def make_odd(place: Path, kind: str) -> None:
    match kind:
        case "link":
            place.symlink_to("changed.bin")
        case "pipe":
            os.mkfifo(place)
        case "directory":
            # An empty one would give way.
            (place / "theirs").mkdir(parents=True)
            (place / "theirs/file").write_text("theirs")
        case _:
            folder = os.open(place.parent, os.O_RDONLY)
            # A socket's path has 108 bytes at most.
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(f"/proc/self/fd/{folder}/{place.name}")
            os.close(folder)
