"""What the common suites don't ask of HDFS: acts at given names, trees, staged files, faults between it and us."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing

import pytest

from gobblin_assets.errors import (
    ConflictError,
    GobblinError,
    OutcomeUnknownError,
    RejectedError,
    RetryableError,
)
from gobblin_assets.fs.file_system import LEFT_BEHIND_S, PROBE_PREFIX, RenameOutcome
from gobblin_assets.fs.hdfs.file_system import HdfsFileSystem
from gobblin_assets.fs.hdfs.hdfs_settings import HdfsSettings
from gobblin_assets.fs.named_files import NamedFiles
from gobblin_assets.fs.network_files import RangedFiles, StagingFiles
from gobblin_assets.fs.tree import EntryKind, ListedFiles, sort_key
from gobblin_assets.model.files import FileIdentity
from tests.support.faulty_store import FaultyStore, StoreFault, faulty_store
from tests.support.hdfs_place import HdfsClient, HdfsPlace
from tests.support.hdfs_server import BLOCK_BYTES, GATEWAY, USER, HdfsServer

pytestmark = pytest.mark.rotating

WORK = ".gobblin"


@pytest.fixture
def place(hdfs_server: HdfsServer) -> HdfsPlace:
    return HdfsPlace(hdfs_server)


def identity(place: HdfsPlace, path: str) -> FileIdentity:
    found = place.fs.find_identity(path)
    assert found is not None
    return found


def test_it_has_what_copies_ask_for(place: HdfsPlace) -> None:
    fs = place.fs
    assert isinstance(fs, NamedFiles)
    assert isinstance(fs, StagingFiles)
    assert isinstance(fs, ListedFiles)
    assert isinstance(fs.open_tree("source", hidden=frozenset(), follow_links=False), RangedFiles)
    assert not fs.can_exchange(place.root)
    with pytest.raises(RejectedError, match="exchange"):
        fs.exchange(place.at("a"), place.at("b"))


@pytest.mark.parametrize("occupant", ["nothing", "empty", "full", "file"])
def test_a_directory_takes_a_free_name_or_that_of_an_empty_directory(place: HdfsPlace, occupant: str) -> None:
    source, target = place.at("source"), place.at("target")
    place.write(f"{source}/file")
    if occupant in {"empty", "full"}:
        place.mkdir(target)
    if occupant in {"full", "file"}:
        place.write(f"{target}/old" if occupant == "full" else target, b"old")
    expected = RenameOutcome.RENAMED if occupant in {"nothing", "empty"} else RenameOutcome.TARGET_EXISTS
    before = place.list_all()

    assert place.fs.rename_onto_empty(source, target) is expected

    if expected is RenameOutcome.RENAMED:
        assert place.list_all() == ["target", "target/file"]
        assert place.fs.rename_onto_empty(source, target) is RenameOutcome.SOURCE_MISSING
    else:
        assert place.list_all() == before


def test_one_directory_is_made_and_never_its_parents(place: HdfsPlace) -> None:
    fs = place.fs
    assert fs.make_directory(place.at("a"))
    assert not fs.make_directory(place.at("a"))
    place.write(place.at("file"))
    assert not fs.make_directory(place.at("file"))
    with pytest.raises(RejectedError, match="parent"):
        fs.make_directory(place.at("none/b"))
    assert place.list_all() == ["a", "file"]
    assert fs.is_empty(place.at("a"))
    assert not fs.is_empty(place.root)
    assert not fs.is_empty(place.at("file"))
    assert not fs.is_empty(place.at("none"))


def test_a_file_id_tells_files_apart_and_stays_with_a_rename(place: HdfsPlace) -> None:
    entry = place.fs.find_entry(place.write(place.at("a"), b"1234"))
    assert entry is not None
    assert (entry.kind, entry.identity.size_bytes) == (EntryKind.FILE, 4)
    assert entry.identity.inode is not None
    place.move(place.at("a"), place.at("b"))
    assert identity(place, place.at("b")) == entry.identity
    assert identity(place, place.write(place.at("a"), b"1234")).inode != entry.identity.inode
    assert place.fs.find_entry(place.at("none")) is None
    assert place.fs.find_entry(place.at("b/below")) is None


def test_what_is_published_has_the_modes_of_the_umask(hdfs_server: HdfsServer) -> None:
    fs, root = hdfs_server.open(umask=0o027), hdfs_server.make_root()
    fs.make_directories(f"{root}/x/a")
    fs.write_new({f"{root}/x/file": b"1"})
    fs.create_file(f"{root}/x/a/other").close()
    other = hdfs_server.open()
    other.set_attributes(f"{root}/x/a/other", 0o600, None)
    fs.apply_modes(f"{root}/x")
    found = {entry: fs.find_entry(f"{root}/{entry}") for entry in ("x", "x/a", "x/file", "x/a/other")}
    assert {name: entry and entry.mode for name, entry in found.items()} == {
        **dict.fromkeys(("x", "x/a"), 0o750),
        **dict.fromkeys(("x/file", "x/a/other"), 0o640),
    }


def test_a_probe_leaves_nothing(place: HdfsPlace) -> None:
    place.fs.probe(place.at("staging"), place.at("final"))
    assert place.list_all() == []
    with pytest.raises(RejectedError, match="file"):
        place.fs.probe(f"{place.write(place.at('file'))}/staging", place.at("final"))


def test_a_probe_removes_what_killed_probes_left_an_hour_ago(hdfs_server: HdfsServer) -> None:
    """By the cluster's clock, which the time of the probe's own directory tells."""
    place, client = HdfsPlace(hdfs_server), HdfsClient(hdfs_server.http_address)
    old = [place.mkdir(place.at(f"{root}/{PROBE_PREFIX}old")) for root in ("final", "staging")]
    young = place.mkdir(place.at(f"final/{PROBE_PREFIX}young"))
    other = place.mkdir(place.at("final/.gobblin-other"))
    place.write(f"{old[0]}/file")
    now_ms = int(client.ask("GET", young, "GETFILESTATUS")["FileStatus"]["modificationTime"])
    long_ago = str(now_ms - int(LEFT_BEHIND_S * 1_000) - 60_000)
    for path in (*old, other):
        client.ask("PUT", path, "SETTIMES", modificationtime=long_ago, accesstime="-1")
    place.fs.probe(place.at("staging"), place.at("final"))
    assert place.list_all() == ["final", "final/.gobblin-other", f"final/{PROBE_PREFIX}young", "staging"]


# --- trees


def test_directories_are_found_by_their_name(place: HdfsPlace) -> None:
    for path in ("a/.x/inside/.x", "b/c/.x", ".x", "d/e"):
        place.mkdir(place.at(path))
    place.write(place.at("d/.x"))

    found = set(place.fs.find_directories(place.root, ".x"))

    assert found == {place.at(each) for each in (".x", "a/.x", "b/c/.x")}
    assert not list(place.fs.find_directories(place.at("none"), ".x"))


def test_a_tree_comes_in_byte_order_without_its_work(place: HdfsPlace) -> None:
    for path in ("a/x", "a.b", "a!/y", "é", "a b", "\U0001f40d/z", f"{WORK}/claim", "left/out"):
        place.write(place.at(path), path.encode())
    place.mkdir(place.at("empty"))
    tree = place.fs.open_tree("source", hidden=frozenset({WORK}), follow_links=False)
    found = list(tree.list_tree(place.root, lambda path: path != "left"))
    keys = [sort_key(entry) for entry in found]
    assert keys == sorted(keys, key=str.encode)
    expected = ["a b", "a!/", "a!/y", "a.b", "a/", "a/x", "empty/", "left/", "é", "\U0001f40d/", "\U0001f40d/z"]
    assert sorted(keys) == sorted(expected)
    files = [entry for entry in found if entry.kind is EntryKind.FILE]
    assert all(entry.identity == place.fs.find_identity(place.at(entry.path)) for entry in files)
    place.write(place.at(f"a/{WORK}/claim"))
    with pytest.raises(RejectedError, match="working directory"):
        list(tree.list_tree(place.root))


def test_a_file_of_the_work_s_name_is_listed(place: HdfsPlace) -> None:
    for path in (WORK, f"a/{WORK}"):
        place.write(place.at(path))
    tree = place.fs.open_tree("source", hidden=frozenset({WORK}), follow_links=False)
    assert [entry.path for entry in tree.list_tree(place.root)] == [WORK, "a", f"a/{WORK}"]


@pytest.mark.parametrize("wrong", ["missing", "a file"])
def test_a_root_that_is_no_directory_is_refused(place: HdfsPlace, wrong: str) -> None:
    if wrong == "a file":
        place.write(place.at("root"))
    tree = place.fs.open_tree("source", hidden=frozenset(), follow_links=False)
    with pytest.raises(RejectedError) as refused:
        list(tree.list_tree(place.at("root")))
    assert refused.value.field == "source"


def test_a_file_of_several_blocks_is_read_by_ranges(place: HdfsPlace) -> None:
    content = os.urandom(2 * BLOCK_BYTES + 12_345)
    path = place.at("large")
    with place.fs.create_file(path) as stream:
        for start in range(0, len(content), 700_001):
            stream.write(content[start : start + 700_001])
    assert place.read(path) == content
    tree = place.fs.open_tree("source", hidden=frozenset(), follow_links=False)
    with closing(tree.open_ranged(path, identity(place, path))) as opened:
        assert opened.read_at(BLOCK_BYTES - 5, 10) == content[BLOCK_BYTES - 5 : BLOCK_BYTES + 5]
        assert opened.read_at(0, len(content)) == content


@pytest.mark.parametrize("change", ["rewritten", "gone", "older"])
@pytest.mark.parametrize("content", [b"content", b""])
def test_a_source_that_is_another_version_is_not_read(place: HdfsPlace, change: str, content: bytes) -> None:
    path = place.write(place.at("file"), content)
    planned = identity(place, path)
    if change == "gone":
        place.remove(path)
    elif change == "rewritten":
        place.write(path, content)
    else:
        place.fs.set_attributes(path, None, 1_000_000)
    tree = place.fs.open_tree("source", hidden=frozenset(), follow_links=False)
    with pytest.raises((RetryableError, RejectedError)), closing(tree.open_ranged(path, planned)) as opened:
        opened.read_at(0, len(content) or 1)


# --- staged files


def test_a_staged_file_has_its_attributes(place: HdfsPlace) -> None:
    place.fs.make_staged_directory(place.at("w"), 0o750)
    stream = place.fs.create_staged(place.at("w/1"), 0o640)
    stream.write(b"12")
    stream.write(b"345")
    stream.finish()
    entry = place.fs.set_attributes(place.at("w/1"), None, 1_700_000_000_123_456_789)
    assert (entry.mode, entry.identity.size_bytes, entry.identity.mtime_ns) == (0o640, 5, 1_700_000_000_123_000_000)
    assert place.read(place.at("w/1")) == b"12345"
    with pytest.raises(ConflictError):
        place.fs.create_staged(place.at("w/1"), 0o640)


def test_a_staged_directory_is_made_once(place: HdfsPlace) -> None:
    place.fs.make_staged_directory(place.at("staged"), 0o750)
    with pytest.raises(ConflictError, match="is there already"):
        place.fs.make_staged_directory(place.at("staged"), 0o700)
    found = place.fs.find_entry(place.at("staged"))
    assert found is not None
    assert found.mode == 0o750
    assert place.list_all() == ["staged"]


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_directory_that_was_taken_is_never_made_again(place: HdfsPlace, what: str) -> None:
    path = place.at("captured/1")
    with pytest.raises(RetryableError, match="gone"):
        place.fs.create_staged(path, None) if what == "file" else place.fs.make_staged_directory(path, None)
    assert place.list_all() == []


# --- faults


def through(server: HdfsServer, proxy: FaultyStore) -> HdfsFileSystem:
    return HdfsFileSystem(server.address, HdfsSettings(USER, web_url=proxy.endpoint_url))


CHANGES: dict[str, tuple[str, Callable[[HdfsFileSystem, str], object]]] = {
    "RENAME": ("PUT", lambda fs, root: fs.rename_no_replace(f"{root}/a", f"{root}/b")),
    "MKDIRS": ("PUT", lambda fs, root: fs.make_directories(f"{root}/c/d")),
    "DELETE": ("DELETE", lambda fs, root: fs.remove_tree(f"{root}/tree")),
}


@pytest.mark.parametrize("fault", [StoreFault.LOST, StoreFault.CUT, StoreFault.BROKEN])
@pytest.mark.parametrize("op", CHANGES)
def test_a_change_without_an_answer_is_unknown(hdfs_server: HdfsServer, op: str, fault: StoreFault) -> None:
    place = HdfsPlace(hdfs_server)
    place.write(place.at("a"))
    place.mkdir(place.at("tree"))
    method, change = CHANGES[op]
    with faulty_store(("127.0.0.1", int(hdfs_server.http_address.partition(":")[2]))) as proxy:
        fs = through(hdfs_server, proxy)
        proxy.fault_once(fault, method, f"op={op}")
        with pytest.raises(OutcomeUnknownError):
            change(fs, place.root)
        change(fs, place.root)
    expected = {"RENAME": ["b", "tree"], "MKDIRS": ["a", "c", "c/d", "tree"], "DELETE": ["a"]}[op]
    assert place.list_all() == expected


def test_a_question_without_an_answer_may_be_asked_again(hdfs_server: HdfsServer) -> None:
    place = HdfsPlace(hdfs_server)
    with faulty_store(("127.0.0.1", int(hdfs_server.http_address.partition(":")[2]))) as proxy:
        fs = through(hdfs_server, proxy)
        proxy.fault_once(StoreFault.CUT, "GET", "op=GETFILESTATUS")
        with pytest.raises(RetryableError):
            fs.find_entry(place.root)
        assert fs.find_entry(place.root) is not None


def test_a_cluster_that_is_away_is_waited_for() -> None:
    fs = HdfsFileSystem("127.0.0.1:1", HdfsSettings(USER, web_url="http://127.0.0.1:1"))
    for call in (
        lambda: fs.find_entry("/a"),
        lambda: fs.make_directories("/a"),
        lambda: fs.create_file("/a"),
        lambda: fs.open_input("/a"),
    ):
        with pytest.raises(RetryableError):
            call()


def test_what_a_user_may_not_do_is_refused(hdfs_server: HdfsServer) -> None:
    place, fs = HdfsPlace(hdfs_server), hdfs_server.open(user="stranger")
    place.write(place.at("tree/file"))
    place.fs.set_attributes(place.at("tree"), 0o700, None)
    refused: tuple[Callable[[], object], ...] = (
        lambda: fs.make_directories(place.at("x")),
        lambda: fs.rename_no_replace(place.at("tree"), place.at("x")),
        lambda: fs.remove_tree(place.at("tree")),
        lambda: fs.list_files(place.at("tree")),
        lambda: list(fs.open_tree("destination", hidden=frozenset(), follow_links=False).list_tree(place.root)),
    )
    for call in refused:
        with pytest.raises(RejectedError, match="AccessControl") as error:
            call()
        assert error.value.field == "destination"
    assert place.list_all() == ["tree", "tree/file"]


def test_only_superusers_change_what_is_in_closed_directories(hdfs_server: HdfsServer) -> None:
    place = HdfsPlace(hdfs_server)
    place.set_mode(place.root, 0o777)
    ordinary = hdfs_server.open(user="stranger")
    assert place.fs.can_change_closed(place.root)
    assert not ordinary.can_change_closed(place.root)
    assert not place.list_all()

    for name in ("tree", "tree/a", "tree/a/b"):
        ordinary.make_directory(place.at(name))
        place.write(place.at(f"{name}/file"))
    for name in ("tree/a/b", "tree/a", "tree"):
        place.set_mode(place.at(name), 0o555)
    ordinary.remove_tree(place.at("tree"))
    assert not place.list_all()


@pytest.mark.parametrize("quota", ["namespacequota", "storagespacequota"])
def test_a_quota_is_waited_for(hdfs_server: HdfsServer, quota: str) -> None:
    place = HdfsPlace(hdfs_server)
    HdfsClient(hdfs_server.http_address).ask("PUT", place.root, "SETQUOTA", **{quota: "1"})

    def fill() -> None:
        if quota == "namespacequota":
            place.fs.make_directories(place.at("a/b"))
        with place.fs.create_file(place.at("file")) as stream:
            stream.write(b"12")

    with pytest.raises(RetryableError, match=r"[Qq]uota"):
        fill()


_AS_ANOTHER = """
import sys
from gobblin_assets.fs.registry import open_file_system
fs, root = open_file_system(sys.argv[1])
fs.make_directories(root + "/d")
fs.create_file(root + "/f").close()
"""


@pytest.mark.parametrize("user", [GATEWAY, "anybody"])
def test_a_gateway_acts_for_another_user(hdfs_server: HdfsServer, user: str) -> None:
    """In a process of its own: one acts as one HDFS user."""
    place = HdfsPlace(hdfs_server)
    place.fs.set_attributes(place.root, 0o777, None)
    environment = {**os.environ, **hdfs_server.environment, "GOBBLIN_HDFS_USER": user, "GOBBLIN_HDFS_PROXY_USER": "ann"}
    done = subprocess.run(
        [sys.executable, "-c", _AS_ANOTHER, hdfs_server.uri(place.root)],
        env=environment,
        capture_output=True,
        text=True,
    )
    if user == GATEWAY:
        assert done.returncode == 0, done.stderr
        owners = {path: status["owner"] for path, status in HdfsClient(hdfs_server.http_address).walk(place.root)}
        assert owners == {place.at("d"): "ann", place.at("f"): "ann"}
    else:
        assert "RejectedError" in done.stderr
        assert place.list_all() == []


def test_a_name_that_hdfs_can_not_have_is_refused(place: HdfsPlace) -> None:
    with pytest.raises(GobblinError) as refused:
        place.fs.create_staged(place.at("a:b"), None)
    assert isinstance(refused.value, RejectedError)
