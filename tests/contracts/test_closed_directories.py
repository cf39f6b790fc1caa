"""The modes of directories that let their owner not write: on POSIX, on HDFS, and on the simulated disk."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.named_files import ClosedDirectories, NamedFiles, require_closed_directories, require_named_files
from gobblin_assets.fs.posix_named import PosixNamedFiles
from gobblin_assets.fs.tree import TreeEntry
from tests.contracts.conftest import HDFS
from tests.simulation.disk import SimDisk
from tests.support.confined import give_up_writing_everywhere
from tests.support.hdfs_place import HdfsPlace
from tests.support.places import Place, PosixPlace, SimPlace

CLOSED, OPENED, OTHER = 0o555, 0o755, 0o500


@pytest.fixture(params=["posix", "simulated", pytest.param(HDFS, marks=pytest.mark.rotating)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == HDFS:
        return HdfsPlace(request.getfixturevalue("hdfs_server"))
    return PosixPlace(PosixNamedFiles(), tmp_path) if request.param == "posix" else SimPlace(SimDisk())


def look(place: Place, name: str) -> TreeEntry:
    entry = require_named_files(place.fs).find_entry(place.at(name))
    assert entry is not None
    return entry


def make(place: Place) -> tuple[ClosedDirectories, str, int]:
    """A closed directory, and one that is an attempt's."""
    path = place.mkdir(place.at("closed"))
    place.mkdir(place.at("attempt"))
    place.set_mode(path, CLOSED)
    return require_closed_directories(place.fs), path, look(place, "closed").identity.inode or 0


def test_a_directory_is_opened_and_closed_while_the_attempt_is_there(place: Place) -> None:
    files, path, inode = make(place)
    for old, new in ((CLOSED, OPENED), (OPENED, CLOSED)):
        assert files.change_mode(path, inode, old, new, while_there=place.at("attempt"))
        assert look(place, "closed").mode == new
    assert files.change_mode(path, inode, CLOSED, OPENED)
    assert look(place, "closed").mode == OPENED


def _take_the_attempt(place: Place, path: str) -> None:
    assert path
    place.move(place.at("attempt"), place.at("captured"))


def _change_the_mode(place: Place, path: str) -> None:
    place.set_mode(path, OTHER)


def _take_it_away(place: Place, path: str) -> None:
    place.move(path, place.at("elsewhere"))


def _put_another_there(place: Place, path: str) -> None:
    _take_it_away(place, path)
    place.set_mode(place.mkdir(path), CLOSED)


def _put_a_file_there(place: Place, path: str) -> None:
    _take_it_away(place, path)
    place.write(path)


@pytest.mark.parametrize(
    "meanwhile", [_take_the_attempt, _change_the_mode, _take_it_away, _put_another_there, _put_a_file_there]
)
def test_what_is_not_as_it_was_found_keeps_its_mode(place: Place, meanwhile: Callable[[Place, str], None]) -> None:
    files, path, inode = make(place)
    meanwhile(place, path)
    before = {name: look(place, name).mode for name in place.list_all()}
    assert not files.change_mode(path, inode, CLOSED, OPENED, while_there=place.at("attempt"))
    assert {name: look(place, name).mode for name in place.list_all()} == before


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    place = PosixPlace(PosixNamedFiles(), tmp_path)
    files, path, inode = make(place)
    place.move(path, place.at("elsewhere"))
    Path(path).symlink_to(place.at("elsewhere"))
    assert not files.change_mode(path, inode, CLOSED, OPENED, while_there=place.at("attempt"))
    assert look(place, "elsewhere").mode == CLOSED


def test_the_way_through_the_attempt_may_have_links(tmp_path: Path) -> None:
    (tmp_path / "real/deep").mkdir(parents=True)
    (tmp_path / "short").symlink_to(tmp_path / "real/deep")
    files, path, inode = make(PosixPlace(PosixNamedFiles(), tmp_path / "short"))
    assert files.change_mode(path, inode, CLOSED, OPENED, while_there=f"{tmp_path}/short/attempt")
    assert Path(path).stat().st_mode & 0o7777 == OPENED


def _remove_as_an_ordinary_user(root: str) -> None:
    give_up_writing_everywhere()
    files: NamedFiles = PosixNamedFiles()
    assert isinstance(files, ClosedDirectories)
    assert not files.can_change_closed(root)
    files.remove_tree(f"{root}/tree")
    os._exit(0)


def test_an_ordinary_user_removes_a_tree_with_closed_directories(tmp_path: Path) -> None:
    for name in ("a/b/file", "a/file", "file"):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept").chmod(CLOSED)
    (tmp_path / "tree/a/link").symlink_to(tmp_path / "kept")
    for name in ("a/b", "a", ""):
        (tmp_path / "tree" / name).chmod(CLOSED)
    child = os.fork()
    if not child:
        try:
            _remove_as_an_ordinary_user(str(tmp_path))
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").stat().st_mode & 0o777 == CLOSED


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's directory needs root")
def test_a_directory_that_hands_on_a_group_of_others_is_left_alone(tmp_path: Path) -> None:
    """The kernel would take this bit away for good."""
    directory = tmp_path / "shared"
    directory.mkdir()
    os.chown(directory, 7, 0)
    directory.chmod(0o2555)
    for parent in (tmp_path, *tmp_path.parents[:-1]):
        parent.chmod(parent.stat().st_mode | 0o011)
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setresgid(7, 7, 7)
            os.setresuid(7, 7, 7)
            PosixNamedFiles().change_mode(str(directory), directory.stat().st_ino, 0o2555, 0o2755)
        except RejectedError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert directory.stat().st_mode & 0o7777 == 0o2555
