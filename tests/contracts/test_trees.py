"""The Tree port over local disks: order, kinds, what can't be read, links, and those that are followed."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.posix_tree import PosixTree
from gobblin_assets.fs.tree import EntryKind, Tree, TreeEntry, sort_key

WORK = ".gobblin"


@pytest.fixture
def tree() -> Tree:
    return PosixTree("source", hidden=frozenset({WORK}))


def make(root: Path, *paths: str) -> Path:
    """Files, and directories where a path ends with a slash."""
    for path in paths:
        place = root / path
        (place if path.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
        if not path.endswith("/"):
            place.write_bytes(os.fsencode(path))
    return root


def keys(entries: Iterator[TreeEntry]) -> list[str]:
    return [sort_key(entry) for entry in entries]


# --- order and contents

NAMES = st.sampled_from(["a", "a!", "a.b", "a0", "b", "é", "\U0001f40d", "\uffff", "a b", "a\nb"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.sets(st.lists(NAMES, min_size=1, max_size=3).map("/".join), max_size=12))
def test_entries_come_in_the_byte_order_of_their_paths(tmp_path: Path, paths: set[str]) -> None:
    root = tmp_path / "root"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    files = {path for path in paths if not any(other.startswith(f"{path}/") for other in paths)}
    make(root, *files)
    found = keys(PosixTree("source").list_tree(str(root)))
    assert found == sorted(found, key=str.encode)
    assert {key for key in found if not key.endswith("/")} == files
    assert {key for key in found if key.endswith("/")} == {
        f"{path[:n]}/" for path in files for n, letter in enumerate(path) if letter == "/"
    }


def test_an_entry_has_what_the_system_says_of_it(tree: Tree, tmp_path: Path) -> None:
    (root := tmp_path / "root").mkdir()
    make(root, "d/file")
    (root / "d/file").chmod(0o640)
    os.utime(root / "d/file", ns=(1, 1_700_000_000_123_456_789))
    (root / "link").symlink_to("d")
    os.mkfifo(root / "pipe")
    found = {entry.path: entry for entry in tree.list_tree(str(root))}
    assert {path: entry.kind for path, entry in found.items()} == {
        "d": EntryKind.DIRECTORY,
        "d/file": EntryKind.FILE,
        "link": EntryKind.LINK,
        "pipe": EntryKind.SPECIAL,
    }
    real = (root / "d/file").lstat()
    file = found["d/file"]
    assert (file.identity.size_bytes, file.identity.inode, file.identity.mtime_ns) == (
        6,
        real.st_ino,
        1_700_000_000_123_456_789,
    )
    assert (file.mode, file.owner, file.group) == (0o640, real.st_uid, real.st_gid)
    assert found["d"].mode == stat.S_IMODE((root / "d").stat().st_mode)


def test_the_root_may_be_reached_through_a_link(tree: Tree, tmp_path: Path) -> None:
    make(tmp_path, "disk/file")
    (tmp_path / "root").symlink_to("disk")
    assert keys(tree.list_tree(str(tmp_path / "root"))) == ["file"]


def test_an_empty_root_has_no_entries(tree: Tree, tmp_path: Path) -> None:
    assert list(tree.list_tree(str(tmp_path))) == []


def test_a_directory_that_is_not_descended_into_is_given_itself(tree: Tree, tmp_path: Path) -> None:
    make(tmp_path, "a/b/c", "a/x", "b/c")
    (tmp_path / "b/c").chmod(0)
    asked: list[str] = []

    def descend(path: str) -> bool:
        asked.append(path)
        return path == "a"

    assert keys(tree.list_tree(str(tmp_path), descend)) == ["a/", "a/b/", "a/x", "b/"]
    assert asked == ["a", "a/b", "b"]


# --- working directories


def test_the_working_directory_is_hidden_at_the_top_and_refused_below(tree: Tree, tmp_path: Path) -> None:
    make(tmp_path, f"{WORK}/attempt/file", "a/b/c", f"{WORK}x")
    assert keys(tree.list_tree(str(tmp_path))) == [f"{WORK}x", "a/", "a/b/", "a/b/c"]
    make(tmp_path, f"a/b/{WORK}/")
    with pytest.raises(RejectedError, match="another copy's destination lies inside") as refused:
        list(tree.list_tree(str(tmp_path)))
    assert str(tmp_path / "a/b" / WORK) in str(refused.value)
    assert keys(tree.list_tree(str(tmp_path), lambda path: path != "a")) == [f"{WORK}x", "a/"]


def test_a_file_of_the_working_directorys_name_is_listed(tree: Tree, tmp_path: Path) -> None:
    assert keys(tree.list_tree(str(make(tmp_path, WORK, f"a/{WORK}")))) == [WORK, "a/", f"a/{WORK}"]


@pytest.mark.parametrize("follows", [False, True])
def test_a_link_to_the_working_directory_is_hidden_at_the_top(tmp_path: Path, *, follows: bool) -> None:
    make(tmp_path, "a/x")
    (tmp_path / WORK).symlink_to("a")
    tree = PosixTree("source", hidden=frozenset({WORK}), follow_links=follows)
    assert keys(tree.list_tree(str(tmp_path))) == ["a/", "a/x"]


# --- what can't be listed


@pytest.mark.parametrize("wrong", ["missing", "file", "fifo", "below a file", "dangling"])
def test_a_root_that_is_no_directory_is_refused(tree: Tree, tmp_path: Path, wrong: str) -> None:
    root = tmp_path / "root"
    match wrong:
        case "file":
            root.write_text("")
        case "fifo":
            os.mkfifo(root)
        case "below a file":
            (tmp_path / "root").write_text("")
            root = root / "below"
        case "dangling":
            root.symlink_to("nowhere")
        case _:
            pass
    with pytest.raises(RejectedError) as refused:
        list(tree.list_tree(str(root)))
    assert refused.value.field == "source"
    assert str(root) in refused.value.message
    assert refused.value.hint


@contextmanager
def plain_user() -> Iterator[None]:
    """The superuser reads every directory, so it becomes nobody for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("mode", [0o000, 0o444], ids=["no reading", "no searching"])
@pytest.mark.parametrize("place", ["", "sub"])
def test_an_unreadable_directory_never_looks_empty(tree: Tree, mode: int, place: str) -> None:
    # Directories above those of pytest's are for their owner only.
    with tempfile.TemporaryDirectory() as above:
        Path(above).chmod(0o755)
        root = make(Path(above) / "root", "sub/file")
        (root / place).chmod(mode)
        with plain_user(), pytest.raises(RejectedError, match="can't be read") as refused:
            list(tree.list_tree(str(root)))
        (root / place).chmod(0o700)
        assert str(root / place) in refused.value.message
        assert refused.value.hint


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_name_that_is_not_utf8_is_refused(tree: Tree, tmp_path: Path, kind: str) -> None:
    name = os.fsdecode(b"caf\xe9")
    make(tmp_path, f"d/{name}" if kind == "file" else f"d/{name}/")
    with pytest.raises(RejectedError, match="expected names in UTF-8") as refused:
        list(tree.list_tree(str(tmp_path)))
    assert r"b'caf\xe9" in refused.value.message
    assert str(tmp_path / "d") in refused.value.message


# --- what changes meanwhile


def test_a_file_that_becomes_a_directory_is_no_answer(tree: Tree, tmp_path: Path) -> None:
    root = make(tmp_path, "a", "b")
    entries = tree.list_tree(str(root))
    next(entries)
    (root / "b").unlink()
    make(root, "b/")
    with pytest.raises(RetryableError, match="changed its kind"):
        list(entries)


def test_a_directory_that_became_a_link_is_not_followed(tree: Tree, tmp_path: Path) -> None:
    root = make(tmp_path / "root", "a", "b/x")
    make(tmp_path / "outside", "secret")
    entries = tree.list_tree(str(root))
    next(entries)
    shutil.rmtree(root / "b")
    (root / "b").symlink_to(tmp_path / "outside")
    with pytest.raises(RetryableError, match="changed its kind"):
        list(entries)


# --- links that are followed


@pytest.fixture
def following() -> Tree:
    return PosixTree("source", hidden=frozenset({WORK}), follow_links=True)


def test_links_are_given_as_what_they_lead_to(following: Tree, tmp_path: Path) -> None:
    make(tmp_path, "real/file", "a.txt")
    (tmp_path / "a").symlink_to("real")
    (tmp_path / "b").symlink_to(tmp_path / "a.txt")
    found = {sort_key(entry): entry for entry in following.list_tree(str(tmp_path))}
    assert list(found) == ["a.txt", "a/", "a/file", "b", "real/", "real/file"]
    assert found["b"].identity == found["a.txt"].identity
    assert found["a/file"].identity == found["real/file"].identity
    pruned = following.list_tree(str(tmp_path), lambda _path: False)
    assert [(entry.path, entry.kind.value) for entry in pruned] == [
        ("a.txt", "file"),
        ("a", "directory"),
        ("b", "file"),
        ("real", "directory"),
    ]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("../outside", "is not below the root"),
        ("../outside/file", "is not below the root"),
        (f"{WORK}/file", "is not below the root"),
        (".", "is not below the root"),
        ("sub", "leads to a directory that holds it"),
        ("nowhere", "leads nowhere"),
        ("sub/link", "leads nowhere"),
        ("sub/file/x", "leads nowhere"),
    ],
)
def test_a_link_that_leads_out_or_nowhere_or_around_is_refused(
    following: Tree, tmp_path: Path, target: str, said: str
) -> None:
    make(tmp_path / "outside", "file")
    root = make(tmp_path / "root", "sub/file", f"{WORK}/file")
    (root / "sub/link").symlink_to(root / target)
    with pytest.raises(RejectedError, match=said) as refused:
        list(following.list_tree(str(root)))
    assert str(root / "sub/link") in refused.value.message
