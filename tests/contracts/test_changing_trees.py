"""The Tree port over disks, an SFTP server and HDFS: what can't be listed, and what changes while it is listed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.posix_tree import PosixTree
from gobblin_assets.fs.tree import TreeEntry, sort_key
from tests.support import sftp_servers
from tests.support.hdfs_server import PAGE_ENTRIES
from tests.support.tree_places import HdfsTreePlace, LocalTreePlace, TreePlace

DISK, SFTP, HDFS = "disk", "sftp", "hdfs"
EVERYWHERE = pytest.mark.parametrize("place", [DISK, SFTP, HDFS], indirect=True)
SERVERS = pytest.mark.parametrize("place", [SFTP, HDFS], indirect=True)
WITH_IDENTITIES = pytest.mark.parametrize("place", [DISK, HDFS], indirect=True)
"""Where a directory is known by more than its name and its attributes."""

ON_HDFS = pytest.mark.parametrize("place", [HDFS], indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> TreePlace:
    match request.param:
        case "disk":
            (root := tmp_path / "root").mkdir()
            return LocalTreePlace(root, PosixTree("source"), tells_files_at_once=False)
        case "sftp":
            server: sftp_servers.SshServer = request.getfixturevalue("sftp_server")
            return LocalTreePlace(server.make_root(), server.tree(), tells_files_at_once=True)
        case _:
            return HdfsTreePlace(request.getfixturevalue("hdfs_server"))


def keys(entries: Iterator[TreeEntry]) -> list[str]:
    return [sort_key(entry) for entry in entries]


# --- order


@EVERYWHERE
def test_entries_come_in_the_byte_order_of_their_paths(place: TreePlace) -> None:
    names = {
        "a",
        "a!",
        "a.b/x",
        "a b",
        "ab",
        "aé",
        "aé!/",
        "aé.b/x",
        "b/",
        "é/é/é",
        "é!/a",
        "éa",
        "éé",
        "\U0001f40d",
        "\uffff",
    }
    numbered = {f"b/{number:02d}" for number in range(3 * PAGE_ENTRIES)}
    place.make(*names, *numbered, "b/1.a/", "b/1/x", "b/1é")
    found = keys(place.tree.list_tree(place.root))
    assert found == sorted(found, key=str.encode)
    above = {"a.b/", "aé.b/", "b/1/", "é/", "é/é/", "é!/"}
    assert set(found) == names | numbered | above | {"b/1.a/", "b/1/x", "b/1é"}
    assert len(found) == len(set(found))


# --- what can't be listed


@SERVERS
@pytest.mark.parametrize("mode", [0o000, 0o444], ids=["no reading", "no searching"])
@pytest.mark.parametrize("path", ["", "sub"], ids=["the root", "a directory"])
def test_an_unreadable_directory_never_looks_empty(place: TreePlace, path: str, mode: int) -> None:
    place.make("sub/file")
    place.set_mode(path, mode)
    with pytest.raises(RejectedError, match=r"can't (list|look at)") as refused:
        list(place.tree.list_tree(place.root))
    place.set_mode(path, 0o700)
    assert place.root in refused.value.message
    assert refused.value.field == "source"
    assert refused.value.hint


# --- what changes meanwhile


@EVERYWHERE
def test_entries_that_disappear_are_left_out(place: TreePlace) -> None:
    place.make("a", "b", "c/d", "e/f", "g")
    found = []
    for entry in place.tree.list_tree(place.root):
        found.append(sort_key(entry))
        if entry.path == "a":
            place.remove("b")
            place.remove("c")
        if entry.path == "e":
            place.remove("e")
    assert found == (["a", "b", "e/", "e/f", "g"] if place.tells_files_at_once else ["a", "e/", "g"])


@ON_HDFS
def test_a_directory_that_disappears_between_two_pages_has_no_more_entries(place: TreePlace) -> None:
    place.make(*(f"a/{number:02d}" for number in range(2 * PAGE_ENTRIES)), "b/c")
    listing = place.tree.list_tree(place.root)
    assert [next(listing).path for _ in range(2)] == ["a", "a/00"]
    place.remove("a")
    assert keys(listing) == [*(f"a/{number:02d}" for number in range(1, PAGE_ENTRIES)), "b/", "b/c"]


@EVERYWHERE
def test_a_directory_that_becomes_a_file_is_no_answer(place: TreePlace) -> None:
    place.make("a", "b/")
    entries = place.tree.list_tree(place.root)
    next(entries)
    place.remove("b")
    place.make("b")
    with pytest.raises(RetryableError, match="changed its kind"):
        list(entries)


@WITH_IDENTITIES
def test_a_directory_on_the_way_that_is_replaced_is_no_answer(place: TreePlace) -> None:
    place.make("a/b/c", "a/d/e")
    entries = place.tree.list_tree(place.root)
    assert [next(entries).path for _ in range(3)] == ["a", "a/b", "a/b/c"]
    place.move("a", f"{place.root}-elsewhere")
    place.make("a/d/x")
    with pytest.raises(RetryableError, match="was replaced while it was being listed"):
        list(entries)


@EVERYWHERE
def test_a_root_that_goes_away_is_not_an_empty_one(place: TreePlace) -> None:
    place.make("a", "b/x", "c/y")
    entries = place.tree.list_tree(place.root)
    next(entries)
    place.move("", f"{place.root}-elsewhere")
    with pytest.raises(RetryableError, match="while it was being listed"):
        list(entries)


@WITH_IDENTITIES
@pytest.mark.parametrize("below", ["", "deep/"], ids=["at the top", "below"])
def test_a_root_that_another_one_replaces_is_not_an_empty_one(place: TreePlace, below: str) -> None:
    place.make(f"{below}a", f"{below}b/x", f"{below}c/y")
    entries = place.tree.list_tree(place.root)
    assert next(entry.path for entry in entries if entry.path.endswith("a")) == f"{below}a"
    place.move("", f"{place.root}-elsewhere")
    place.make(f"{below}left/")
    with pytest.raises(RetryableError, match="while it was being listed"):
        list(entries)


@ON_HDFS
def test_a_root_below_a_file_is_missing(place: TreePlace) -> None:
    place.make("file")
    with pytest.raises(RejectedError, match="is missing"):
        list(place.tree.list_tree(f"{place.root}/file/root"))
