"""The ports ``Tree`` and ``RangedFiles`` over real SFTP servers: order, kinds, links, versions, faults of servers."""

import os
import shutil
import stat
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.tree import EntryKind, sort_key
from gobblin_assets.model.files import FileIdentity
from tests.support.cutting_proxy import cutting_proxy
from tests.support.ranged_files import LARGE_BYTES, RANGE_BYTES, TIME_NS, make_large, read_all
from tests.support.sftp_servers import BOTH_SERVERS, HIDDEN, SshServer, run_python_sftp

S_NS = 1_000_000_000


def make(root: Path, *paths: str) -> Path:
    """Files, and directories where a path ends with a slash."""
    for path in paths:
        place = root / path
        (place if path.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
        if not path.endswith("/"):
            place.write_bytes(os.fsencode(path))
    return root


# --- listings


@BOTH_SERVERS
def test_entries_come_in_byte_order_with_what_the_server_tells(sftp_server: SshServer) -> None:
    names = ("a", "a!", "a.b/x", "a0", "b/", "é", "\U0001f40d", "￿", "a b/c\nd/%41", "x?*[]#", " ", "~")
    root = make(sftp_server.make_root(), *names)
    (root / "a").chmod(0o640)
    os.utime(root / "a", ns=(TIME_NS, TIME_NS + 999_999_999))
    (root / "link").symlink_to("a")
    os.mkfifo(root / "pipe")
    tree = sftp_server.tree()
    found = {entry.path: entry for entry in tree.list_tree(str(root))}
    keys = [sort_key(entry) for entry in found.values()]
    assert keys == sorted(keys, key=str.encode)
    assert found.keys() == {str(path.relative_to(root)) for path in root.rglob("*")}
    kinds = {name for name, entry in found.items() if entry.kind is EntryKind.DIRECTORY}
    assert kinds == {"a.b", "b", "a b", "a b/c\nd"}
    assert (found["link"].kind, found["pipe"].kind) == (EntryKind.LINK, EntryKind.SPECIAL)
    real, file = (root / "a").lstat(), found["a"]
    assert file.identity == FileIdentity(1, None, TIME_NS)
    assert (file.mode, file.owner, file.group) == (0o640, real.st_uid, real.st_gid)
    assert found["b"].mode == stat.S_IMODE((root / "b").stat().st_mode)
    assert tree.mtime_precision_ns == S_NS


def test_more_directories_than_are_read_ahead_come_in_order(sftp_server: SshServer) -> None:
    paths = [f"{one:02d}/{two:02d}/file" for one in range(20) for two in range(12)]
    root = make(sftp_server.make_root(), *paths)
    found = [entry.path for entry in sftp_server.tree().list_tree(str(root)) if entry.kind is EntryKind.FILE]
    assert found == paths


def test_directories_that_vanish_meanwhile_are_left_out(sftp_server: SshServer) -> None:
    root = make(sftp_server.make_root(), *(f"{number:02d}/file" for number in range(20)))
    listing = sftp_server.tree().list_tree(str(root))
    assert next(listing).path == "00"
    shutil.rmtree(root / "17")
    (root / "17").write_bytes(b"a file")
    with pytest.raises(RetryableError, match="changed its kind"):
        list(listing)
    listing = sftp_server.tree().list_tree(str(root))
    assert next(listing).path == "00"
    shutil.rmtree(root / "19")
    assert "19" not in [entry.path for entry in listing]


def test_a_root_that_was_unmounted_does_not_look_emptied(sftp_server: SshServer) -> None:
    root = make(sftp_server.make_root(), *(f"{number:02d}/file" for number in range(20)))
    listing = sftp_server.tree().list_tree(str(root))
    assert next(listing).path == "00"
    root.rename(root.with_name(f"{root.name}-away"))
    root.mkdir()
    os.utime(root, (0, 0))
    with pytest.raises(RetryableError, match="changed while it was being listed"):
        list(listing)


def test_what_is_not_descended_into_is_not_read(sftp_server: SshServer) -> None:
    root = make(sftp_server.make_root(), "a/b/c", "a/x", "b/c/d")
    (root / "b").chmod(0)
    found = sftp_server.tree().list_tree(str(root), lambda path: path == "a")
    assert [sort_key(entry) for entry in found] == ["a/", "a/b/", "a/x", "b/"]


def test_the_working_directory_is_hidden_at_the_top_and_refused_below(sftp_server: SshServer) -> None:
    root = make(sftp_server.make_root(), f"{HIDDEN}/file", "a/b")
    assert [entry.path for entry in sftp_server.tree().list_tree(str(root))] == ["a", "a/b"]
    make(root, f"a/{HIDDEN}/")
    with pytest.raises(RejectedError, match="another copy's destination lies inside"):
        list(sftp_server.tree().list_tree(str(root)))


def test_a_file_of_the_working_directorys_name_is_listed(sftp_server: SshServer) -> None:
    root = make(sftp_server.make_root(), HIDDEN, f"a/{HIDDEN}")
    assert [entry.path for entry in sftp_server.tree().list_tree(str(root))] == [HIDDEN, "a", f"a/{HIDDEN}"]


def test_the_root_of_the_server_is_a_root(sftp_server: SshServer) -> None:
    root = make(sftp_server.make_root(), "a")
    top = str(root).split("/")[1]
    found = [entry.path for entry in sftp_server.tree().list_tree("/", lambda _path: False)]
    assert top in found
    assert sftp_server.tree().find_file(f"/{root}/a") is not None


@BOTH_SERVERS
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("missing", "is missing"),
        ("file", "expected a directory"),
        ("below a file", "is missing"),
        ("forbidden", "can't list .*ermission denied"),
        ("forbidden below", "can't list .*/a/b: .*ermission denied"),
        ("no text", "expected names of files in UTF-8"),
    ],
)
def test_what_can_not_be_listed_is_named(sftp_server: SshServer, wrong: str, said: str) -> None:
    root = make(sftp_server.make_root(), "file", "a/b/c")
    match wrong:
        case "missing":
            root = root / "missing"
        case "file":
            root = root / "file"
        case "below a file":
            root = root / "file/x"
        case "forbidden":
            root.chmod(0)
        case "forbidden below":
            (root / "a/b").chmod(0)
        case _:
            Path(os.fsdecode(os.fsencode(root) + b"/a/\xff")).touch()
    # Asyncssh's server calls a file on the way just a failure.
    families = (RejectedError, RetryableError) if wrong == "below a file" else RejectedError
    with pytest.raises(families, match=None if wrong == "below a file" else said) as refused:
        list(sftp_server.tree().list_tree(str(root)))
    assert not isinstance(refused.value, RejectedError) or refused.value.field == "source"


# --- links


def test_links_are_followed_inside_the_root(sftp_server: SshServer) -> None:
    root = make(sftp_server.make_root(), "d/file", "e/")
    (root / "e/again").symlink_to("../d")
    (root / "name").symlink_to("d/file")
    tree = sftp_server.tree(follow_links=True)
    found = {entry.path: entry for entry in tree.list_tree(str(root))}
    assert list(found) == ["d", "d/file", "e", "e/again", "e/again/file", "name"]
    assert found["name"].identity == found["d/file"].identity
    assert read_all(tree, f"{root}/name", found["name"].identity) == b"d/file"
    with pytest.raises(RetryableError, match="changed"):
        read_all(sftp_server.tree(), f"{root}/name", found["name"].identity)


@pytest.mark.parametrize(
    ("target", "said"),
    [("missing", "leads nowhere"), ("/etc", "not below the root"), (HIDDEN, "not below"), ("..", "holds it")],
)
def test_a_link_that_can_not_be_followed_is_named(sftp_server: SshServer, target: str, said: str) -> None:
    root = make(sftp_server.make_root(), "d/file", "d/e/", f"{HIDDEN}/x")
    (root / "d/e/link").symlink_to(target if target in {"/etc", ".."} else root / target)
    with pytest.raises(RejectedError, match=f"d/e/link .*{said}"):
        list(sftp_server.tree(follow_links=True).list_tree(str(root)))


# --- bytes


@BOTH_SERVERS
def test_a_file_is_read_by_ranges_in_any_order(sftp_server: SshServer) -> None:
    root = sftp_server.make_root()
    path, identity, content = make_large(root, "a\nb %41")
    tree = sftp_server.tree()
    assert tree.find_file(path) == identity
    assert read_all(tree, path, identity) == content
    with closing(tree.open_ranged(path, identity)) as opened:
        assert opened.read_at(LARGE_BYTES - 3, 3) == content[-3:]
        assert opened.read_at(5, 1 << 20) == content[5 : 5 + (1 << 20)]
    assert tree.find_file(f"{root}/missing") is None
    assert tree.find_file(str(root)) is None


def test_an_empty_file_is_proved(sftp_server: SshServer) -> None:
    root = make(sftp_server.make_root(), "empty", "secret")
    (root / "empty").write_bytes(b"")
    (root / "secret").write_bytes(b"")
    tree = sftp_server.tree()
    identity = tree.find_file(f"{root}/empty")
    assert identity is not None
    tree.open_ranged(f"{root}/empty", identity).close()
    with pytest.raises(RetryableError, match="changed"):
        tree.open_ranged(f"{root}/empty", replace(identity, mtime_ns=TIME_NS))
    with pytest.raises(RetryableError, match="is gone"):
        tree.open_ranged(f"{root}/missing", identity)
    (root / "secret").chmod(0)
    secret = tree.find_file(f"{root}/secret")
    assert secret is not None
    with pytest.raises(RejectedError, match="ermission denied"):
        tree.open_ranged(f"{root}/secret", secret)


def grow(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b"more")
    os.utime(path, ns=(TIME_NS, TIME_NS))


def shrink(path: Path) -> None:
    os.truncate(path, RANGE_BYTES + 5)
    os.utime(path, ns=(TIME_NS, TIME_NS))


def rewrite(path: Path) -> None:
    with path.open("r+b") as stream:
        stream.write(b"other")


def exchange(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(os.urandom(LARGE_BYTES))
    other.rename(path)


def become_a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.rotating
@pytest.mark.parametrize("change", [grow, shrink, rewrite, exchange, become_a_link, Path.unlink])
@pytest.mark.parametrize("when", ["before", "while it is read"])
def test_another_version_is_never_read_to_its_end(
    sftp_server: SshServer, change: Callable[[Path], None], when: str
) -> None:
    path, identity, content = make_large(sftp_server.make_root())
    tree = sftp_server.tree()
    with closing(tree.open_ranged(path, identity)) as opened:
        if when != "before":
            assert opened.read_at(0, RANGE_BYTES) == content[:RANGE_BYTES]
        change(Path(path))
        with pytest.raises(RetryableError, match=r"changed|gone"):
            opened.read_at(RANGE_BYTES, RANGE_BYTES)


@BOTH_SERVERS
def test_many_requests_of_one_file_are_under_way_at_once(sftp_server: SshServer) -> None:
    """A request has some 70 bytes. No answer passes before ten of them were sent."""
    path, identity, content = make_large(sftp_server.make_root())
    with cutting_proxy(sftp_server.port) as proxy:
        tree = sftp_server.tree(sftp_server.client(port=proxy.port, answer_wait_s=10))
        with closing(tree.open_ranged(path, identity)) as opened:
            assert opened.read_at(0, 1) == content[:1]
            proxy.hold(700)
            assert opened.read_at(0, RANGE_BYTES) == content[:RANGE_BYTES]
        assert proxy.connections == 1


# --- servers that say odd things


def test_a_server_whose_listings_tell_no_attributes_is_asked_for_each_entry() -> None:
    with run_python_sftp(listing="bare") as server:
        root = make(server.make_root(), "a/b", "c")
        assert [sort_key(entry) for entry in server.tree().list_tree(str(root))] == ["a/", "a/b", "c"]


@pytest.mark.parametrize("listing", ["climbing", "foreign"])
def test_a_name_that_no_directory_can_hold_is_refused(listing: str) -> None:
    with run_python_sftp(listing=listing) as server:
        root = make(server.make_root(), "a")
        with pytest.raises(RejectedError, match="expected names of files in UTF-8"):
            list(server.tree().list_tree(str(root)))


def test_a_server_without_sftp_is_refused() -> None:
    with run_python_sftp(subsystem=False) as server, pytest.raises(RejectedError, match="gives no SFTP"):
        list(server.tree().list_tree("/"))
